#include "interface.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "figures.h"
#include "handles.h"
#include "memory.h"
#include "operators.h"
#include "streams.h"

namespace emulated_cuda {
namespace {

thread_local std::vector<char> waited_in;  // for each operator that the thread is in: whether it waited
std::atomic<bool> expects_operators = false;
std::atomic<std::uint64_t> launches = 0;

}  // namespace

bool inside_operator() {
  return !waited_in.empty();
}
void note_wait() {
  std::fill(waited_in.begin(), waited_in.end(), 1);
}
void note_launch(const char* kernel) {
  ++launches;
  if (inside_operator() || !expects_operators) return;
  std::fprintf(stderr, "emulated CUDA: %s is launched by no operator that has values\n", kernel);
  std::abort();
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

std::ptrdiff_t emulated_cuda_shadow_distance() {
  return shadow_distance();
}
int emulated_cuda_is_device(const void* address) {
  return is_device(address);
}
int emulated_cuda_is_pinned(const void* address) {
  const Lock lock;
  return is_pinned(address);
}
void emulated_cuda_enter_operator() {
  waited_in.push_back(0);
}
int emulated_cuda_leave_operator() {
  const int waited = waited_in.back();
  waited_in.pop_back();
  return waited;
}
void emulated_cuda_expect_operators() {
  expects_operators = true;
}
void emulated_cuda_note_launch(const char* kernel) {
  note_launch(kernel);
}
void emulated_cuda_enqueue(void* stream, void (*run)(void*), void* data, int engine, double seconds) {
  const Lock lock;
  enqueue(stream_of(stream),
          {.run = [=] { run(data); }, .engine = static_cast<EngineKind>(engine), .seconds = seconds});
}
void emulated_cuda_poison(void* stream, void* address, std::size_t bytes) {
  const Lock lock;
  enqueue(stream_of(stream), {.run = [=] { poison(static_cast<char*>(address), bytes); }});
}
double emulated_cuda_declare(const char* figure, double value) {
  const Lock lock;
  synchronize_all();
  return declare(figure, value);
}
int emulated_cuda_is_late() {
  return figures().late != 0;
}
int emulated_cuda_poisons() {
  return figures().poison;
}
double emulated_cuda_link_seconds(std::size_t bytes) {
  return link_seconds(bytes);
}
double emulated_cuda_kernel_seconds(double bytes, double flops) {
  const Figures& f = figures();
  if (f.memory_bytes_per_second <= 0) return -1;
  return std::max(bytes / f.memory_bytes_per_second, f.flops_per_second > 0 ? flops / f.flops_per_second : 0);
}
double emulated_cuda_host_seconds() {
  const Lock lock;
  return host_time();
}
std::uint64_t emulated_cuda_launches() {
  return launches;
}
