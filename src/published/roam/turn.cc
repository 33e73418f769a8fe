#include "published/roam/turn.h"

#include <algorithm>
#include <numeric>

namespace lowtide {

Turn find_turn(const Tasks& tasks, const UpdateBranches& updates, const Waists& waists) {
  Turn turn;
  std::vector<std::int64_t> held(waists.num_segments());  // from each segment to the next
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const Task maker = tasks.users[buffer].front();
    PassSpan span{waists.segment[maker], waists.segment[maker]};
    for (const Task user : tasks.users[buffer]) {
      if (waists.comes_along[maker] || updates.in_update[user]) continue;
      span.used = std::max(span.used, waists.segment[user]);
    }
    turn.spans.push_back(span);
    held[span.made] += tasks.size[buffer];
    held[span.used] -= tasks.size[buffer];
  }
  std::partial_sum(held.begin(), held.end(), held.begin());
  const auto most = std::ranges::max_element(held);
  if (*most > 0) turn.segment = static_cast<std::uint32_t>(most - held.begin());
  for (const PassSpan& span : turn.spans) {
    turn.activation.push_back(turn.segment && span.made <= *turn.segment && span.used > *turn.segment);
  }
  return turn;
}

}  // namespace lowtide
