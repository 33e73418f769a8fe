#include "search/best_first.h"

#include <algorithm>
#include <compare>
#include <memory>
#include <queue>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "base/pareto.h"
#include "search/reschedule.h"

namespace lowtide {
namespace {

// Of work: about what it takes to look at a state, to change it in one way, and to follow one run of the result.
constexpr std::uint64_t kStepsAState = 20'000;
constexpr std::uint64_t kStepsAChange = 1'500;
constexpr std::uint64_t kStepsARun = 30;

// Of a front: each limit is so much of the one before, and so many are tried.
constexpr double kFall = 0.85;
constexpr std::uint64_t kLimits = 14;

// What states are compared by: less is better.
struct StateRank {
  double over = 0;   // the limited figure where it is above the limit, else 0
  double other = 0;  // the other

  auto operator<=>(const StateRank&) const = default;
};

class Aim {
 public:
  explicit Aim(const StateSearchOptions& options) : options_(options) {}

  // With the figures, or the limit, that many times as large.
  StateRank rank(const Figures& figures, double scale = 1.0, double leeway = 1.0) const {
    const auto peak = static_cast<double>(figures.peak) * scale, time = static_cast<double>(figures.time) * scale;
    const auto over = [&](double figure, std::int64_t limit) {
      return figure <= static_cast<double>(limit) * leeway ? 0.0 : figure;
    };
    if (options_.memory) return {over(peak, *options_.memory), time};
    if (options_.time) return {over(time, *options_.time), peak};
    return {peak, time};
  }

  bool is_tolerable(const Figures& figures, const Figures& best) const {
    return rank(figures, 1.0, options_.relaxed) <= rank(best, options_.relaxed, options_.relaxed);
  }

 private:
  const StateSearchOptions& options_;
};

// A state that waits: what it comes from, and what is changed about that.
struct WaitingState {
  StateRank rank;
  std::uint64_t number;  // those that were found first come first
  std::shared_ptr<const Sequence> from;
  Change change;

  bool operator<(const WaitingState& other) const {  // the highest is taken first
    return std::tie(other.rank, other.number) < std::tie(rank, number);
  }
};

// A state on a front.
struct Reached {
  std::int64_t cost;
  std::int64_t peak;
  Sequence sequence;
};

// What a thread needs for itself.
struct Lane {
  Lane(const Graph& graph, const Reruns& reruns) : sweep(reruns), reschedule(graph, reruns) {}

  SequenceSweep sweep;
  Reschedule reschedule;
};

class BestFirst {
 public:
  // What is met on the way is added to `front`, if there is one.
  BestFirst(const Graph& graph, const Reruns& reruns, Rules& rules, const StateSearchOptions& options, Work& work,
            std::vector<Reached>* front = nullptr)
      : options_(options), aim_(options), work_(work), rules_(rules), front_(front) {
    for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i) lanes_.emplace_back(graph, reruns);
  }

  void run(Sequence start) {
    best_ = std::move(start);
    figures_ = follow(best_, lanes_.front());
    known_.insert(graph_key(best_));
    note(best_, figures_);
    expand(std::make_shared<const Sequence>(best_));
    while (!waiting_.empty() && work_.left() > 0) {
      const WaitingState next = waiting_.top();
      waiting_.pop();
      Sequence sequence = *rules_.apply(*next.from, next.change);
      if (options_.reorders) lanes_.front().reschedule.lower(sequence);
      expand(std::make_shared<const Sequence>(std::move(sequence)));
    }
  }

  const Sequence& best() const { return best_; }
  const Figures& figures() const { return figures_; }
  const StateSearchCounts& counts() const { return counts_; }

 private:
  struct Child {
    Change change;
    std::optional<Sequence> sequence;
    std::uint64_t key = 0;
    bool is_new = false;
    Figures figures;
  };

  // One after the other on each thread, so that results do not depend on how many there are.
  template <typename Each>
  void for_all(std::vector<Child>& children, const Each& each) {
    const std::size_t lanes = children.size() < 2 * lanes_.size() ? 1 : lanes_.size();
    in_parallel(lanes, [&](std::size_t lane) {
      for (std::size_t i = lane; i < children.size(); i += lanes) each(children[i], lanes_[lane]);
    });
  }

  Figures follow(Sequence& sequence, Lane& lane) const {
    return options_.reorders ? lane.reschedule.lower(sequence) : lane.sweep.of(sequence);
  }

  void note(const Sequence& sequence, const Figures& figures) {
    if (front_ == nullptr || is_reached(*front_, figures.time, figures.peak)) return;
    add_point(*front_, {figures.time, figures.peak, sequence});
  }

  void expand(const std::shared_ptr<const Sequence>& from) {
    ++counts_.popped;
    std::vector<Child> children;
    for (Change& change : rules_.changes(*from)) children.push_back({std::move(change), {}, 0, false, {}});
    for_all(children, [&](Child& child, Lane&) {
      child.sequence = rules_.apply(*from, child.change);
      if (child.sequence) child.key = graph_key(*child.sequence);
    });
    for (Child& child : children) {
      if (!child.sequence) continue;
      ++counts_.made;
      child.is_new = known_.insert(child.key).second;
    }
    for_all(children, [&](Child& child, Lane& lane) {
      if (child.is_new) child.figures = follow(*child.sequence, lane);
    });
    std::uint64_t runs = from->runs.size();
    for (Child& child : children) {
      if (!child.sequence) continue;
      runs += child.is_new ? 2 * from->runs.size() : from->runs.size() / 4;
      if (!child.is_new) continue;
      ++counts_.distinct;
      note(*child.sequence, child.figures);
      if (aim_.rank(child.figures) < aim_.rank(figures_)) {
        best_ = *child.sequence;
        figures_ = child.figures;
      }
      if (aim_.is_tolerable(child.figures, figures_)) {
        waiting_.push({aim_.rank(child.figures), counts_.distinct, from, child.change});
      }
    }
    const std::uint64_t steps = kStepsAState + children.size() * kStepsAChange + runs * kStepsARun;
    if (!work_.spend(steps)) work_.spend(work_.left());
  }

  const StateSearchOptions& options_;
  Aim aim_;
  Work& work_;
  Rules& rules_;
  std::vector<Reached>* front_;
  std::vector<Lane> lanes_;  // one for each thread
  std::unordered_set<std::uint64_t> known_;
  std::priority_queue<WaitingState> waiting_;
  Sequence best_;
  Figures figures_;
  StateSearchCounts counts_;
};

}  // namespace

StateSearchResult search_best_first(const Graph& graph, std::span<const OpId> order, const StateSearchOptions& options,
                                    Work& work) {
  const Reruns reruns = to_reruns(graph, order);
  Rules rules(graph, reruns, options.exact, options.rules);
  BestFirst search(graph, reruns, rules, options, work);
  search.run({each_once(reruns), {}});
  return {splitting_of(reruns, search.best()), search.figures(), search.counts()};
}

std::vector<FoundState> search_front(const Graph& graph, std::span<const OpId> order, const StateSearchOptions& options,
                                     Work& work) {
  const Reruns reruns = to_reruns(graph, order);
  Rules rules(graph, reruns, options.exact, options.rules);
  StateSearchOptions aimed = options;
  aimed.time.reset();
  std::vector<Reached> front;
  Sequence last{each_once(reruns), {}};
  auto limit = static_cast<double>(reruns.peak);
  for (std::uint64_t left = kLimits; left > 0; --left) {
    limit *= kFall;
    aimed.memory = static_cast<std::int64_t>(limit);
    last = with_part(work, work.left() / left, [&](Work& part) {
      BestFirst search(graph, reruns, rules, aimed, part, &front);
      search.run(last);
      return search.best();
    });
  }
  std::vector<FoundState> found;
  for (const Reached& state : front) found.push_back({state.cost, state.peak, splitting_of(reruns, state.sequence)});
  return found;
}

}  // namespace lowtide
