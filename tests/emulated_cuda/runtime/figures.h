// The figures of the emulated device, each from an environment variable, so that a test states the device that it
// needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated_cuda {

struct Figures {
  std::size_t memory;              // EMULATED_CUDA_MEMORY: bytes, 24 GiB
  int devices;                     // EMULATED_CUDA_DEVICES: 1
  std::string name;                // EMULATED_CUDA_NAME: "Emulated CUDA"
  int compute_capability;          // EMULATED_CUDA_SM: 89
  int multiprocessors;             // EMULATED_CUDA_SMS: 58
  std::uint64_t late;              // EMULATED_CUDA_LATE: 0 is at once, anything else is late: see streams.h
  bool poison;                     // EMULATED_CUDA_POISON: 1 fills freed device memory with 0xFF
  double link_bytes_per_second;    // EMULATED_CUDA_LINK: GB/s of copies between host and device, in each direction, 16
  double memory_bytes_per_second;  // EMULATED_CUDA_BANDWIDTH: GB/s of device memory; 0 times kernels by their CPU time
  double flops_per_second;         // EMULATED_CUDA_TFLOPS: of products and convolutions; 0 is no limit
};

// Read once, at the first use.
const Figures& figures();

// Declares "late", "poison", "link", "bandwidth" or "tflops" anew, in the units of its variable. The declared value
// before, or NaN for another name. Nothing may be queued.
double declare(const std::string& figure, double value);

}  // namespace emulated_cuda
