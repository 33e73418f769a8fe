#include "program.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "at_index.h"
#include "device_step.h"
#include "held.h"
#include "loan.h"

namespace lowtide::torch_runtime {
namespace {

// The arena's memory is nobody's to free while the program has it.
void keep_in_place(void*) {}

// Somebody else's turn now and then, in the thread's state before the step.
class Lookout {
 public:
  explicit Lookout(const std::function<void()>& look) : look_(look), last_(Clock::now()) {}

  void between_calls() {
    if (!look_) return;
    const Clock::time_point now = Clock::now();
    if (now - last_ < std::chrono::milliseconds(50)) return;
    {
      const at::ThreadLocalStateGuard as_outside(outside_);
      look_();
    }
    last_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  const std::function<void()>& look_;
  const at::ThreadLocalState outside_;
  Clock::time_point last_;
};

std::int64_t first_byte_of(const at::Tensor& tensor) {
  return tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize());
}

// Whether both show the same elements; the stride of a single one says nothing.
bool is_same_place(const at::Tensor& a, const at::Tensor& b) {
  if (a.const_data_ptr() != b.const_data_ptr()) return false;
  for (std::int64_t d = 0; d < a.dim(); ++d) {
    if (a.size(d) != 1 && a.stride(d) != b.stride(d)) return false;
  }
  return true;
}

bool same_number(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) {  // bit for bit: -0.0 is not 0.0
    return std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
  }
  return a.isInt() && b.isInt() && a.toInt() == b.toInt();
}

}  // namespace

// Where a program's transfers find its buffers.
class Program::Places : public SwapPlaces {
 public:
  explicit Places(Program& program) : program_(program) {}

  std::byte* in_memory(int buffer) override {
    return static_cast<std::byte*>(at_index(program_.buffers_, buffer).storage.mutable_data());
  }
  std::byte* to_load(int buffer) override {
    Buffer& owner = at_index(program_.buffers_, buffer);
    if (overlaps_escaped(in_memory(buffer), owner.bytes)) {  // somebody outside still holds what was there
      program_.give_memory(buffer);
    }
    return in_memory(buffer);
  }
  bool is_planned_place(int buffer) override { return !at_index(program_.buffers_, buffer).elsewhere; }
  std::byte* home(int buffer) override {
    Buffer& owner = at_index(program_.buffers_, buffer);
    if (owner.kind == BufferKind::slot) return nullptr;
    if (owner.kind == BufferKind::made && !owner.elsewhere) {
      program_.point_at_new(buffer, program_.swaps_->tier().make_home(owner.bytes));
      owner.elsewhere = true;
    }
    return static_cast<std::byte*>(owner.storage.mutable_data()) + owner.first_byte;
  }
  bool is_whole_storage(int buffer) override {
    const Buffer& owner = at_index(program_.buffers_, buffer);
    return owner.first_byte == 0 && static_cast<std::int64_t>(owner.storage.nbytes()) == owner.bytes;
  }
  std::int64_t slot(int buffer) override {
    return program_.swaps_->first_slot() + at_index(program_.buffers_, buffer).offset;
  }
  std::int64_t bytes(int buffer) override { return at_index(program_.buffers_, buffer).bytes; }

  void bring_home(int buffer, const std::byte* content) override {
    Buffer& owner = at_index(program_.buffers_, buffer);
    if (owner.kind != BufferKind::bound) return;  // it was not given to anybody yet
    c10::DataPtr memory = c10::GetAllocator(owner.device->where().type())->allocate(owner.storage.nbytes());
    program_.swaps_->tier().copy(memory.get(), content, owner.bytes);
    c10::DataPtr home = owner.storage.set_data_ptr(std::move(memory));
    static_cast<void>(home.release_context());  // an array of NumPy may still show it
  }

 private:
  Program& program_;
};

Program::Program(Device& device, std::int64_t arena_bytes, GuardLevel guard)
    : arena_(Arena::on(device)), arena_bytes_(arena_bytes) {
  TORCH_CHECK(guard == GuardLevel::off || device.where().is_cpu(), "lowtide: memory on ", device.where(),
              " is not guarded");
  arena_.add_need(arena_bytes);
  home_ = arena_.base();
  {
    const std::lock_guard lock(all_mutex());
    all().insert(this);
  }
  if (guard != GuardLevel::off) guard_.emplace(guard, arena_, arena_bytes);
}

Program::~Program() {
  close();
  const std::lock_guard lock(all_mutex());
  all().erase(this);
}

// Never destroyed: a token may outlive every static object.
std::set<const Program*>& Program::all() {
  static auto* programs = new std::set<const Program*>;
  return *programs;
}

std::mutex& Program::all_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::size_t Program::uses_of(const c10::StorageImpl* storage) {
  const std::lock_guard lock(all_mutex());
  std::size_t uses = 0;
  for (const Program* program : all()) {
    for (const Buffer& buffer : program->buffers_) {
      if (buffer.storage.unsafeGetStorageImpl() == storage) uses += 1 + buffer.values.size();
    }
  }
  return uses;
}

void Program::close() {
  if (!open_) return;
  std::vector<Buffer> buffers;  // what they hold of the caller's goes when nothing is locked: it takes the GIL
  // A region runs under no lock, and may be dropped in the middle of anything; nobody else has it then.
  std::unique_lock running(arena_.running(), std::defer_lock);
  if (!at_turn_) running.lock();
  open_ = false;
  turned_.clear();
  aside_.clear();
  lease_.give_back();
  next_call_ = 0;
  calls_.clear();
  values_.clear();
  buffers.swap(buffers_);
  bound_.clear();
  arena_.remove_need(arena_bytes_, end_of_escaped(arena_));
  arena_shrunk_to(arena_.device().where(), ArenaKind::planned, arena_.usable_bytes());
}

// -- places
// -------------------------------------------------------------------------------------------------------------

// Where a buffer's values look when nothing else is bound: its place in the arena, or nowhere.
c10::Storage Program::home_storage(const Buffer& buffer) const {
  void* address = buffer.kind == BufferKind::planned && buffer.bytes > 0 ? home_ + buffer.offset : nullptr;
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(buffer.bytes),
                      c10::DataPtr(address, address, &keep_in_place, buffer.device->where()), nullptr,
                      /*resizable=*/false);
}

// Where nobody else is; a step that has paused goes on where it was.
void Program::take_lease() {
  if (lease_) return;
  if (next_call_ > 0) {
    lease_ = Lease(arena_, home_, arena_bytes_);
    return;
  }
  lease_ = Lease(arena_, arena_bytes_);
  bytes_below_ = lease_.bytes_below();
  lie_at(lease_ ? lease_.base() : arena_.base());
}

// Planned values look at another place than in the last run; those that were served elsewhere stay there.
void Program::lie_at(std::byte* base) {
  if (home_ == base) return;
  home_ = base;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& buffer = buffers_[b];
    if (buffer.kind == BufferKind::planned && !buffer.elsewhere) {
      point_at(static_cast<int>(b), home_storage(buffer), 0);
    }
  }
}

// -- binding
// ------------------------------------------------------------------------------------------------------------

// Windows on what is bound count from its first byte, in items of their own, which may be of another size.
std::int64_t Program::offset_in_storage(const Window& window) const {
  const std::int64_t first = at_index(buffers_, window.buffer).first_byte;
  const auto item = static_cast<std::int64_t>(c10::elementSize(window.dtype));
  TORCH_CHECK(first % item == 0, "lowtide: a view as ", window.dtype, " begins ", first, " bytes into its storage");
  return std::max<std::int64_t>(0, first / item + window.offset);
}

void Program::point_at(int buffer, c10::Storage storage, std::int64_t first_byte) {
  Buffer& owner = at_index(buffers_, buffer);
  owner.first_byte = first_byte;
  for (const int value : owner.values) {
    c10::TensorImpl* impl = at_index(values_, value).unsafeGetTensorImpl();
    impl->set_storage_keep_dtype(storage);
    if (owner.kind == BufferKind::bound) impl->set_storage_offset(offset_in_storage(at_index(windows_, value)));
  }
  owner.storage = std::move(storage);
}

// The buffer lies in `memory` until its life ends.
void Program::point_at_new(int buffer, c10::DataPtr memory) {
  const Buffer& owner = at_index(buffers_, buffer);
  c10::Allocator* allocator = c10::GetAllocator(owner.device->where().type());
  point_at(buffer,
           c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(owner.bytes), std::move(memory),
                        allocator, /*resizable=*/true),
           0);
}

void Program::give_memory(int buffer) {
  Buffer& owner = at_index(buffers_, buffer);
  c10::Allocator* allocator = c10::GetAllocator(owner.device->where().type());
  point_at_new(buffer, allocator->allocate(static_cast<std::size_t>(owner.bytes)));
  owner.elsewhere = true;
}

void Program::bind(int buffer, CallerTensor tensor, bool transient) {
  TORCH_CHECK(open_, "lowtide: this step was closed");
  Buffer& owner = at_index(buffers_, buffer);
  TORCH_CHECK(owner.kind == BufferKind::bound, "lowtide: buffer ", buffer, " is not one that the caller binds");
  owner.caller = std::move(tensor);
  owner.bound = at::Tensor();
  owner.transient = transient;
  const at::Tensor& bound = owner.caller.tensor();
  owner.bound_sizes = bound.sizes().vec();
  owner.bound_strides = bound.strides().vec();
  owner.bound_dtype = bound.scalar_type();
  owner.bound_offset = bound.storage_offset();
  point_at(buffer, bound.storage(), first_byte_of(bound));
}

int Program::stale_binding() const {
  for (const int buffer : bound_) {
    const Buffer& owner = at_index(buffers_, buffer);
    if (!owner.caller) continue;
    const at::Tensor& bound = owner.caller.tensor();
    if (bound.sizes() != owner.bound_sizes || bound.strides() != owner.bound_strides ||
        bound.scalar_type() != owner.bound_dtype) {
      return buffer;
    }
  }
  return -1;
}

void Program::mark_written(int buffer) {
  at_index(buffers_, buffer).written_later = true;
}

Reach Program::reach_of(int buffer) const {
  const Buffer& owner = at_index(buffers_, buffer);
  const bool bound_now = owner.caller || owner.bound.defined();  // the batch of a step that has paused
  if (!bound_now || owner.reach_begin == owner.reach_end) return {.buffer = buffer};
  const at::Tensor& bound = owner.caller ? owner.caller.tensor() : owner.bound;
  const auto first = reinterpret_cast<std::uintptr_t>(bound.storage().data()) +  // NOLINT: an address to compare
                     static_cast<std::uintptr_t>(first_byte_of(bound));
  return {first + static_cast<std::uintptr_t>(owner.reach_begin), first + static_cast<std::uintptr_t>(owner.reach_end),
          buffer, owner.first_write != kNeverWritten || owner.written_later};
}

std::optional<std::pair<int, int>> Program::overlap() {
  std::vector<Reach> lasting;
  std::vector<Reach> passing;
  lasting.reserve(bound_.size());
  for (const int buffer : bound_) {
    (at_index(buffers_, buffer).transient ? passing : lasting).push_back(reach_of(buffer));
  }
  overlaps_.set_lasting(std::move(lasting));
  return overlaps_.find(std::move(passing));
}

void Program::take_bound(bool all) {
  for (const int buffer : bound_) {
    Buffer& owner = at_index(buffers_, buffer);
    if (next_call_ > 0 && owner.bound.defined()) continue;
    TORCH_CHECK(owner.caller || !all, "lowtide: buffer ", buffer, " was not bound before the step");
    if (!owner.caller) continue;
    owner.bound = owner.caller.tensor();
    if (owner.transient) owner.caller = CallerTensor();
  }
}

// `parameter.data = other` keeps the tensor and changes what is behind it; torch.utils.swap_tensors changes the tensor.
bool Program::has_moved(const Buffer& buffer) {
  return buffer.bound.defined() &&
         (buffer.bound.storage().unsafeGetStorageImpl() != buffer.storage.unsafeGetStorageImpl() ||
          buffer.bound.storage_offset() != buffer.bound_offset);
}

void Program::rebind_moved() {
  for (const int buffer : bound_) {
    Buffer& owner = at_index(buffers_, buffer);
    if (has_moved(owner)) {
      owner.bound_offset = owner.bound.storage_offset();
      point_at(buffer, owner.bound.storage(), first_byte_of(owner.bound));
    }
  }
}

void Program::set_numbers(const std::vector<c10::IValue>& numbers) {
  TORCH_CHECK(numbers.size() == numbers_.size(), "lowtide: ", numbers.size(), " numbers were given, the program takes ",
              numbers_.size());
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    if (same_number(numbers[n], numbers_[n])) continue;
    numbers_[n] = numbers[n];
    for (const NumberUse& use : number_uses_[n]) {
      Call& call = at_index(calls_, use.call);
      const Argument& argument = at_index(call.spec.arguments, use.argument);
      c10::IValue& slot = at_index(call.stack, use.argument);
      if (slot.isTensor()) {  // a number where the schema says Tensor: its one element is set in place
        slot.toTensor().fill_(numbers_[n].toScalar());
      } else {
        slot = build(argument, values_, numbers_);
      }
    }
  }
}

// -- running
// ------------------------------------------------------------------------------------------------------------

std::vector<at::Tensor> Program::run(const std::function<void()>& look) {
  TORCH_CHECK(!at_turn_, "lowtide: a region runs in halves");
  const std::lock_guard running(arena_.running());
  run_until(static_cast<int>(calls_.size()), look);
  std::vector<at::Tensor> results = hand_out(0);
  let_go(next_call_);
  if (times_.running() && stats_.misses == 0 && escapes_.empty()) times_.count_run();
  return results;
}

at::Tensor Program::run_to_pause(const std::function<void()>& look) {
  const std::lock_guard running(arena_.running());
  const auto pause = std::lower_bound(pauses_.begin(), pauses_.end(), next_call_);
  TORCH_CHECK(pause != pauses_.end(), "lowtide: this step has no other pause");
  run_until(*pause + 1, look);
  if (lease_.annex_bytes() == 0) lease_.give_back();  // an annex would be gone
  return given(at_index(calls_, *pause).spec.results.front());
}

bool Program::can_go_on() const {
  if (next_call_ == 0 || turn_ != arena_.turn()) return false;
  return std::none_of(bound_.begin(), bound_.end(), [&](int buffer) {
    const Buffer& owner = at_index(buffers_, buffer);
    const bool swapped = owner.caller && owner.bound.defined() && !owner.caller.tensor().is_same(owner.bound);
    return swapped || has_moved(owner);
  });
}

void Program::abandon() {
  const std::lock_guard running(arena_.running());
  let_go(next_call_);
}

// From the first call, or from where the run has paused or turned, up to `end`. Wants the arena's `running`, but for a
// region.
void Program::run_until(int end, const std::function<void()>& look) {
  TORCH_CHECK(open_ && finished_, "lowtide: this step was closed");
  Lookout lookout(look);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode no_grad(false);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);

  const bool begins = next_call_ == 0;
  Swaps::refuse_while_stuck();
  if (begins) {
    turn_ = arena_.take_turn();
    stats_ = ReplayStats{};
    escapes_.clear();
    missed_calls_.clear();
    failed_call_ = -1;
    wrote_bound_ = false;
    memory_fault_.reset();
    rebind_moved();
  }
  const bool was_paused = !begins && !at_turn_;
  TORCH_CHECK(!was_paused || turn_ == arena_.turn(), "lowtide: another step has run while this one was paused");
  take_lease();
  if (begins) turn_ = arena_.turn();
  const DeviceStep on_device(arena_.device(), home_, arena_bytes_);
  Replay replay(arena_, home_, &stats_, guard_ ? kGuardMargin : 0, lease_.annex_bytes() > 0);
  torch::jit::Stack stack;
  int index = next_call_;
  Places places(*this);
  const auto stop = [&] {
    failed_call_ = std::min(index, static_cast<int>(calls_.size()) - 1);
    stack.clear();
    if (swaps_) {
      try {
        swaps_->settle(places);
      } catch (...) {  // the first failure is told, and homes have been brought to memory
      }
      swaps_->note_if_stuck();
    }
    let_go(failed_call_ + 1);
    replay.end_op();
  };
  try {
    if (guard_ && begins) guard_->begin_step(home_);
    if (swaps_ && begins) swaps_->begin_step();
    for (; index < end; ++index) {
      lookout.between_calls();
      if (swaps_) swaps_->before(index, places);
      if (!times_.running()) {
        execute(index, replay, stack);
        if (at_turn_ && !begins) let_go_after(index);
        continue;
      }
      times_.begin_call();
      const bool worked = execute(index, replay, stack);
      times_.end_call(static_cast<std::size_t>(index), worked);
    }
    const bool ends = end == static_cast<int>(calls_.size());
    if (guard_ && ends) guard_->end_step();
    if (swaps_ && ends) swaps_->before(end, places);
    if (swaps_) swaps_->settle(places);
  } catch (const MemoryFault& fault) {
    memory_fault_ = fault;
    stop();
    throw;
  } catch (...) {
    stop();
    throw;
  }
  next_call_ = end;
}

// What the caller gets of a value.
at::Tensor Program::given(int value) const {
  Window window = at_index(windows_, value);
  const Buffer& owner = at_index(buffers_, window.buffer);
  if (owner.kind == BufferKind::bound) window.offset = offset_in_storage(window);
  if (owner.kind == BufferKind::made && owner.bytes == 0) {  // nothing was given memory, but it may be made larger
    c10::Allocator* allocator = c10::GetAllocator(owner.device->where().type());
    return make_window(window, c10::Storage(c10::Storage::use_byte_size_t(), 0, allocator->allocate(0), allocator,
                                            /*resizable=*/true));
  }
  return make_window(window, owner.storage);
}

bool Program::lies_in_arena(const Buffer& buffer) const {
  return buffer.kind == BufferKind::planned && !buffer.elsewhere && buffer.bytes > 0;
}

// The outputs from the `first` on. Those that lie in the arena stay there, and keep the place leased.
std::vector<at::Tensor> Program::hand_out(std::size_t first) {
  std::map<int, c10::Storage> lent;
  std::int64_t end = 0;
  for (std::size_t o = first; o < outputs_.size(); ++o) {
    const int buffer = at_index(windows_, outputs_[o]).buffer;
    const Buffer& owner = at_index(buffers_, buffer);
    if (!lies_in_arena(owner)) continue;
    lent.emplace(buffer, c10::Storage());
    end = std::max(end, owner.offset + owner.bytes);
  }
  std::vector<int> kept;  // by an operator, which has seen the tensor that the caller gets
  if (!lent.empty()) {
    lease_.resize(end);
    const Loan loan(arena_.device(), std::move(lease_));
    for (auto& [buffer, storage] : lent) {
      const Buffer& owner = at_index(buffers_, buffer);
      c10::DataPtr memory = loan.lend(home_ + owner.offset, owner.bytes);
      if (is_held_outside(buffer)) {
        kept.push_back(buffer);
        storage = owner.storage;
        storage.set_data_ptr_noswap(std::move(memory));
      } else {
        storage = c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(owner.bytes),
                               std::move(memory), c10::GetAllocator(owner.device->where().type()), /*resizable=*/true);
      }
    }
  }
  std::vector<at::Tensor> results;
  results.reserve(outputs_.size() - first);
  const std::lock_guard lock(handed_out_mutex_);
  handed_out_.clear();
  for (std::size_t o = first; o < outputs_.size(); ++o) {
    const Window& window = at_index(windows_, outputs_[o]);
    const auto found = lent.find(window.buffer);
    results.push_back(found == lent.end() ? given(outputs_[o]) : make_window(window, found->second));
    if (at_index(buffers_, window.buffer).kind == BufferKind::bound) continue;
    handed_out_.emplace_back(static_cast<int>(o), results.back().storage().getWeakStorageImpl());
  }
  for (const int buffer : kept) renew(buffer);
  return results;
}

std::vector<int> Program::held_outputs() const {
  const std::lock_guard lock(handed_out_mutex_);
  std::vector<int> held;
  for (const auto& [output, storage] : handed_out_) {
    if (!storage.expired()) held.push_back(output);
  }
  return held;
}

void Program::time_calls() {
  TORCH_CHECK(open_ && finished_, "lowtide: this step was closed");
  TORCH_CHECK(!guard_, "lowtide: a guarded step takes other times");
  times_.start(calls_.size(), arena_.device().where());
}

// Whether there was anything to do.
bool Program::execute(int index, Replay& replay, torch::jit::Stack& stack) {
  Call& call = at_index(calls_, index);
  const bool apart = keep_apart(call);
  const std::vector<Request>& requests = apart ? apart_ : call.spec.requests;
  if (guard_) guard_->before(index, apart);
  const bool done_already = is_done_already(call, apart);
  if (!done_already) {
    wrote_bound_ |= call.writes_bound;  // even if it throws, it may have begun to
    if (swaps_) {
      for (const int buffer : call.spec.writes) swaps_->wrote(buffer);
    }
    open_planned(call, apart);
    stack.assign(call.stack.begin(), call.stack.end());
    replay.begin_op(requests.data(), requests.size());
    open_made(call);
    {
      const at::AutoGradMode grad_mode(call.spec.grad_mode);
      if (call.drawn_again) call.found = RandomState::now(arena_.device().where());
      std::optional<RandomReplay> replayed;
      if (call.spec.draws_like >= 0) replayed.emplace(*at_index(calls_, call.spec.draws_like).found);
      call.op.callBoxed(stack);
    }
    std::size_t position = 0;
    for (const c10::IValue& result : stack) take_result(index, result, &position);
    stack.clear();
    const Replay::OpOutcome outcome = replay.end_op();
    if (outcome.missed) missed_calls_.push_back(index);
    for (std::size_t kept = 0; kept < outcome.escaped; ++kept) escapes_.push_back({index, 0});
  }
  if (guard_) guard_->after(index);
  for (const int buffer : call.spec.ends) end_life(index, buffer);
  return !done_already;
}

void Program::take_result(int index, const c10::IValue& result, std::size_t* position) {
  if (result.isTensorList()) {
    for (const at::Tensor& tensor : result.toTensorVector()) take_result(index, tensor, position);
    return;
  }
  const Call& call = at_index(calls_, index);
  const int value = *position < call.spec.results.size() ? call.spec.results[*position] : -1;
  ++*position;
  if (value < 0 || !result.isTensor()) return;
  const at::Tensor& tensor = result.toTensor();
  for (const Delivery& delivery : call.spec.delivers) {
    if (static_cast<std::size_t>(delivery.result) + 1 != *position) continue;
    deliver(call, value, tensor, delivery.adds);
    return;
  }
  const Window& window = at_index(windows_, value);
  TORCH_CHECK(tensor.defined() && tensor.sizes() == window.sizes && tensor.strides() == window.strides &&
                  tensor.scalar_type() == window.dtype,
              "lowtide: ", call.op.schema().name(), " gives a tensor of sizes ", tensor.sizes(), " and strides ",
              tensor.strides(), ", its capture said ", window.sizes, " and ", window.strides);
  Buffer& owner = at_index(buffers_, window.buffer);
  if (owner.kind == BufferKind::bound) return;  // written in place
  const void* address = tensor.storage().data();
  if (address == owner.storage.data()) return;
  point_at(window.buffer, tensor.storage(), 0);
  owner.elsewhere = true;
  if (guard_) guard_->lies_at(window.buffer, address);
}

void Program::deliver(const Call& call, int value, const at::Tensor& tensor, bool adds) {
  const at::Tensor& place = at_index(values_, value);
  TORCH_CHECK(tensor.defined() && tensor.sizes() == place.sizes() && tensor.scalar_type() == place.scalar_type(),
              "lowtide: a part of ", call.op.schema().name(), " gives a tensor of sizes ", tensor.sizes(),
              ", expected ", place.sizes());
  if (adds) {
    place.add_(tensor);
  } else if (!is_same_place(tensor, place)) {
    place.copy_(tensor);
  }
}

// What somebody outside holds is not written over, nor what this call must not replace.
void Program::open_planned(const Call& call, bool apart) {
  for (const int buffer : call.spec.opens) {
    const Buffer& owner = at_index(buffers_, buffer);
    if (owner.kind != BufferKind::planned || owner.bytes == 0) continue;
    const auto& replaces = call.spec.replaces;
    const bool replaced =
        std::any_of(replaces.begin(), replaces.end(), [&](const auto& pair) { return pair.second == buffer; });
    if ((apart && replaced) || overlaps_escaped(home_ + owner.offset, owner.bytes)) give_memory(buffer);
  }
}

void Program::open_made(const Call& call) {
  for (const int buffer : call.spec.opens) {
    if (at_index(buffers_, buffer).kind == BufferKind::made) give_memory(buffer);
  }
}

bool Program::is_held_outside(int buffer) const {
  const Buffer& owner = at_index(buffers_, buffer);
  return has_held_value(owner) ||
         is_held(*owner.storage.unsafeGetStorageImpl(), owner.storage.use_count(), owner.values.size() + 1);
}

bool Program::has_held_value(const Buffer& buffer) const {
  return std::any_of(buffer.values.begin(), buffer.values.end(), [&](int value) {
    const at::Tensor& tensor = at_index(values_, value);
    return is_held(*tensor.unsafeGetTensorImpl(), tensor.use_count(), at_index(own_uses_, value));
  });
}

// What somebody outside holds is not written over: then the results of the call go to ordinary memory.
bool Program::keep_apart(const Call& call) {
  const bool held = std::any_of(call.spec.replaces.begin(), call.spec.replaces.end(),
                                [&](const auto& replaced) { return is_held_outside(replaced.first); });
  if (!held) return false;
  apart_ = call.spec.requests;
  for (const auto& replaced : call.spec.replaces) {
    for (Request& request : apart_) {
      if (request.offset == at_index(buffers_, replaced.second).offset) request.offset = Request::kOutside;
    }
  }
  return true;
}

// A copy of what lies at the same place.
bool Program::is_done_already(const Call& call, bool apart) const {
  if (!call.spec.copies || apart || call.spec.replaces.empty()) return false;
  return !at_index(buffers_, call.spec.replaces.front().first).elsewhere;
}

void Program::end_life(int index, int buffer) {
  Buffer& owner = at_index(buffers_, buffer);
  if (is_held_outside(buffer)) {
    escapes_.push_back({index, owner.bytes});
    if (!owner.elsewhere) {
      void* address = home_ + owner.offset;
      mark_escaped(address, owner.bytes);  // until the holder lets go of this storage
      const c10::Device where = owner.device->where();
      const c10::DeleterFnPtr deleter = where.is_cpu() ? &release : &release_in_arena;
      owner.storage.set_data_ptr_noswap(c10::DataPtr(address, address, deleter, where));
    }
    renew(buffer);
  } else if (owner.elsewhere) {
    point_at(buffer, home_storage(owner), 0);
  }
  owner.elsewhere = false;
  if (guard_) guard_->end_life(index, buffer);
}

// Its values look at nothing of anybody's any more. An operator may have kept the tensors that it saw.
void Program::point_home(int buffer) {
  const Buffer& owner = at_index(buffers_, buffer);
  if (has_held_value(owner)) {
    renew(buffer);
  } else {
    point_at(buffer, home_storage(owner), 0);
  }
}

// Somebody holds the buffer's tensors: they keep them, the program makes itself new ones.
void Program::renew(int buffer) {
  Buffer& owner = at_index(buffers_, buffer);
  owner.storage = home_storage(owner);
  owner.first_byte = 0;
  for (const int value : owner.values) {
    at_index(values_, value) = make_window(at_index(windows_, value), owner.storage);
  }
  const auto uses_it = [&](const Argument& argument) {
    std::vector<int> used;
    collect_values(argument, &used);
    return std::any_of(used.begin(), used.end(), [&](int value) { return at_index(windows_, value).buffer == buffer; });
  };
  for (Call& call : calls_) {
    if (std::any_of(call.spec.arguments.begin(), call.spec.arguments.end(), uses_it)) build_stack(call);
  }
  note_use_counts();
}

// After a step, finished, failed or abandoned before call `end`: nothing of the step or of the batch is kept alive by
// the program.
void Program::let_go(int end) {
  next_call_ = 0;
  turned_.clear();
  aside_.clear();
  aside_bytes_ = 0;
  keeps_turn_ = false;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    Buffer& owner = buffers_[b];
    const bool transient = owner.kind == BufferKind::bound && owner.transient;
    if (owner.elsewhere || transient) point_home(static_cast<int>(b));
    owner.elsewhere = false;
    owner.handed = at::Tensor();
    if (owner.first_write < end && owner.bound.defined() && !owner.bound.is_inference()) {
      owner.bound.unsafeGetTensorImpl()->bump_version();  // autograd outside must notice what was written
    }
    owner.bound = at::Tensor();
  }
  lease_.give_back();
}

}  // namespace lowtide::torch_runtime
