// loan.h: memory of an arena that is the caller's after a run: gradients that stay where they were made.
//
// The place of the run stays leased as far as tensors lie there, until the last of them is gone:
//
//   |-- the run -------------------------------|
//        |-- gradient --|   |-- gradient --|
//   |-- leased, and nobody runs there ----|
#pragma once

#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "arena.h"

namespace lowtide::torch_runtime {

class Loan {
 public:
  // Of the place where a run is over.
  Loan(Device& device, Lease place);

  // A stretch of it.
  c10::Storage lend(std::byte* begin, std::int64_t bytes) const;

 private:
  Device& device_;
  std::shared_ptr<Lease> place_;  // each storage has it too
};

}  // namespace lowtide::torch_runtime
