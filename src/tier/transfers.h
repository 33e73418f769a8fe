// transfers.h: the copies between memory and a file that are under way, and which part of them is to be moved next.
//
// Transfers are cut into chunks, which are given out in the order of issue, so that several are at the disk at a time:
//
//   issued     store 0              load 1        store 2
//              |chunk|chunk|chunk|  |chunk|chunk| |chunk|
//   at disk          |=====|=====|  |=====|                    done: one chunk; given out: three
//
// A transfer that shares bytes of the file or of memory with an earlier one, and one of them writes these, begins when
// that has ended. Any thread may call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "tier/chunk.h"
#include "tier/contents.h"
#include "tier/faults.h"

namespace lowtide::tier {

using Ticket = std::uint64_t;

struct Transfer {
  Direction direction;
  std::byte* memory;
  std::int64_t offset;
  std::int64_t bytes;
};

// Why a transfer ended otherwise than well.
struct Failure {
  enum class Reason {
    system,    // said so: `error`
    checksum,  // what was loaded is not what was stored
    lost,      // an earlier store to these bytes had failed
    late,      // nothing has moved for too long; it is still under way
  };
  Transfer transfer;
  Reason reason;
  int error;
};

class Transfers {
 public:
  struct Limits {
    std::int64_t chunk_bytes;
    std::chrono::milliseconds patience;  // how long nothing may move before a wait gives up
  };

  Transfers(Descriptors files, Limits limits);

  const Descriptors& files() const { return files_; }

  // -- for whoever wants bytes moved ----------------------------------------------------------------------------------

  Ticket issue(const Transfer& transfer);

  // Waits until it is over; none if it ended well. A failure is told once.
  std::optional<Failure> wait(Ticket ticket);
  // Until all are over; the first failure that was not told.
  std::optional<Failure> wait_all();
  // Until none with these bytes of the file is under way; false if that takes too long.
  bool wait_for(std::int64_t offset, std::int64_t bytes);

  // Whether none is under way, waited for or not.
  bool is_quiet();

  void set_faults(std::shared_ptr<Faults> faults);

  // What is known of the file, with the lock that it wants.
  template <typename Action>
  auto with_contents(Action action) {
    const std::lock_guard lock(mutex_);
    return action(contents_);
  }

  // -- for whoever moves them -----------------------------------------------------------------------------------------

  // None if there is nothing to give out now.
  std::optional<Chunk> next();
  // Waits for one; none after close().
  std::optional<Chunk> wait_for_next();
  void finish(const Chunk& chunk);

  void close();
  bool is_closed();

 private:
  struct Pending {
    Transfer transfer;
    bool direct;
    Fault fault;
    bool begun = false;
    std::int64_t given_out = 0;  // bytes
    int at_disk = 0;             // chunks
    int error = 0;
    Contents::Checksums checksums = {};
  };
  using Queue = std::map<Ticket, Pending>;

  std::optional<Chunk> take_next();
  bool has_to_wait(Queue::const_iterator pending) const;
  bool begin(Pending& pending);
  Chunk cut(Ticket ticket, Pending& pending);
  void end(Queue::iterator pending);
  std::optional<Failure::Reason> outcome(Pending& pending);
  template <typename Over>
  bool wait_until(std::unique_lock<std::mutex>& lock, Over over);

  const Descriptors files_;
  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable work_;   // there may be a chunk to give out
  std::condition_variable moved_;  // a transfer is over
  Contents contents_;
  Queue queue_;                         // by issue
  std::map<Ticket, Failure> failures_;  // not yet told
  Ticket last_ticket_ = 0;
  std::chrono::steady_clock::time_point last_move_;
  std::shared_ptr<Faults> faults_;
  bool closed_ = false;
};

}  // namespace lowtide::tier
