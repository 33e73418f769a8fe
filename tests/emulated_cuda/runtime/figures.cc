#include "figures.h"

#include <cmath>
#include <cstdlib>
#include <utility>

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

Figures& read_once() {
  static auto* const read = new Figures{
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

}  // namespace

const Figures& figures() {
  return read_once();
}

double declare(const std::string& figure, double value) {
  Figures& f = read_once();
  if (figure == "late") return static_cast<double>(std::exchange(f.late, static_cast<std::uint64_t>(value)));
  if (figure == "poison") return std::exchange(f.poison, value != 0);
  if (figure == "link") return std::exchange(f.link_bytes_per_second, 1e9 * value) / 1e9;
  if (figure == "bandwidth") return std::exchange(f.memory_bytes_per_second, 1e9 * value) / 1e9;
  if (figure == "tflops") return std::exchange(f.flops_per_second, 1e12 * value) / 1e12;
  return std::nan("");
}

}  // namespace emulated_cuda
