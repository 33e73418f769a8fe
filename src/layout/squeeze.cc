#include "layout/squeeze.h"

#include <algorithm>
#include <span>

#include "base/lanes.h"
#include "layout/core_first.h"

namespace lowtide {
namespace {

// One way to look for a packing: none is always best.
struct Attempt {
  double share;  // of the bound that makes a section part of the core
  Style style = Style::in_turn;
  bool prove = false;  // rather to end than to be lucky
  bool early = false;  // lucky soon or never: takes part in the first rounds only
};
constexpr Attempt kAttempts[] = {{.share = 0.0, .early = true},
                                 {.share = 0.99},
                                 {.share = 0.0, .style = Style::level},
                                 {.share = 0.95, .style = Style::widest},
                                 {.share = 0.90, .early = true}};
constexpr Attempt kAttemptsToProve[] = {{.share = 0.0},
                                        {.share = 0.99},
                                        {.share = 0.0, .style = Style::level},
                                        {.share = 0.99, .prove = true},
                                        {.share = 0.0, .prove = true}};
// A large problem is never searched as a whole, and one beyond all that has work for little more than one attempt.
constexpr std::size_t kSmall = 2'500;
constexpr Attempt kAttemptsIfMany[] = {{0.95}, {0.90}, {0.99}, {0.80}};
constexpr std::size_t kMany = 200'000;
constexpr Attempt kAttemptsIfVeryMany[] = {{0.90}};

std::span<const Attempt> attempts_for(const Pieces& problem, bool prove) {
  if (problem.pieces.size() > kMany) return kAttemptsIfVeryMany;
  if (problem.pieces.size() > kSmall) return kAttemptsIfMany;
  return prove ? std::span<const Attempt>(kAttemptsToProve) : std::span<const Attempt>(kAttempts);
}

class Squeeze {
 public:
  Squeeze(const Pieces& problem, std::size_t threads, Packing& packing)
      : problem_(problem), threads_(threads), packing_(packing) {}

  // Every attempt with little work, then every one with more: luck comes early or late, and nobody knows to whom.
  Verdict try_below(Units capacity, bool prove, Work& work) {
    const std::span<const Attempt> all = attempts_for(problem_, prove);
    std::vector<Attempt> attempts(all.begin(), all.end());
    std::vector<SearchResult> results(attempts.size());
    std::uint64_t steps = kFirstSteps + kFirstStepsAPiece * problem_.pieces.size();
    for (int round = 0;; ++round) {
      if (round == kEarlyRounds) std::erase_if(attempts, [](const Attempt& attempt) { return attempt.early; });
      const bool last = steps >= work.left() / attempts.size();
      const std::optional<std::size_t> decided =
          first_that_decides(attempts.size(), threads_, steps, work, [&](std::size_t i, Work& part) {
            results[i] = pack_core_first(problem_, capacity, attempts[i].share,
                                         {seed_ + i, attempts[i].style, attempts[i].prove}, part);
            return results[i].verdict != Verdict::gave_up;
          });
      seed_ += attempts.size();
      if (decided) return take(results[*decided], attempts[*decided], capacity);
      if (last) return Verdict::gave_up;
      steps *= kMoreSteps;
    }
  }

 private:
  static constexpr std::uint64_t kFirstSteps = 20'000'000;
  static constexpr std::uint64_t kFirstStepsAPiece = 10'000;
  static constexpr std::uint64_t kMoreSteps = 2;
  static constexpr int kEarlyRounds = 3;

  Verdict take(SearchResult& result, const Attempt& attempt, Units capacity) {
    if (result.verdict == Verdict::packed) {
      packing_.offsets = std::move(result.offsets);
      packing_.top = top_of(problem_, packing_.offsets);
      packing_.algorithm = attempt.share == 0 ? "exact" : "core_first";
    } else {
      packing_.bound = {capacity + 1, std::move(result.conflict)};
    }
    return result.verdict;
  }

  const Pieces& problem_;
  const std::size_t threads_;
  Packing& packing_;
  std::uint64_t seed_ = 0;
};

}  // namespace

// First at the lowest capacity that may do. Then, with what is left, for ever better packings or a proof that there is
// none: between what is proven and what is reached, half way each time. Where only one capacity is good enough, there
// is nothing between.
void squeeze(const Pieces& problem, Units enough, std::size_t threads, Packing& packing, Work& work) {
  const auto lowest = [&] { return std::max(packing.bound.height, enough); };
  if (packing.top <= lowest()) return;
  Squeeze search(problem, threads, packing);
  const auto try_below = [&](Units capacity, std::uint64_t steps, bool prove) {
    return with_part(work, steps, [&](Work& part) { return search.try_below(capacity, prove, part); });
  };
  const bool all_or_nothing = enough >= packing.bound.height;
  Units least = lowest();
  const Verdict first = try_below(least, work.left() / 8 * (all_or_nothing ? 7 : 6), false);
  if (first == Verdict::gave_up) ++least;
  const bool between = first != Verdict::gave_up || !all_or_nothing;
  while (between && packing.top > std::max(least, lowest())) {
    least = std::max(least, lowest());
    const Units capacity = least + (packing.top - 1 - least) / 2;
    if (try_below(capacity, work.left() / 4, capacity == lowest()) == Verdict::gave_up) least = capacity + 1;
  }
  if (packing.top > lowest()) try_below(lowest(), work.left(), true);
}

}  // namespace lowtide
