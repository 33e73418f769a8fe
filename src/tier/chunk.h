// chunk.h: a part of a transfer, moved by one system call, or by several where the system moves less than it was asked.
//
//   prepare()   before the first: a store's checksum
//   ask()       what the next call is to move
//   take()      what it said: whether there has to be another
//   complete()  after the last: a load's checksum; what ordinary I/O left in the page cache goes
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tier/faults.h"
#include "tier/nameless_file.h"

namespace lowtide::tier {

enum class Direction { store, load };

// Ways into one file.
struct Descriptors {
  std::shared_ptr<const Descriptor> ordinary;
  std::shared_ptr<const Descriptor> direct;  // past the page cache; null where the system refuses that
};

// Memory, offset and size of direct I/O are multiples of this.
inline constexpr std::int64_t kDirectAlignment = 4096;

struct Chunk {
  std::uint64_t transfer;
  std::size_t index;  // in the transfer
  Direction direction;
  std::byte* memory;
  std::int64_t offset;
  std::int64_t bytes;
  bool direct;  // whole pages are moved: of a store up to the next multiple of kDirectAlignment
  Fault fault = Fault::none;
  std::shared_ptr<Faults> faults = {};  // where it is stuck

  std::int64_t done = 0;
  int error = 0;
  std::uint64_t checksum = 0;

  struct Request {
    int file;
    std::byte* memory;
    std::int64_t offset;
    std::size_t bytes;
  };

  // Whether there is anything to ask for.
  bool prepare(const Descriptors& files);
  Request ask(const Descriptors& files) const;
  // `result` is a number of bytes, or an error as a negative number.
  bool take(std::int64_t result);
  void complete(const Descriptors& files);

 private:
  void choose_way();
};

}  // namespace lowtide::tier
