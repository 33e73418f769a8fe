#include "figures.h"

#include <cstdlib>

namespace emulated_cuda {
namespace {

const char* text(const char* name, const char* otherwise) {
  const char* found = std::getenv(name);
  return found != nullptr && *found != '\0' ? found : otherwise;
}
std::uint64_t whole(const char* name, const char* otherwise) {
  return std::strtoull(text(name, otherwise), nullptr, 0);
}
double real(const char* name, const char* otherwise) {
  return std::strtod(text(name, otherwise), nullptr);
}

}  // namespace

const Figures& figures() {
  static const Figures* const read = new Figures{
      .memory = whole("EMULATED_CUDA_MEMORY", "25769803776"),
      .devices = static_cast<int>(whole("EMULATED_CUDA_DEVICES", "1")),
      .name = text("EMULATED_CUDA_NAME", "Emulated CUDA"),
      .compute_capability = static_cast<int>(whole("EMULATED_CUDA_SM", "89")),
      .multiprocessors = static_cast<int>(whole("EMULATED_CUDA_SMS", "58")),
      .late = whole("EMULATED_CUDA_LATE", "0"),
      .poison = whole("EMULATED_CUDA_POISON", "1") != 0,
      .link_bytes_per_second = 1e9 * real("EMULATED_CUDA_LINK", "16"),
      .memory_bytes_per_second = 1e9 * real("EMULATED_CUDA_BANDWIDTH", "0"),
      .flops_per_second = 1e12 * real("EMULATED_CUDA_TFLOPS", "0"),
  };
  return *read;
}

}  // namespace emulated_cuda
