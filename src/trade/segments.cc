#include "trade/segments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "trade/stages.h"

namespace lowtide {
namespace {

constexpr std::size_t kAround = 40;   // ops, among which a boundary is a narrowest place
constexpr std::size_t kTogether = 4;  // segments that an option may span
constexpr std::size_t kLevels = 600;  // of bytes that stay

constexpr double kGolden = 0.6180339887;  // multiples of it are spread evenly, without their whole parts

// Costs as parts of what the step costs: small numbers, of which several are added at once.
using Cost = std::int32_t;
constexpr double kWhole = 1 << 28;
constexpr Cost kImpossible = 1 << 30;

bool is_better(const auto& a, const auto& b) {
  return a.cost <= b.cost && a.stays <= b.stays && a.most <= b.most;
}

}  // namespace

SegmentProgram::SegmentProgram(const Reruns& reruns, std::span<const Choice> library, Position least_ops, Work& work)
    : r_(reruns),
      evaluation_(reruns),
      bounds_(narrow_places(reruns, {least_ops, kAround})),
      last_early_(last_early_uses(reruns)),
      scale_(kWhole / static_cast<double>(std::max<std::int64_t>(reruns.total_cost, 1))) {
  find_segments();
  find_options(library, work);
}

void SegmentProgram::find_segments() {
  const auto segment_at = [&](Position p) {
    return static_cast<std::uint32_t>(std::ranges::upper_bound(bounds_, p) - bounds_.begin() - 1);
  };
  const auto last = static_cast<std::uint32_t>(num_segments() - 1);
  segment_of_item_.assign(r_.num_items(), last);
  std::vector<bool> is_large(r_.num_items());
  candidates_.resize(num_segments());
  for (Position p = 0; p < r_.turn; ++p) {
    for (const Item item : r_.makes[p]) segment_of_item_[item] = segment_at(p);
  }
  std::vector<std::int64_t> stays(num_segments());
  for (const Item item : r_.candidates) {
    is_large[item] = true;
    candidates_[segment_of_item_[item]].push_back(item);
  }
  for (Item item = 0; item < r_.num_items(); ++item) {
    if (r_.is_early(item) && r_.used_late[item]) stays[segment_of_item_[item]] += r_.size[item];
  }
  stays_before_.assign(num_segments() + 1, 0);
  for (std::size_t s = 0; s < num_segments(); ++s) stays_before_[s + 1] = stays_before_[s] + stays[s];

  segment_of_late_op_.assign(r_.num_ops(), last);
  std::uint32_t reached = last;
  for (Position p = r_.turn; p < r_.num_ops(); ++p) {
    for (const Item item : r_.takes[p]) {
      if (!r_.is_early(item) || !is_large[item]) continue;
      // What crosses a boundary is used by the segment behind it.
      reached = std::min(reached, std::min(last, segment_at(last_early_[item])));
    }
    segment_of_late_op_[p] = reached;
  }
}

void SegmentProgram::find_options(std::span<const Choice> library, Work& work) {
  options_.resize(num_segments());
  for (std::size_t first = 0; first < num_segments(); ++first) {
    for (std::size_t last = first + 1; last <= std::min(first + kTogether, num_segments()); ++last) {
      options_[first].push_back(options_of(first, last, library, work));
    }
  }
}

EvaluatedPart SegmentProgram::part_of(std::size_t first, std::size_t last, std::span<const Item> items) const {
  const auto late = segment_of_late_op_.begin() + r_.turn;
  const auto comes_at = [&](std::size_t segment) {  // the first late op of it or of one before it
    const auto found = std::ranges::lower_bound(late, segment_of_late_op_.end(), segment, std::ranges::greater{});
    return static_cast<Position>(found - segment_of_late_op_.begin());
  };
  EvaluatedPart part{.early_begin = bounds_[first], .early_end = bounds_[last]};
  part.from = part.late_begin = comes_at(last - 1);
  part.until = part.late_end = first > 0 ? comes_at(first - 1) : static_cast<Position>(r_.num_ops());
  for (const Item item : items) {
    const Position use = evaluation_.first_late_uses()[item];
    if (use == r_.num_ops()) continue;
    part.from = std::min(part.from, use);
    part.until = std::max(part.until, use + 1);
  }
  return part;
}

std::vector<SegmentProgram::Option> SegmentProgram::options_of(std::size_t first, std::size_t last,
                                                               std::span<const Choice> library, Work& work) {
  std::vector<Item> items;
  for (std::size_t s = first; s < last; ++s) items.insert(items.end(), candidates_[s].begin(), candidates_[s].end());
  const EvaluatedPart part = part_of(first, last, items);
  const auto crosses = [&](Item item, std::size_t segment) {
    return segment_of_item_[item] < segment && last_early_[item] >= bounds_[segment] && r_.used_late[item];
  };
  const Choice kept = keep_all(r_);
  std::vector<Option> options;
  std::set<std::vector<Fate>> known;
  std::vector<Fate> fates;
  // Where all that crosses a boundary inside stays, two shorter options are the same.
  const auto is_of_shorter = [&](const std::vector<Fate>& wanted) {
    for (std::size_t s = first + 1; s < last; ++s) {
      bool stays = true;
      for (std::size_t i = 0; i < items.size(); ++i) stays &= wanted[i] == Fate::stays || !crosses(items[i], s);
      if (stays) return true;
    }
    return false;
  };
  for (const Choice& wanted : library) {
    fates.clear();
    for (const Item item : items) {
      fates.push_back(last < num_segments() && crosses(item, last) ? Fate::stays : wanted[item]);
    }
    if (!known.insert(fates).second || is_of_shorter(fates)) continue;
    Choice choice = kept;
    for (std::size_t i = 0; i < items.size(); ++i) choice[items[i]] = fates[i];
    if (!work.spend(evaluation_.steps_for(part))) break;
    const Outcome outcome = evaluation_.of(part, choice);
    Option option;
    option.cost = outcome.cost;
    option.most = std::max<std::int64_t>(0, outcome.peak - stays_before_[first]);
    option.stays = stays_before_[last] - stays_before_[first];
    for (const Item item : items) {
      const bool stays = choice[item] == Fate::stays;
      if (r_.used_late[item] && !stays) option.stays -= r_.size[item];
      if (!r_.used_late[item] && stays) option.stays += r_.size[item];
      (stays ? option.kept : option.dropped).push_back(item);
    }
    const auto is_beaten = [&](const Option& other) { return is_better(other, option); };
    if (std::ranges::any_of(options, is_beaten)) continue;
    std::erase_if(options, [&](const Option& other) { return is_better(option, other); });
    options.push_back(std::move(option));
  }
  return options;
}

std::optional<Choice> SegmentProgram::cheapest_within(std::int64_t budget, Work& work) const {
  struct Step {
    const Option* option;
    std::size_t from;   // the first segment
    std::size_t after;  // the segment behind the last
    std::size_t levels;
  };
  const double unit = static_cast<double>(std::max<std::int64_t>(budget, 1)) / static_cast<double>(kLevels);
  const std::size_t width = kLevels + 1;
  std::vector<Step> steps;
  std::vector<Cost> least((num_segments() + 1) * width, kImpossible);
  std::vector<std::uint32_t> last(least.size());  // the step that leads there
  least[0] = 0;
  for (std::size_t s = 0; s < num_segments(); ++s) {
    // Up or down from segment to segment, so that the errors of layers that are alike cancel out.
    const double turns = kGolden * static_cast<double>(s);
    const double rounding = turns - std::floor(turns);
    for (std::size_t together = 0; together < options_[s].size(); ++together) {
      for (const Option& option : options_[s][together]) {
        const auto more = static_cast<std::int64_t>(static_cast<double>(option.stays) / unit + rounding);
        const auto levels = static_cast<std::size_t>(std::max<std::int64_t>(more, 0));
        if (option.most > budget || levels >= width) continue;
        const auto room = static_cast<std::size_t>(static_cast<double>(budget - option.most) / unit);
        const std::size_t count = std::min(room + 1, width - levels);
        if (!work.spend(count / 3 + 16)) return std::nullopt;
        const auto cost = static_cast<Cost>(static_cast<double>(option.cost) * scale_);
        const auto number = static_cast<std::uint32_t>(steps.size());
        steps.push_back({&option, s, s + together + 1, levels});
        const Cost* from = &least[s * width];
        Cost* to = &least[steps.back().after * width + levels];
        std::uint32_t* by = &last[steps.back().after * width + levels];
        for (std::size_t level = 0; level < count; ++level) {
          const Cost sum = from[level] + cost;
          by[level] = sum < to[level] ? number : by[level];
          to[level] = std::min(sum, to[level]);
        }
      }
    }
  }
  const auto end = least.begin() + static_cast<std::ptrdiff_t>(num_segments() * width);
  const auto best = std::min_element(end, least.end());
  if (*best >= kImpossible) return std::nullopt;
  Choice choice = keep_all(r_);
  auto level = static_cast<std::size_t>(best - end);
  for (std::size_t s = num_segments(); s > 0;) {
    const Step& step = steps[last[s * width + level]];
    for (const Item item : step.option->dropped) choice[item] = Fate::dropped;
    for (const Item item : step.option->kept) choice[item] = Fate::stays;
    level -= step.levels;
    s = step.from;
  }
  return choice;
}

}  // namespace lowtide
