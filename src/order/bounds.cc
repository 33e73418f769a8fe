#include "order/bounds.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "graph/reachability.h"
#include "order/algorithms.h"
#include "order/min_cut.h"

namespace lowtide {
namespace {

using Row = ReachabilityBlock::Row;
constexpr std::size_t kColumns = ReachabilityBlock::kColumns;

std::vector<std::int64_t> operands_by_task(const Tasks& tasks) {
  std::vector<std::int64_t> bytes = touched_bytes(tasks);
  for (Task task = 0; task < tasks.count(); ++task) {
    bytes[task] += tasks.workspace[task] - reused(tasks, task, [&](Held buffer) { return !tasks.kept[buffer]; });
  }
  return bytes;
}

void unite(Row& row, const Row& other) {
  for (std::size_t i = 0; i < row.words.size(); ++i) row.words[i] |= other.words[i];
}

// What must be alive at chosen tasks, at most kColumns of them at a time, in the same memory.
class Sweep {
 public:
  explicit Sweep(const Tasks& tasks) : tasks_(tasks), before_(tasks.count()), after_(tasks.count()) {}

  // Gives nothing if the work is not enough.
  std::vector<std::int64_t> at(std::span<const Task> chosen, Work& work) {
    if (chosen.empty() || !work.spend(kStepsARow * (2 * tasks_.needs.predecessors.num_items() +
                                                    tasks_.users.num_items() + tasks_.count()))) {
      return {};
    }
    reach(chosen);
    std::vector<std::int64_t> bytes;
    for (const Task task : chosen) bytes.push_back(tasks_.workspace[task]);
    for (Held buffer = 0; buffer < tasks_.size.size(); ++buffer) {
      const std::span<const Task> users = tasks_.users[buffer];
      Row used;
      if (tasks_.kept[buffer]) used.words.fill(~std::uint64_t{0});
      for (const Task user : users) unite(used, before_[user]);
      const Row& made = after_[users.front()];
      for (std::size_t i = 0; i < used.words.size(); ++i) {
        for (std::uint64_t bits = used.words[i] & made.words[i]; bits != 0; bits &= bits - 1) {
          bytes[64 * i + static_cast<std::size_t>(std::countr_zero(bits))] += tasks_.size[buffer];
        }
      }
    }
    for (std::size_t column = 0; column < chosen.size(); ++column) {
      const auto may_end = [&](Held buffer) {
        return !tasks_.kept[buffer] && std::ranges::none_of(tasks_.users[buffer], [&](Task user) {
          return user != chosen[column] && (before_[user].words[column / 64] >> column % 64 & 1) != 0;
        });
      };
      bytes[column] -= reused(tasks_, chosen[column], may_end);
    }
    return bytes;
  }

  // Of the last chosen: whether `task` is the one in this column, or has to run before it.
  bool is_up_to(Task task, std::size_t column) const {
    return (after_[task].words[column / 64] >> column % 64 & 1) != 0;
  }

 private:
  static constexpr std::uint64_t kStepsARow = 16;

  // The rows of reachability.h, for chosen columns instead of neighbouring ones, and each op among its own relatives.
  void reach(std::span<const Task> chosen) {
    const auto [first, last] = std::minmax_element(chosen.begin(), chosen.end());
    std::fill(before_.begin(), before_.end(), Row{});
    std::fill(after_.begin(), after_.end(), Row{});
    for (std::size_t column = 0; column < chosen.size(); ++column) {
      const std::uint64_t bit = std::uint64_t{1} << column % 64;
      before_[chosen[column]].words[column / 64] |= bit;
      after_[chosen[column]].words[column / 64] |= bit;
    }
    for (std::size_t task = *first; task < tasks_.count(); ++task) {
      for (const OpId needed : tasks_.needs.predecessors[task]) unite(before_[task], before_[needed.index()]);
    }
    for (std::size_t task = *last + 1; task-- > 0;) {
      for (const OpId next : tasks_.needs.successors[task]) unite(after_[task], after_[next.index()]);
    }
  }

  const Tasks& tasks_;
  std::vector<Row> before_;  // by task: which chosen ones are it or before it
  std::vector<Row> after_;   // by task: which chosen ones are it or after it
};

}  // namespace

std::int64_t operands(const Tasks& tasks, Work&) {
  const std::vector<std::int64_t> bytes = operands_by_task(tasks);
  return bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
}

std::int64_t must_be_alive(const Tasks& tasks, Work& work) {
  const std::vector<std::int64_t> at_most = held_while(tasks, first_to_last(tasks.count()));
  std::vector<Task> highest(tasks.count());
  std::iota(highest.begin(), highest.end(), 0);
  std::stable_sort(highest.begin(), highest.end(), [&](Task a, Task b) { return at_most[a] > at_most[b]; });

  std::int64_t most = operands(tasks, work);
  Sweep sweep(tasks);
  for (std::size_t begin = 0; begin < highest.size() && at_most[highest[begin]] > most; begin += kColumns) {
    const auto block = std::span<const Task>(highest).subspan(begin, std::min(kColumns, highest.size() - begin));
    const std::vector<std::int64_t> bytes = sweep.at(block, work);
    if (bytes.empty()) break;
    most = std::max(most, *std::max_element(bytes.begin(), bytes.end()));
  }
  return most;
}

std::vector<std::int64_t> must_be_alive_by_task(const Tasks& tasks, Work& work) {
  std::vector<std::int64_t> by_task = operands_by_task(tasks);
  Sweep sweep(tasks);
  for (std::size_t begin = 0; begin < by_task.size(); begin += kColumns) {
    std::vector<Task> block(std::min(kColumns, by_task.size() - begin));
    std::iota(block.begin(), block.end(), static_cast<Task>(begin));
    const std::vector<std::int64_t> bytes = sweep.at(block, work);
    if (bytes.empty()) break;
    std::copy(bytes.begin(), bytes.end(), by_task.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return by_task;
}

namespace {

// Two tasks, and what each makes for a third.
struct Pair {
  std::array<Task, 2> makers;
  std::array<Held, 2> made;
};

std::vector<Pair> pairs_for(const Tasks& tasks, Task task) {
  constexpr std::size_t kLargest = 4;
  std::vector<Held> operands;
  for (const Held buffer : tasks.touched[task]) {
    if (tasks.users[buffer].front() != task) operands.push_back(buffer);
  }
  std::ranges::stable_sort(operands, std::ranges::greater{}, [&](Held buffer) { return tasks.size[buffer]; });
  operands.resize(std::min(operands.size(), kLargest));
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::array<Task, 2> makers = {tasks.users[operands[i]].front(), tasks.users[operands[j]].front()};
      if (makers[0] != makers[1]) pairs.push_back({makers, {operands[i], operands[j]}});
    }
  }
  return pairs;
}

// The least that is held while the later of the two runs, if `held` is what is held while each of them does.
std::int64_t while_second_runs(const Tasks& tasks, const Pair& pair, std::array<std::int64_t, 2> held) {
  return std::min(held[0] + tasks.size[pair.made[1]], held[1] + tasks.size[pair.made[0]]);
}

}  // namespace

std::int64_t either_first(const Tasks& tasks, Work& work) {
  if (!work.spend(16 * (tasks.users.num_items() + tasks.count()))) return 0;
  const std::vector<std::int64_t> at_most = held_while(tasks, first_to_last(tasks.count()));
  std::vector<std::pair<std::int64_t, Pair>> ranked;
  for (Task task = 0; task < tasks.count(); ++task) {
    for (const Pair& pair : pairs_for(tasks, task)) {
      ranked.emplace_back(while_second_runs(tasks, pair, {at_most[pair.makers[0]], at_most[pair.makers[1]]}), pair);
    }
  }
  std::ranges::stable_sort(ranked, std::ranges::greater{}, [](const auto& each) { return each.first; });
  ranked.resize(std::min(ranked.size(), kColumns / 2));

  std::vector<Task> chosen;  // two columns for each pair
  for (const auto& [bytes, pair] : ranked) chosen.insert(chosen.end(), pair.makers.begin(), pair.makers.end());
  Sweep sweep(tasks);
  const std::vector<std::int64_t> alive = sweep.at(chosen, work);
  std::int64_t most = 0;
  for (std::size_t column = 0; column < alive.size(); column += 2) {
    const Pair& pair = ranked[column / 2].second;
    const bool in_order = sweep.is_up_to(pair.makers[0], column + 1) || sweep.is_up_to(pair.makers[1], column);
    if (!in_order) most = std::max(most, while_second_runs(tasks, pair, {alive[column], alive[column + 1]}));
  }
  return most;
}

std::int64_t min_cut(const Tasks& tasks, Work& work) {
  return min_cut_from(tasks, first_to_last(tasks.count()), work);
}

}  // namespace lowtide
