#include "random_state.h"

#include <ATen/Context.h>

#include <mutex>

namespace lowtide::torch_runtime {
namespace {

at::CPUGeneratorImpl* generator() {
  return at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
}

}  // namespace

RandomState RandomState::now(c10::Device where) {
  RandomState state;
  state.where_ = where;
  if (!where.is_cpu()) {
    at::Generator device = at::globalContext().defaultGenerator(where);
    const std::lock_guard alone(device.mutex());
    state.seed_ = device.current_seed();
    state.offset_ = device.unsafeGetGeneratorImpl()->get_offset();
  }
  at::CPUGeneratorImpl* const source = generator();
  const std::lock_guard alone(source->mutex_);
  state.engine_ = source->engine();
  state.next_float_normal_ = source->next_float_normal_sample();
  state.next_double_normal_ = source->next_double_normal_sample();
  return state;
}

void RandomState::put_back() const {
  if (!where_.is_cpu()) {
    at::Generator device = at::globalContext().defaultGenerator(where_);
    const std::lock_guard alone(device.mutex());
    device.set_current_seed(seed_);
    device.set_offset(offset_);
  }
  at::CPUGeneratorImpl* const target = generator();
  const std::lock_guard alone(target->mutex_);
  target->set_engine(engine_);
  target->set_next_float_normal_sample(next_float_normal_);
  target->set_next_double_normal_sample(next_double_normal_);
}

}  // namespace lowtide::torch_runtime
