// What the emulated runtime offers beyond CUDA: to the library that computes values, and to tests through ctypes.
#pragma once

#include <cstddef>
#include <cstdint>

#define EMULATED_CUDA_API extern "C" __attribute__((visibility("default")))

// Where the bytes of device memory lie: device address + distance. Only for memory that no queued work still writes.
EMULATED_CUDA_API std::ptrdiff_t emulated_cuda_shadow_distance();
EMULATED_CUDA_API int emulated_cuda_is_device(const void* address);
EMULATED_CUDA_API int emulated_cuda_is_pinned(const void* address);

// Between these two, kernels, copies and memsets of the calling thread do nothing. They nest. The second says whether
// the thread waited for the device in between.
EMULATED_CUDA_API void emulated_cuda_enter_operator();
EMULATED_CUDA_API int emulated_cuda_leave_operator();

// Values are computed from now on: a kernel that is launched outside an operator aborts with its name.
EMULATED_CUDA_API void emulated_cuda_expect_operators();

// A kernel of this name is launched on no stream in particular.
EMULATED_CUDA_API void emulated_cuda_note_launch(const char* kernel);

// Queues `run(data)` on a stream of CUDA. It takes `seconds` on the virtual clock, or its CPU time if that is negative.
// `engine`: 1 computes, 2 copies to the device, 3 copies to the host.
EMULATED_CUDA_API void emulated_cuda_enqueue(void* stream, void (*run)(void*), void* data, int engine, double seconds);

// Queues bytes of 0xFF for device memory.
EMULATED_CUDA_API void emulated_cuda_poison(void* stream, void* address, std::size_t bytes);

// Waits for the device, and declares a figure anew: see figures.h.
EMULATED_CUDA_API double emulated_cuda_declare(const char* figure, double value);

// The declared figures that the values library needs.
EMULATED_CUDA_API int emulated_cuda_poisons();
EMULATED_CUDA_API int emulated_cuda_is_late();
EMULATED_CUDA_API double emulated_cuda_link_seconds(std::size_t bytes);
// Seconds of a kernel by the declared roofline; negative if none is declared.
EMULATED_CUDA_API double emulated_cuda_kernel_seconds(double bytes, double flops);

// Seconds on the host's virtual clock.
EMULATED_CUDA_API double emulated_cuda_host_seconds();

// Kernels launched so far.
EMULATED_CUDA_API std::uint64_t emulated_cuda_launches();
