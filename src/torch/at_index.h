// at_index.h: elements of lists by numbers of a program.
#pragma once

#include <cstddef>

namespace lowtide::torch_runtime {

template <typename T>
decltype(auto) at_index(T& list, int index) {  // program ids are ints, as the front end counts
  return list[static_cast<std::size_t>(index)];
}

}  // namespace lowtide::torch_runtime
