// loan.h: memory of an arena that is the caller's after a run: gradients that stay where they were made.
//
// The place of the run stays leased as far as tensors lie there, until the last of them is gone:
//
//   |-- the run -------------------------------|
//        |-- gradient --|   |-- gradient --|
//   |-- leased, and nobody runs there ----|
//
// Who needs the place may move them out: a storage gets ordinary memory, with its content, and all tensors follow.
#pragma once

#include <ATen/core/Tensor.h>

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
  c10::DataPtr lend(std::byte* begin, std::int64_t bytes) const;

 private:
  class Place;

  Device& device_;
  std::shared_ptr<Place> place_;  // each storage has it too
};

// Whether its memory is lent.
bool is_lent(const at::Tensor& tensor);

// Whether one reference is all that there is to it, and it is all that refers to its storage.
bool is_only_in_one_place(const at::Tensor& tensor);

// Moves its content to ordinary memory; it must be lent.
void move_out(const at::Tensor& tensor);

}  // namespace lowtide::torch_runtime
