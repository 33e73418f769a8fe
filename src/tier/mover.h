// mover.h: what carries the chunks of transfers between memory and the file.
//
//   io_uring   one thread, which hands chunks to the kernel and takes what has ended    ring_mover.cc
//   threads    several, each of which waits in the system for its chunk                 thread_mover.cc
//
// A mover begins at once. It uses nothing that the transfers do not keep alive.
#pragma once

#include <memory>

#include "tier/transfers.h"

namespace lowtide::tier {

class Mover {
 public:
  virtual ~Mover() = default;

  // A transfer was issued.
  virtual void wake() = 0;

  // The transfers are closed. If they are all over, waits until the mover has ended; otherwise it is left to itself,
  // with all that it uses, until the disk answers.
  virtual void end(bool all_over) = 0;
};

// `depth`: chunks that are at the disk at a time.
std::unique_ptr<Mover> make_thread_mover(std::shared_ptr<Transfers> transfers, int depth);

// Null where this was built without io_uring, or the kernel refuses it.
std::unique_ptr<Mover> make_ring_mover(std::shared_ptr<Transfers> transfers, int depth);

}  // namespace lowtide::tier
