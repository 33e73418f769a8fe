// What a program is made of: its buffers, values and calls, one by one, and what is noted of them when all are there.
#include <algorithm>
#include <utility>

#include "at_index.h"
#include "held.h"
#include "program.h"

namespace lowtide::torch_runtime {
namespace {

// Widens `[begin, end)`, in bytes, by what `value` shows from `offset` on; the first value is all there is to it.
void extend_reach(const at::Tensor& value, std::int64_t offset, bool first, std::int64_t* begin, std::int64_t* end) {
  const auto item = static_cast<std::int64_t>(value.itemsize());
  std::int64_t elements = value.numel() == 0 ? 0 : 1;
  for (std::int64_t d = 0; elements > 0 && d < value.dim(); ++d) elements += (value.size(d) - 1) * value.stride(d);
  const std::int64_t from = offset * item;
  const std::int64_t to = from + elements * item;
  *begin = first ? from : std::min(*begin, from);
  *end = first ? to : std::max(*end, to);
}

}  // namespace

int Program::add_buffer(BufferKind kind, std::int64_t bytes, std::int64_t offset, Device& device) {
  TORCH_CHECK(kind != BufferKind::planned || &device == &arena_.device(), "lowtide: a buffer on ", device.where(),
              " cannot be planned on ", arena_.device().where());
  Buffer buffer;
  buffer.kind = kind;
  buffer.device = &device;
  buffer.bytes = bytes;
  buffer.offset = offset;
  buffer.storage = home_storage(buffer);
  if (guard_) guard_->add_buffer(offset, kind == BufferKind::planned ? bytes : 0);
  buffers_.push_back(std::move(buffer));
  const int index = static_cast<int>(buffers_.size()) - 1;
  if (kind == BufferKind::bound) bound_.push_back(index);
  return index;
}

int Program::add_value(int buffer, at::ScalarType dtype, std::vector<std::int64_t> sizes,
                       std::vector<std::int64_t> strides, std::int64_t offset) {
  const int index = static_cast<int>(windows_.size());
  windows_.push_back({buffer, dtype, std::move(sizes), std::move(strides), offset});
  Buffer& owner = at_index(buffers_, buffer);
  values_.push_back(make_window(windows_.back(), owner.storage));
  extend_reach(values_.back(), offset, owner.values.empty(), &owner.reach_begin, &owner.reach_end);
  owner.values.push_back(index);
  return index;
}

int Program::add_call(const c10::OperatorHandle& op, CallSpec spec) {
  bool writes_bound = false;
  const int index = static_cast<int>(calls_.size());
  for (const int buffer : spec.writes) {
    Buffer& written = at_index(buffers_, buffer);
    written.first_write = std::min(written.first_write, index);
    writes_bound |= written.kind == BufferKind::bound;
  }
  TORCH_CHECK(!guard_ || spec.delivers.empty(), "lowtide: operators that run in parts are not guarded");
  if (spec.draws_like >= 0) at_index(calls_, spec.draws_like).drawn_again = true;
  calls_.push_back({op, std::move(spec), {}, writes_bound});
  return index;
}

void Program::add_output(int value) {
  outputs_.push_back(value);
}

void Program::use_tier(std::shared_ptr<SlowTier> tier, std::int64_t slot_bytes) {
  TORCH_CHECK(!guard_, "lowtide: memory that is swapped is not guarded");
  swaps_.emplace(std::move(tier), slot_bytes);
}

void Program::add_transfer(SwapTransfer transfer) {
  const Buffer& there = at_index(buffers_, transfer.stores ? transfer.to : transfer.from);
  TORCH_CHECK(swaps_ && there.kind != BufferKind::planned, "lowtide: a transfer needs a tier, and a place there");
  swaps_->add(transfer);
}

void Program::add_home(int buffer, int home) {
  swaps_->has_home(buffer, home);
}

void Program::add_pause(int call) {
  const std::vector<int>& results = at_index(calls_, call).spec.results;
  const bool made = !results.empty() && results.front() >= 0 &&
                    at_index(buffers_, at_index(windows_, results.front()).buffer).kind == BufferKind::made;
  TORCH_CHECK(made, "lowtide: call ", call, " makes nothing for the caller: the step cannot pause there");
  TORCH_CHECK(pauses_.empty() || pauses_.back() < call, "lowtide: pauses come in the order of their calls");
  pauses_.push_back(call);
}

void Program::add_turn(std::int64_t kept_bytes) {
  TORCH_CHECK(!at_turn_ && !swaps_ && pauses_.empty(), "lowtide: a region turns once, and does nothing else");
  at_turn_ = {static_cast<int>(calls_.size()), outputs_.size(), kept_bytes};
}

void Program::finish(std::vector<c10::IValue> numbers) {
  numbers_ = std::move(numbers);
  number_uses_.resize(numbers_.size());
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    build_stack(calls_[c]);
    if (guard_) guard_call(calls_[c]);
    for (std::size_t a = 0; a < calls_[c].spec.arguments.size(); ++a) {
      std::vector<int> used;
      collect_numbers(calls_[c].spec.arguments[a], &used);
      for (const int number : used) {
        at_index(number_uses_, number).push_back({static_cast<int>(c), static_cast<int>(a)});
      }
    }
  }
  if (swaps_) swaps_->finish(calls_.size());
  if (at_turn_) note_last_uses();
  note_use_counts();
  finished_ = true;
}

// Where a region needs its bound and made buffers for the last time: it holds nothing of the caller's for longer.
void Program::note_last_uses() {
  const auto use = [&](int value, std::size_t call) {
    int& last = at_index(buffers_, at_index(windows_, value).buffer).last_use;
    last = std::max(last, static_cast<int>(call));
  };
  for (std::size_t c = 0; c < calls_.size(); ++c) {
    std::vector<int> used;
    for (const Argument& argument : calls_[c].spec.arguments) collect_values(argument, &used);
    for (const int value : used) use(value, c);
    for (const int value : calls_[c].spec.results) {
      if (value >= 0) use(value, c);
    }
  }
  for (std::size_t o = at_turn_->outputs; o < outputs_.size(); ++o) use(outputs_[o], calls_.size());
  uses_end_.resize(calls_.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& buffer = buffers_[b];
    const bool second = buffer.last_use >= at_turn_->call && buffer.last_use < static_cast<int>(calls_.size());
    if (second && buffer.kind != BufferKind::planned) {
      uses_end_[static_cast<std::size_t>(buffer.last_use)].push_back(static_cast<int>(b));
    }
  }
}

at::Tensor Program::make_window(const Window& window, const c10::Storage& storage) const {
  const c10::DispatchKeySet keys(at_index(buffers_, window.buffer).device->key());
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(window.dtype));
  // Until something is bound there, a window before the first element of that has no place.
  const std::int64_t offset = std::max<std::int64_t>(0, window.offset);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(window.sizes, window.strides, offset);
  return tensor;
}

void Program::build_stack(Call& call) {
  call.stack.clear();
  call.stack.reserve(call.spec.arguments.size());
  for (const Argument& argument : call.spec.arguments) call.stack.push_back(build(argument, values_, numbers_));
}

void Program::guard_call(const Call& call) {
  MemoryGuard::Operands operands;
  const auto add = [](std::vector<int>& list, int buffer) {
    if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
  };
  std::vector<int> used;
  for (const Argument& argument : call.spec.arguments) collect_values(argument, &used);
  for (const int value : used) add(operands.takes, at_index(windows_, value).buffer);
  for (const int value : call.spec.results) {
    if (value < 0) continue;
    const int buffer = at_index(windows_, value).buffer;
    const auto& takes = operands.takes;
    if (std::find(takes.begin(), takes.end(), buffer) == takes.end()) add(operands.makes, buffer);
  }
  operands.writes = call.spec.writes;
  operands.replaces = call.spec.replaces;
  operands.workspace_offset = call.spec.workspace_offset;
  operands.workspace_bytes = call.spec.workspace_bytes;
  operands.may_leave_poison = call.spec.leaves_unwritten;
  guard_->add_call(std::move(operands));
}

void Program::note_use_counts() {
  own_uses_.resize(values_.size());
  for (std::size_t v = 0; v < values_.size(); ++v) {
    own_uses_[v] = uses_but_python(*values_[v].unsafeGetTensorImpl(), values_[v].use_count());
  }
}

}  // namespace lowtide::torch_runtime
