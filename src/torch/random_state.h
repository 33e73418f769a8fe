// random_state.h: lets an operator that runs again draw the numbers that its first run drew.
//
// The CPU's generator is a table of numbers, that of any other device a seed and how far it has come.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <optional>

namespace lowtide::torch_runtime {

// The whole state of the default generators of the CPU and of a device. It is copied without any allocation.
class RandomState {
 public:
  static RandomState now(c10::Device where);
  void put_back() const;
  c10::Device where() const { return where_; }

 private:
  c10::Device where_ = c10::Device(c10::kCPU);
  std::uint64_t seed_ = 0;  // of the device
  std::uint64_t offset_ = 0;
  at::mt19937 engine_;
  std::optional<float> next_float_normal_;
  std::optional<double> next_double_normal_;
};

// While it exists, the generator goes on from `earlier`; afterwards it stands where it stood before.
class RandomReplay {
 public:
  explicit RandomReplay(const RandomState& earlier) : interrupted_(RandomState::now(earlier.where())) {
    earlier.put_back();
  }
  ~RandomReplay() { interrupted_.put_back(); }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState interrupted_;
};

}  // namespace lowtide::torch_runtime
