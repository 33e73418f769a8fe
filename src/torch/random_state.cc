#include "random_state.h"

#include <mutex>

namespace lowtide::torch_runtime {
namespace {

at::CPUGeneratorImpl* generator() {
  return at::check_generator<at::CPUGeneratorImpl>(at::detail::getDefaultCPUGenerator());
}

}  // namespace

RandomState RandomState::now() {
  at::CPUGeneratorImpl* const source = generator();
  const std::lock_guard alone(source->mutex_);
  RandomState state;
  state.engine_ = source->engine();
  state.next_float_normal_ = source->next_float_normal_sample();
  state.next_double_normal_ = source->next_double_normal_sample();
  return state;
}

void RandomState::put_back() const {
  at::CPUGeneratorImpl* const target = generator();
  const std::lock_guard alone(target->mutex_);
  target->set_engine(engine_);
  target->set_next_float_normal_sample(next_float_normal_);
  target->set_next_double_normal_sample(next_double_normal_);
}

}  // namespace lowtide::torch_runtime
