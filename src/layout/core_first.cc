#include "layout/core_first.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "layout/placed.h"

namespace lowtide {
namespace {

class GrowingCore {
 public:
  GrowingCore(const Pieces& problem, Units capacity, double share)
      : problem_(problem), capacity_(capacity), placed_(problem), joined_(problem.pieces.size(), kLoose) {
    const auto full = static_cast<Units>(share * static_cast<double>(problem.highest_load()));
    std::vector<int> full_before(problem.load.size() + 1);  // by section: how many before it are full
    for (std::size_t s = 0; s < problem.load.size(); ++s) {
      full_before[s + 1] = full_before[s] + (problem.load[s] >= full ? 1 : 0);
    }
    const auto before = [&](int section) { return full_before[static_cast<std::size_t>(section)]; };
    for (std::uint32_t p = 0; p < problem.pieces.size(); ++p) {
      const Piece& piece = problem.pieces[p];
      if (before(piece.end) > before(piece.begin) || piece.fixed >= 0) {
        joined_[p] = 0;
      } else {
        loose_.push_back(p);
      }
    }
  }

  SearchResult run(const SearchOptions& options, Work& work) {
    SearchResult result;
    for (int round = 0;; ++round) {
      SearchOptions other = options;
      other.seed += static_cast<std::uint64_t>(round);
      if (!pack_changed_parts(round, other, result, work)) return result;
      if (!insert_loose(round + 1, work)) {
        result.verdict = Verdict::gave_up;
        return result;
      }
      if (!grown_) {
        result.offsets = placed_.offsets();
        return result;
      }
    }
  }

 private:
  static constexpr int kLoose = -1;
  static constexpr int kMostOrders = 10;               // of inserting what is loose
  static constexpr std::uint64_t kShareOfOrders = 10;  // of the work: one part in so many for other orders
  static constexpr Units kMoreUrgent = 10;             // a piece without a gap counts as larger by one part in so many

  // Packs the parts of the core that a piece joined in this round; answers whether all of them could be packed.
  bool pack_changed_parts(int round, const SearchOptions& options, SearchResult& result, Work& work) {
    work.spend(std::min<std::uint64_t>(problem_.pieces.size(), work.left()));
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t p = 0; p < problem_.pieces.size(); ++p) {
      if (joined_[p] != kLoose) chosen.push_back(p);
    }
    const Pieces core = subset(problem_, chosen);
    result.verdict = Verdict::packed;
    for (std::vector<std::uint32_t>& part : parts_of(core)) {
      for (std::uint32_t& p : part) p = core.pieces[p].item;
      if (std::ranges::none_of(part, [&](std::uint32_t p) { return joined_[p] == round; })) continue;
      const Pieces own = subset(problem_, part);
      SearchResult found = search_packing(own, capacity_, options, work);
      result.nodes += found.nodes;
      result.verdict = found.verdict;
      for (const std::uint32_t p : found.conflict) result.conflict.push_back(own.pieces[p].item);
      if (found.verdict != Verdict::packed) return false;
      make_room(part);
      for (std::size_t p = 0; p < own.pieces.size(); ++p) placed_.add(own.pieces[p].item, found.offsets[p]);
    }
    return true;
  }

  // Takes out everything over the sections of this part.
  void make_room(std::span<const std::uint32_t> part) {
    int end = 0;
    for (const std::uint32_t p : part) end = std::max(end, problem_.pieces[p].end);
    std::vector<std::uint32_t> out;
    placed_.for_each_over(problem_.pieces[part.front()].begin, end, [&](std::uint32_t p) {
      out.push_back(p);
      if (joined_[p] == kLoose) loose_.push_back(p);
    });
    placed_.remove(out);
  }

  // Puts loose pieces into gaps, and those that find none in the best of a few orders into the core; answers false if
  // there is no work left.
  bool insert_loose(int next_round, Work& work) {
    std::vector<std::uint32_t> order = std::exchange(loose_, {});
    std::vector<std::uint32_t> best_order;
    std::vector<std::uint32_t> without;  // those that find no gap
    std::size_t fewest = 0;
    std::vector<Units> urgency(problem_.pieces.size());
    for (const std::uint32_t p : order) urgency[p] = problem_.pieces[p].size;
    const std::uint64_t enough_left = work.left() - work.left() / kShareOfOrders;
    for (int tried = 1;; ++tried) {
      std::ranges::sort(order, {}, [&](std::uint32_t p) { return std::pair(-urgency[p], p); });
      if (!insert(order, without, work)) return false;
      if (tried == 1 || without.size() < fewest) {
        fewest = without.size();
        best_order = order;
      }
      if (without.empty() || tried == kMostOrders || work.left() < enough_left) break;
      for (const std::uint32_t p : without) urgency[p] += capacity_ / kMoreUrgent;
      take_out(order);
    }
    if (without.size() > fewest) {
      take_out(order);
      if (!insert(best_order, without, work)) return false;
    }
    for (const std::uint32_t p : without) joined_[p] = next_round;
    grown_ = !without.empty();
    return true;
  }

  bool insert(std::span<const std::uint32_t> order, std::vector<std::uint32_t>& without, Work& work) {
    without.clear();
    for (const std::uint32_t p : order) {
      const std::optional<Units> offset = placed_.find_gap(p, capacity_, Placed::Fit::lowest);
      if (offset) {
        placed_.add(p, *offset);
      } else {
        without.push_back(p);
      }
      if (!work.spend(placed_.steps() - std::exchange(counted_, placed_.steps()))) return false;
    }
    return true;
  }

  void take_out(std::span<const std::uint32_t> order) {
    std::vector<std::uint32_t> out;
    std::ranges::copy_if(order, std::back_inserter(out), [&](std::uint32_t p) { return placed_.contains(p); });
    placed_.remove(out);
  }

  const Pieces& problem_;
  const Units capacity_;
  Placed placed_;
  std::vector<int> joined_;           // by piece: the round in which it joined the core, or kLoose
  std::vector<std::uint32_t> loose_;  // those without a place
  bool grown_ = false;
  std::uint64_t counted_ = 0;  // steps of placed_ that are paid for
};

}  // namespace

SearchResult pack_core_first(const Pieces& problem, Units capacity, double share, const SearchOptions& options,
                             Work& work) {
  return GrowingCore(problem, capacity, share).run(options, work);
}

}  // namespace lowtide
