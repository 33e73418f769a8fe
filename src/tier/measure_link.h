// measure_link.h: how fast a disk is, as a plan wants to know.
#pragma once

#include <string>

#include "lowtide/link.h"

namespace lowtide::tier {

// Stores and loads some 64 MiB a few times, for about a second, and takes medians. Asked again for a folder on the same
// disk, the process gives the same answer at once. Throws FileError where TierFile::open does, and if there is no room.
Link measure_link(const std::string& folder);

}  // namespace lowtide::tier
