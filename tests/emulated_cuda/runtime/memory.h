// Device memory: a range of addresses that the host cannot touch, and its bytes in a shadow range.
//
//     device   |  PROT_NONE: a host read faults, as on a GPU  |
//                        \ at a fixed distance
//     shadow                        |  the bytes, where something is allocated; PROT_NONE elsewhere  |
//
// Only copies, memsets and values computed by the CPU touch the shadow. Pinned memory is ordinary host memory that is
// on record here.
//
// One lock guards all state of the runtime. Work that a stream performs runs under it, so that work must not call
// PyTorch's allocators for device or pinned memory: they call the runtime under locks of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace emulated_cuda {

constexpr std::size_t kPage = std::size_t{2} << 20;  // granularity of device allocations

std::size_t round_up(std::size_t bytes, std::size_t unit);

class Lock {
 public:
  Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> held_;
};

bool is_device(const void* address);
std::ptrdiff_t shadow_distance();

// Where the bytes at `address` are: its shadow for device memory, itself for host memory.
inline char* bytes_at(const void* address) {
  return static_cast<char*>(const_cast<void*>(address)) + (is_device(address) ? shadow_distance() : 0);
}

// Whether all these bytes of device memory are allocated.
bool is_allocated(const void* address, std::size_t bytes);

// Room on a device: `take` fails when it is full.
bool take(int device, std::size_t bytes);
void give_back(int device, std::size_t bytes);
std::size_t free_bytes(int device);

// Addresses without bytes. Null if there are none left.
char* reserve(std::size_t bytes);
bool unreserve(char* address);

// Bytes behind addresses.
void back(char* address, std::size_t bytes);
void unback(char* address, std::size_t bytes);

// Fills device memory with bytes of 0xFF. Pages that nothing has touched are left out, so that a large allocation costs
// the host no memory before it is used.
void poison(char* address, std::size_t bytes);

struct Extent {
  char* begin = nullptr;
  std::size_t bytes = 0;
};
Extent extent_of(const void* address);  // the backed extent that holds it, or an empty one

void set_pinned(void* address, std::size_t bytes);
std::size_t unset_pinned(void* address);  // its bytes; 0 if it was not pinned
bool is_pinned(const void* address);

}  // namespace emulated_cuda
