// advice.h: what a user can do about a peak.
#pragma once

#include <span>
#include <vector>

#include "explain/groups.h"
#include "explain/scene.h"
#include "lowtide/explain.h"

namespace lowtide {

// Of `explanation`, all but its advice is there; `groups` are all groups, and the first of them have gains. What gains
// less than a hundredth is left out. The largest gain first; what every step has left to it comes last.
std::vector<Advice> advice_on(const Scene& scene, std::span<const Group> groups, const Explanation& explanation);

}  // namespace lowtide
