// tier_file.h: a memory on disk, beside the arena: blocks are stored to it and loaded back while a step runs.
//
//   arena     |  a  |  b  |                  store(a)  ...  load(a)         asynchronous: a ticket to wait for
//                |     ^
//   file      |  slot  |  slot  |  home of w  |                              reserved in whole pages
//                                     |
//   process                       mapping = the memory of the tensor w       looked at outside of steps
//
// A slot is a range of the file with its room on the disk. A home is a slot that is mapped: the memory of a tensor that
// is in the arena only while a step needs it. What is written through the mapping is seen by later loads, and what is
// stored by whoever looks at the mapping.
//
// Loads are compared with the checksums of what was stored (see contents.h), so bytes are right or there is an error.
//
// Any thread may call. A process that is forked has copies of the homes and nothing else: there every call that would
// reach the file throws.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tier/faults.h"
#include "tier/mover.h"
#include "tier/nameless_file.h"
#include "tier/slots.h"
#include "tier/transfers.h"

namespace lowtide::tier {

enum class Way { best, io_uring, threads };

struct TierOptions {
  Way way = Way::best;  // io_uring where the system has it
  bool direct = true;   // past the page cache, where the file system can
  std::chrono::milliseconds patience = std::chrono::minutes(2);
  std::int64_t chunk_bytes = std::int64_t{1} << 20;  // a multiple of 4096
  int depth = 8;                                     // chunks at the disk at a time
};

class TierFile final : public NamelessFile, public std::enable_shared_from_this<TierFile> {
 public:
  // Throws FileError if no file can be made in `folder`, if that is memory (tmpfs), or if the kernel has no io_uring
  // and that was asked for.
  static std::shared_ptr<TierFile> open(const std::string& folder, const TierOptions& options = {});

  // Waits for transfers. If nothing moves for as long as the options allow, they are left to the system: their memory
  // must then stay for as long as the process does.
  ~TierFile() override;

  bool uses_ring() const { return uses_ring_; }
  bool is_direct() const { return direct_; }

  // -- slots ----------------------------------------------------------------------------------------------------------

  // Gives an offset, a multiple of a page. Throws FileError if the disk has no room.
  std::int64_t reserve(std::int64_t bytes);
  // As it was reserved, and no longer mapped. Waits for its transfers; where the disk is stuck, the slot is not used
  // again. What is there is lost.
  void release(std::int64_t offset, std::int64_t bytes);

  // -- homes ----------------------------------------------------------------------------------------------------------

  // A whole slot as memory. The file lives as long as that is mapped.
  std::byte* map(std::int64_t offset, std::int64_t bytes);
  void unmap(std::byte* mapping, std::int64_t offset, std::int64_t bytes);

  struct Place {
    std::shared_ptr<TierFile> file;
    std::int64_t offset;
  };
  // Of an address in a home.
  static std::optional<Place> find(const void* address);

  // Whether the process has looked at a part of a home, or written it, since it was last stored or forgotten.
  static bool is_touched(const void* address, std::int64_t bytes);

  // The memory behind a part of a home goes back to the system. Its bytes are in the file.
  static void forget_pages(void* address, std::int64_t bytes);

  // -- transfers ------------------------------------------------------------------------------------------------------

  // Memory must stay, and for a store keep its bytes, until the transfer is over; offsets are multiples of 4096. Where
  // memory is aligned to 4096 as well, I/O may be direct, and then a store takes up to the next multiple of that to the
  // file. A load writes exactly `bytes`.
  Ticket store(const void* from, std::int64_t offset, std::int64_t bytes);
  Ticket load(void* to, std::int64_t offset, std::int64_t bytes);

  // Throws FileError if the transfer failed: the system's error; EBADMSG where the bytes are not those that were
  // stored; ENODATA where an earlier store of them had failed; ETIMEDOUT where nothing has moved for as long as the
  // options allow. Then the transfer is still under way, and its memory has to stay.
  void wait(Ticket ticket);
  // For all that were issued: throws for the first of those that failed and were not waited for.
  void wait_all();

  // Whether no transfer is under way, not even one that a wait has given up.
  bool is_quiet() const { return transfers_->is_quiet(); }

  // For the transfers that are issued from now on; null for none.
  void set_faults(std::shared_ptr<Faults> faults);

 private:
  explicit TierFile(const std::string& folder);
  void start(const TierOptions& options);
  Ticket issue(const Transfer& transfer);
  void check_process() const;
  [[noreturn]] void fail(const Failure& failure) const;

  const int process_;
  bool direct_ = false;
  bool uses_ring_ = false;
  std::mutex slots_mutex_;
  Slots slots_;
  std::shared_ptr<Transfers> transfers_;
  std::unique_ptr<Mover> mover_;
};

}  // namespace lowtide::tier
