// What a thread is doing for the values library: inside an operator whose values the CPU computes, the kernels, copies
// and memsets of CUDA do nothing. See interface.h.
#pragma once

namespace emulated_cuda {

bool inside_operator();

// The host waits for the device.
void note_wait();

// A kernel of this name is launched. Once values are computed, one outside an operator aborts: its numbers would be
// wrong.
void note_launch(const char* kernel);

}  // namespace emulated_cuda
