// engine_word.h: PyTorch's switches as one string of bytes: which differs wherever one of them does.
//
// A live step asks before every call of a tensor, and some thirty questions to PyTorch's Python take longer than one.
#pragma once

#include <string>

namespace lowtide::torch_runtime {

// As they are now, on the calling thread.
std::string engine_word();

// The same with grad mode, inference mode and autocast.
std::string call_word();

}  // namespace lowtide::torch_runtime
