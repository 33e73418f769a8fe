// contents.h: what is known of the bytes in a file, so that a load never gives wrong ones in silence.
//
//   offset  0          1M         2M         3M
//           | stored   | lost     | unknown  |
//
//   stored    a store ended well: its checksums are known, one for each chunk
//   lost      a store has begun and not ended well: nothing can be loaded from there
//   unknown   all the rest
//
// A load with the bounds of a store is compared with its checksums. A home is a part of the file that the process has
// mapped: anybody may write there without a word. Where somebody may have, what is loaded is taken for right, and its
// checksums are the home's from then on. That somebody has written shows in two ways. The mapping has pages, and they
// are what was loaded; or, since the system may have taken those away again, the file's time of change is not that of
// our own last change.
//
// Not thread-safe: transfers.h has it under its lock.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tier/nameless_file.h"

namespace lowtide::tier {

class Contents {
 public:
  using Checksums = std::vector<std::uint64_t>;  // of the chunks of a store, all of one size but for the last

  explicit Contents(std::shared_ptr<const Descriptor> file);

  // Around whatever changes the file from our side. Several may be under way.
  void begin_change();
  void end_change();

  void begin_store(std::int64_t offset, std::int64_t bytes);
  void end_store(std::int64_t offset, std::int64_t bytes, Checksums checksums);

  bool is_lost(std::int64_t offset, std::int64_t bytes) const;

  // Whether what was loaded to `memory` is what is there, as far as that is known.
  bool is_right(std::int64_t offset, std::int64_t bytes, const std::byte* memory, const Checksums& loaded);

  // Unknown from now on: what was stored there, and with `lost` what was lost too.
  void forget(std::int64_t offset, std::int64_t bytes, bool lost = false);

  void add_home(std::int64_t offset, std::int64_t bytes, const std::byte* mapping);
  void remove_home(std::int64_t offset);

 private:
  struct Extent {
    std::int64_t bytes;
    Checksums checksums;  // none: lost
  };
  struct Home {
    std::int64_t bytes;
    const std::byte* mapping;
  };
  using Extents = std::map<std::int64_t, Extent>;

  Extents::const_iterator first_after(std::int64_t offset) const;
  const Home* home_around(std::int64_t offset, std::int64_t bytes, std::int64_t* begin) const;
  bool has_changed() const;
  timespec change_time() const;

  std::shared_ptr<const Descriptor> file_;
  Extents extents_;                     // by offset; no two overlap
  std::map<std::int64_t, Home> homes_;  // by offset
  timespec last_change_ = {};           // of ours
  int changes_ = 0;                     // of ours, under way
};

}  // namespace lowtide::tier
