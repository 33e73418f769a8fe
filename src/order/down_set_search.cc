#include "order/down_set_search.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/keys.h"

namespace lowtide {
namespace {

constexpr std::size_t kLongestClimb = 60;

struct KeyHash {
  std::size_t operator()(Key key) const { return static_cast<std::size_t>(key); }
};

class DownSetSearch {
 public:
  DownSetSearch(const Tasks& tasks, const Reachability& reachability, std::int64_t budget,
                const OrderSearchOptions& options, Work& work)
      : reachability_(reachability), budget_(budget), options_(options), work_(work), at_(tasks, options.direction) {}

  OrderSearchResult search();

 private:
  // A set from which it branches.
  struct Branch {
    std::size_t begin;  // tasks that had run before the moves without a choice
    std::size_t end;    // and after them
    std::vector<Task> children;
    std::size_t next = 0;
  };

  bool fits(Task task) const { return at_.needed(task) <= budget_; }
  bool behind(Task task, Task other) const {
    return options_.direction == Direction::forwards ? reachability_.precedes(OpId(other), OpId(task))
                                                     : reachability_.precedes(OpId(task), OpId(other));
  }
  void run(Task task) {
    key_ ^= key_of(task);
    at_.run(task);
  }
  void undo_to(std::size_t num_run) {
    while (at_.num_run() > num_run) {
      key_ ^= key_of(at_.last_run());
      at_.undo();
    }
  }
  bool pay() {
    if (!work_.spend(at_.steps() - std::exchange(paid_, at_.steps()))) out_of_work_ = true;
    return !out_of_work_;
  }

  void move_without_choice();
  bool fall();
  bool climb(Task first);
  std::vector<Task> children() const;

  const Reachability& reachability_;
  const std::int64_t budget_;
  const OrderSearchOptions options_;
  Work& work_;
  Progress at_;
  Key key_ = 0;
  std::unordered_set<Key, KeyHash> failed_;
  std::vector<Task> open_;  // of a climb: what could run next
  std::uint64_t paid_ = 0;
  bool out_of_work_ = false;
};

// Runs what holds no more afterwards than before; answers whether there was any.
bool DownSetSearch::fall() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (const Task place : at_.ready()) {  // those that become ready behind it too
      const Task task = at_.task_at(place);
      if (at_.change(task) > 0 || !fits(task)) continue;
      run(task);
      any = again = true;
    }
  }
  return any;
}

// Answers whether it came down again; otherwise nothing has changed.
bool DownSetSearch::climb(Task first) {
  const std::int64_t start = at_.held();
  const std::size_t num_run = at_.num_run();
  open_.assign(1, first);
  std::optional<Task> last_up;
  for (std::size_t length = 0; length < kLongestClimb; ++length) {
    auto best = open_.end();
    for (auto task = open_.begin(); task != open_.end(); ++task) {
      if (!fits(*task) || (last_up && !behind(*task, *last_up))) continue;
      const auto rank = [&](Task t) { return std::pair(at_.change(t), at_.place_of(t)); };
      if (best == open_.end() || rank(*task) < rank(*best)) best = task;
    }
    if (best == open_.end()) break;
    const Task task = *best;
    open_.erase(best);
    if (at_.change(task) > 0) last_up = task;
    run(task);
    open_.insert(open_.end(), at_.made_ready().begin(), at_.made_ready().end());
    if (at_.held() <= start) return true;
  }
  undo_to(num_run);
  return false;
}

void DownSetSearch::move_without_choice() {
  while (pay()) {
    if (fall()) continue;
    // Nothing has changed where a climb fails, so that going on through what is ready is going through what was.
    const bool climbed = std::ranges::any_of(at_.ready(), [&](Task place) {
      const Task task = at_.task_at(place);
      return fits(task) && pay() && climb(task);
    });
    if (!climbed) return;
  }
}

std::vector<Task> DownSetSearch::children() const {
  std::vector<std::pair<std::int64_t, Task>> ranked;
  for (const Task place : at_.ready()) {
    const Task task = at_.task_at(place);
    if (fits(task)) ranked.emplace_back(options_.least_change_first ? at_.change(task) : 0, place);
  }
  std::ranges::sort(ranked);
  std::vector<Task> tasks;
  for (const auto& [change, place] : ranked) tasks.push_back(at_.task_at(place));
  return tasks;
}

OrderSearchResult DownSetSearch::search() {
  if (at_.held() > budget_) return {Fits::no, {}};
  std::vector<Branch> branches;
  std::size_t begin = 0;
  while (true) {
    // A new set has been reached, whose last choice was made after `begin` tasks.
    move_without_choice();
    if (at_.done()) return {Fits::yes, at_.order()};
    if (!pay()) return {Fits::unknown, {}};
    if (failed_.insert(key_).second) {
      branches.push_back({begin, at_.num_run(), children()});
    } else {
      undo_to(begin);
    }
    while (!branches.empty() && branches.back().next == branches.back().children.size()) {
      undo_to(branches.back().begin);
      branches.pop_back();
    }
    if (branches.empty()) return {Fits::no, {}};
    Branch& branch = branches.back();
    undo_to(branch.end);
    begin = branch.end;
    run(branch.children[branch.next++]);
  }
}

}  // namespace

OrderSearchResult search_order(const Tasks& tasks, const Reachability& reachability, std::int64_t budget,
                               const OrderSearchOptions& options, Work& work) {
  return DownSetSearch(tasks, reachability, budget, options, work).search();
}

}  // namespace lowtide
