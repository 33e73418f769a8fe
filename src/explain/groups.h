// groups.h: who is alive at the peak, with those that are alike put together.
#pragma once

#include <vector>

#include "explain/scene.h"
#include "lowtide/explain.h"

namespace lowtide {

struct Group {
  Holder holder;                  // without its gains
  std::vector<BufferId> members;  // largest first; none for a workspace
};

// Largest first.
std::vector<Group> groups_at_peak(const Scene& scene);

// The op of a step, as explanations show it.
OpPlace place_of(const Scene& scene, StepIndex step);

}  // namespace lowtide
