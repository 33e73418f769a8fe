// faults.h: what goes wrong with a disk, on purpose, for tests.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace lowtide::tier {

enum class Fault {
  none,
  short_transfer,  // the system moves fewer bytes than it was asked to
  io_error,        // EIO
  no_space,        // ENOSPC
  stuck,           // nothing happens until release()
  flipped_byte,    // on the disk: after a store, before a load
};

// A fault is that of a transfer's last chunk. Any thread may call.
class Faults {
 public:
  // By the number of the transfer, from 0 for the first that is issued with these faults.
  explicit Faults(std::map<std::uint64_t, Fault> faults);

  Fault of_next_transfer();
  void wait_for_release();
  void release();

 private:
  std::map<std::uint64_t, Fault> faults_;
  std::mutex mutex_;
  std::condition_variable released_changed_;
  std::uint64_t issued_ = 0;
  bool released_ = false;
};

}  // namespace lowtide::tier
