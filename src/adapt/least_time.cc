#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "adapt/levels.h"
#include "adapt/selection.h"
#include "lowtide/adapt.h"

namespace lowtide {
namespace {

// Bytes freed by the blocks so far, in what time. `before` is the state that it comes from, `dropped` what was done
// with the block that follows it.
struct State {
  std::uint64_t freed;
  std::uint64_t time;
  std::uint32_t before;
  bool dropped;
};

// The blocks in an order in which those still to come in the backward pass are always the first ones: the reverse of
// the backward pass.
std::vector<std::uint32_t> rising(const BatchNeeds& needs) {
  if (!needs.backward.empty()) return {needs.backward.rbegin(), needs.backward.rend()};
  std::vector<std::uint32_t> order(needs.blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

// What has to be freed by the blocks before one, by what is done with it.
struct Demand {
  std::uint64_t kept;
  std::uint64_t dropped;
};
std::uint64_t over(Bytes level, Bytes budget) {
  return (level - budget).count();
}

class Search {
 public:
  // `known` is a choice within the budget, if there is one: only what is faster is looked for.
  Search(const BatchNeeds& needs, Bytes budget, const Selection& known)
      : needs_(needs),
        order_(rising(needs)),
        budget_(budget),
        known_(known),
        most_states_(std::max(kStates / std::max(needs.blocks.size(), std::size_t{1}), kFewestStates)) {}

  std::vector<bool> run() {
    std::vector<bool> dropped = known_.dropped;
    if (needs_.blocks.empty() || known_.peak > budget_) return dropped;
    at_turn_ = over(std::max(needs_.tail, needs_.turn), budget_);
    enough_ = most_demanded();
    find_prices();
    std::size_t begin = 0;
    states_.reserve(2 * kStates);
    states_.push_back({0, 0, 0, false});
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const std::size_t end = states_.size();
      advance(i, begin, end);
      begin = end;
      if (begin == states_.size()) return dropped;
    }
    // States are in order of bytes and of time alike: the first that frees enough at the turn is the fastest.
    std::size_t last = begin;
    while (last < states_.size() && states_[last].freed < at_turn_) ++last;
    if (last == states_.size()) return dropped;
    for (std::size_t i = order_.size(); i-- > 0;) {
      dropped[order_[i]] = states_[last].dropped;
      last = states_[last].before;
    }
    return dropped;
  }

 private:
  Demand demand(const BlockNeeds& block) const {
    return {std::max(over(block.forward_kept, budget_), over(block.backward_kept, budget_)),
            std::max(over(block.forward_dropped, budget_), over(block.backward_dropped, budget_))};
  }

  // Bytes beyond this are of no use to any block or at the turn.
  std::uint64_t most_demanded() const {
    std::uint64_t most = at_turn_;
    for (const BlockNeeds& block : needs_.blocks) {
      const Demand needed = demand(block);
      most = std::max(most, std::max(needed.kept, needed.dropped));
    }
    return most;
  }

  // The least time a byte from each block on: what is missing at the turn costs at least as much.
  void find_prices() {
    prices_.assign(order_.size() + 1, std::numeric_limits<double>::infinity());
    for (std::size_t i = order_.size(); i-- > 0;) {
      const BlockNeeds& block = needs_.blocks[order_[i]];
      const double freed = static_cast<double>(freed_by(block));
      const double price = freed > 0 ? static_cast<double>(block.again.count()) / freed : prices_[i + 1];
      prices_[i] = std::min(prices_[i + 1], price);
    }
  }

  // Both kinds of freed bytes count as the smaller: what a cache holds until the turn is found out by settle().
  static std::uint64_t freed_by(const BlockNeeds& block) {
    return std::min(block.freed_forward, block.freed_backward).count();
  }

  // Whether a state behind block i can lead to something faster than what is known.
  bool is_hopeful(std::uint64_t freed, std::uint64_t time, std::size_t i) const {
    const double missing = freed < at_turn_ ? static_cast<double>(at_turn_ - freed) : 0.0;
    const double more = missing > 0 ? missing * prices_[i + 1] : 0.0;
    return static_cast<double>(time) + more < static_cast<double>(known_.again.count());
  }

  // Appends the states after this block: two rising lines of states, merged; whoever frees no more than a faster one is
  // left out, and so is, of those that free nearly the same, the one that frees less.
  void advance(std::size_t i, std::size_t begin, std::size_t end) {
    const BlockNeeds& block = needs_.blocks[order_[i]];
    const Demand needed = demand(block);
    const std::uint64_t freed = freed_by(block);
    const std::uint64_t time = block.again.count();
    std::size_t kept = begin;
    while (kept < end && states_[kept].freed < needed.kept) ++kept;
    std::size_t dropped = begin;
    while (dropped < end && states_[dropped].freed < needed.dropped) ++dropped;
    merged_.clear();
    const auto add = [&](std::uint64_t so_far, std::uint64_t so_long, std::size_t before, bool drop) {
      if (!is_hopeful(so_far, so_long, i)) return;
      while (!merged_.empty() && merged_.back().time >= so_long && merged_.back().freed <= so_far) merged_.pop_back();
      if (!merged_.empty() && (so_far <= merged_.back().freed || so_long <= merged_.back().time)) return;
      merged_.push_back({so_far, so_long, static_cast<std::uint32_t>(before), drop});
    };
    while (kept < end || dropped < end) {
      if (dropped == end || (kept < end && states_[kept].time <= states_[dropped].time + time)) {
        add(states_[kept].freed, states_[kept].time, kept, false);
        ++kept;
      } else {
        add(std::min(states_[dropped].freed + freed, enough_), states_[dropped].time + time, dropped, true);
        ++dropped;
      }
    }
    thin_out();
    states_.insert(states_.end(), merged_.begin(), merged_.end());
  }

  // The states at both ends stay, the fastest and the one that frees the most, and of those between the one that frees
  // the most in each of equal steps.
  void thin_out() {
    if (merged_.size() <= most_states_) return;
    const std::uint64_t step = (merged_.back().freed - merged_.front().freed) / (most_states_ - 2) + 1;
    std::uint64_t border = merged_.front().freed + step;
    std::size_t out = 1;
    for (std::size_t i = 1; i < merged_.size(); ++i) {
      if (i + 1 < merged_.size() && merged_[i + 1].freed < border) continue;
      merged_[out++] = merged_[i];
      while (i + 1 < merged_.size() && border <= merged_[i + 1].freed) border += step;
    }
    merged_.resize(out);
  }

  const BatchNeeds& needs_;
  std::vector<std::uint32_t> order_;
  Bytes budget_;
  const Selection& known_;
  std::size_t most_states_;
  std::uint64_t at_turn_ = 0;
  std::uint64_t enough_ = 0;
  std::vector<double> prices_;
  std::vector<State> states_;
  std::vector<State> merged_;
};

// Drops more until the budget is kept: each time what lowers the peak the most.
void drop_more(const BatchNeeds& needs, Bytes budget, Selection& selection) {
  Levels levels(needs, selection.dropped);
  Bytes peak = selection.peak;
  while (peak > budget) {
    std::size_t best = levels.dropped().size();
    for (std::size_t i = 0; i < levels.dropped().size(); ++i) {
      if (levels.dropped()[i]) continue;
      const Bytes next = levels.peak_if_flipped(i);
      if (next >= peak) continue;
      peak = next;
      best = i;
    }
    if (best == levels.dropped().size()) break;
    levels.flip(best);
  }
  selection = selected(needs, levels.dropped());
}

// Keeps again what need not be dropped, that of the most time a byte first.
void keep_again(const BatchNeeds& needs, Bytes budget, Selection& selection) {
  std::vector<std::pair<double, std::size_t>> by_price;
  for (std::size_t i = 0; i < selection.dropped.size(); ++i) {
    const BlockNeeds& block = needs.blocks[i];
    const auto freed = static_cast<double>(std::max(block.freed_forward.count(), std::uint64_t{1}));
    if (selection.dropped[i]) by_price.emplace_back(-static_cast<double>(block.again.count()) / freed, i);
  }
  std::sort(by_price.begin(), by_price.end());
  Levels levels(needs, selection.dropped);
  Bytes peak = selection.peak;
  for (const auto& [price, i] : by_price) {
    const Bytes without = levels.peak_if_flipped(i);
    if (without > std::max(budget, peak)) continue;
    peak = without;
    levels.flip(i);
  }
  selection = selected(needs, levels.dropped());
}

bool is_plain(const BatchNeeds& needs) {
  for (std::size_t i = 0; i < needs.backward.size(); ++i) {
    if (needs.backward[i] != needs.backward.size() - 1 - i) return false;
  }
  return std::all_of(needs.blocks.begin(), needs.blocks.end(),
                     [](const BlockNeeds& block) { return block.freed_forward == block.freed_backward; });
}

}  // namespace

Selection least_time(const BatchNeeds& needs, Bytes budget) {
  Selection known = selected(needs, std::vector<bool>(needs.blocks.size(), true));
  keep_again(needs, budget, known);
  Selection found = selected(needs, Search(needs, budget, known).run());
  if (!is_plain(needs)) {
    drop_more(needs, budget, found);
    keep_again(needs, budget, found);
  }
  return is_better(known, found, budget) ? known : found;
}

}  // namespace lowtide
