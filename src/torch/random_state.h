// random_state.h: lets an operator that runs again draw the numbers that its first run drew.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <optional>

namespace lowtide::torch_runtime {

// The whole state of the default CPU generator. It is copied without any allocation.
class RandomState {
 public:
  static RandomState now();
  void put_back() const;

 private:
  at::mt19937 engine_;
  std::optional<float> next_float_normal_;
  std::optional<double> next_double_normal_;
};

// While it exists, the generator goes on from `earlier`; afterwards it stands where it stood before.
class RandomReplay {
 public:
  explicit RandomReplay(const RandomState& earlier) : interrupted_(RandomState::now()) { earlier.put_back(); }
  ~RandomReplay() { interrupted_.put_back(); }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState interrupted_;
};

}  // namespace lowtide::torch_runtime
