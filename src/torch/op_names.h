// op_names.h: which operator a thread is running, while that is watched: the outermost one, by its name.
//
// Watching costs time at every operator: for iterations that are recorded for the first time.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace lowtide::torch_runtime {

class OpNames {
 public:
  OpNames();
  ~OpNames() { stop(); }
  OpNames(const OpNames&) = delete;
  OpNames& operator=(const OpNames&) = delete;

  // On the calling thread, until stop() on the same one.
  void watch();
  void stop();
  bool is_watching() const { return handle_ != at::INVALID_CALLBACK_HANDLE; }

  static constexpr std::uint32_t kNone = 0;  // no operator: its name is empty
  std::uint32_t current() const;             // on the calling thread; of others nothing is known
  const std::string& name(std::uint32_t op) const { return names_[op]; }

 private:
  void enter(const char* name);
  void leave();

  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
  int depth_ = 0;
  std::uint32_t current_ = kNone;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace lowtide::torch_runtime
