// held.h: whether anybody holds a tensor or a storage, but for those who are counted.
#pragma once

#include <cstddef>

namespace lowtide::torch_runtime {

// A Python object for a tensor or storage counts as one use for as long as it exists, and it exists for as long as
// there is another use; so it says nothing about whether anybody holds it. Its own reference count does.
template <typename Impl>
std::size_t uses_but_python(const Impl& impl, std::size_t uses) {
  return impl.pyobj_slot()->load_pyobj() == nullptr ? uses : uses - 1;
}

// Whether somebody has it beside `own_uses`.
template <typename Impl>
bool is_held(const Impl& impl, std::size_t uses, std::size_t own_uses) {
  const auto* slot = impl.pyobj_slot();
  const bool by_python = slot->load_pyobj() != nullptr && !slot->has_unique_reference();
  return by_python || uses_but_python(impl, uses) != own_uses;
}

}  // namespace lowtide::torch_runtime
