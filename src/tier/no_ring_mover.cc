// Where there is no liburing.
#include "tier/mover.h"

namespace lowtide::tier {

std::unique_ptr<Mover> make_ring_mover(std::shared_ptr<Transfers> /*transfers*/, int /*depth*/) {
  return nullptr;
}

}  // namespace lowtide::tier
