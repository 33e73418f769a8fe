// Freed memory gets bytes of 0xFF, which are NaN in every floating type, when the stream that allocated it gets there.
// The caching allocator reuses memory without telling the runtime, so this follows its trace.
#pragma once

namespace emulated_cuda {

void poison_what_is_freed();

}  // namespace emulated_cuda
