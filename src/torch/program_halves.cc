// A program with a turn: one half up to it, the other from there on, and what lies in the arena in between.
#include <ATen/core/LegacyTypeDispatch.h>

#include <memory>
#include <utility>

#include "at_index.h"
#include "device_step.h"
#include "program.h"

namespace lowtide::torch_runtime {
namespace {

void copy_bytes(Device& device, void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto window = [&](void* memory) {
    c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes),
                         c10::DataPtr(memory, device.where()), nullptr, /*resizable=*/false);
    at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(device.key()),
                                                               c10::scalarTypeToTypeMeta(at::kByte));
    made.unsafeGetTensorImpl()->set_sizes_contiguous({bytes});
    return made;
  };
  window(to).copy_(window(const_cast<void*>(from)), /*non_blocking=*/true);  // NOLINT: it is read
}

struct Token {
  std::shared_ptr<Program> program;
  std::uint64_t run;
  void (*give_up)(Program&, std::uint64_t);
};

void free_token(void* context) {
  const std::unique_ptr<Token> token(static_cast<Token*>(context));
  token->give_up(*token->program, token->run);
}

}  // namespace

bool Program::claim() {
  const std::lock_guard lock(claim_mutex_);
  if (claim_ != Claim::idle) return false;
  claim_ = Claim::claimed;
  ++run_;
  return true;
}

void Program::unclaim() {
  unclaim_as(next_call_ > 0 ? Claim::turned : Claim::idle);
}

Program::Claim Program::claimed() const {
  const std::lock_guard lock(claim_mutex_);
  return claim_;
}

void Program::unclaim_as(Claim state) {
  const std::lock_guard lock(claim_mutex_);
  claim_ = state;
}

std::vector<at::Tensor> Program::run_to_turn(const std::function<void()>& look) {
  TORCH_CHECK(at_turn_, "lowtide: this program has no halves");
  try {
    run_until(at_turn_->call, look);
  } catch (...) {
    give_up_after_failure();
    throw;
  }
  std::vector<at::Tensor> results;
  results.reserve(at_turn_->outputs);
  for (std::size_t o = 0; o < at_turn_->outputs; ++o) {
    results.push_back(given(outputs_[o]));
    Buffer& owner = at_index(buffers_, at_index(windows_, outputs_[o]).buffer);
    c10::TensorImpl& impl = *results.back().unsafeGetTensorImpl();
    if (owner.kind != BufferKind::made || owner.last_use < at_turn_->call || impl.is_inference()) continue;
    owner.handed =
        at::Tensor(impl.shallow_copy_and_detach(impl.version_counter(), /*allow_tensor_metadata_change=*/true));
  }
  if (at_turn_->call == static_cast<int>(calls_.size()) && at_turn_->outputs == outputs_.size()) {  // no second half
    let_go(next_call_);
    unclaim_as(Claim::idle);
    return results;
  }
  let_go_at_turn();
  results.push_back(make_token());
  unclaim_as(Claim::turned);
  return results;
}

// Nothing that the second half does not need is held from here on.
void Program::let_go_at_turn() {
  keeps_turn_ = false;
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    Buffer& owner = buffers_[b];
    if (owner.first_write < at_turn_->call && owner.bound.defined() && !owner.bound.is_inference()) {
      owner.bound.unsafeGetTensorImpl()->bump_version();
    }
    if (owner.kind != BufferKind::planned && owner.last_use < at_turn_->call) let_go_of(static_cast<int>(b));
    const at::Tensor& seen = owner.handed.defined() ? owner.handed : owner.bound;
    owner.at_turn = seen.defined();
    if (seen.defined() && !seen.is_inference()) owner.version = static_cast<std::uint32_t>(seen._version());
  }
  if (!guard_) lease_.resize(at_turn_->kept_bytes);
}

void Program::let_go_of(int buffer) {
  Buffer& owner = at_index(buffers_, buffer);
  if (owner.elsewhere || owner.bound.defined()) point_home(buffer);
  owner.elsewhere = false;
  owner.bound = at::Tensor();
  owner.handed = at::Tensor();
}

at::Tensor Program::make_token() {
  auto token = std::make_unique<Token>();
  token->program = shared_from_this();
  token->run = run_;
  token->give_up = [](Program& program, std::uint64_t run) { program.give_up(run); };
  void* context = token.release();
  c10::DataPtr pointer(context, context, &free_token, c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, std::move(pointer), nullptr, /*resizable=*/false);
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(at::kByte));
  made.unsafeGetTensorImpl()->set_sizes_contiguous({0, 0});  // as no tensor of PyTorch's graphs has in its place
  return made;
}

std::shared_ptr<Program> Program::claim_turned(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& pointer = tensor.storage().data_ptr();
  if (pointer.get_deleter() != &free_token) return nullptr;
  const auto* token = static_cast<const Token*>(pointer.get_context());
  const std::lock_guard lock(token->program->claim_mutex_);
  if (token->program->claim_ != Claim::turned || token->program->run_ != token->run) return nullptr;
  token->program->claim_ = Claim::claimed;
  return token->program;
}

// Nobody has a use for the second half of a run any more.
void Program::give_up(std::uint64_t run) {
  {
    const std::lock_guard lock(claim_mutex_);
    if (claim_ != Claim::turned || run_ != run) return;
    claim_ = Claim::claimed;
  }
  let_go(next_call_);
  unclaim_as(Claim::idle);
}

// A half that failed may not even have begun, when there is no memory for its place.
void Program::give_up_after_failure() {
  if (open_) let_go(next_call_);
  unclaim_as(Claim::idle);
}

int Program::changed_since_turn() const {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& owner = buffers_[b];
    if (owner.last_use < at_turn_->call || !owner.at_turn) continue;
    const at::Tensor& seen = owner.handed.defined() ? owner.handed : owner.bound;
    const bool written = seen.defined() && !seen.is_inference() && seen._version() != owner.version;
    if (written || has_moved(owner)) return static_cast<int>(b);
  }
  return -1;
}

std::vector<at::Tensor> Program::run_from_turn(bool again, const std::function<void()>& look) {
  try {
    TORCH_CHECK(!guard_ || !again, "lowtide: a guarded region is backward once");
    come_back();
    again ? put_aside() : aside_.clear();
    run_until(static_cast<int>(calls_.size()), look);
  } catch (...) {
    give_up_after_failure();
    throw;
  }
  std::vector<at::Tensor> results = hand_out(at_turn_->outputs);
  if (!again) {
    let_go(next_call_);
    unclaim_as(Claim::idle);
    return results;
  }
  next_call_ = at_turn_->call;
  for (AtTurn& was : turned_) {
    point_at(was.buffer, was.storage, was.first_byte);
    Buffer& owner = at_index(buffers_, was.buffer);
    owner.elsewhere = was.elsewhere;
    if (!owner.at_turn) owner.bound = at::Tensor();  // another tangent comes next time
  }
  lease_.give_back();
  unclaim_as(Claim::turned);
  return results;
}

// The whole of its place again: where it was, or somewhere else with what the first half has left there.
void Program::come_back() {
  if (lease_ && lease_.resize(arena_bytes_)) return;
  Lease there(arena_, arena_bytes_);
  if (!there) return;
  const void* left = aside_ ? aside_.get() : home_;
  {
    const DeviceStep leaves(arena_.device(), home_, at_turn_->kept_bytes);
    const DeviceStep arrives(arena_.device(), there.base(), arena_bytes_);
    copy_bytes(arena_.device(), there.base(), left, at_turn_->kept_bytes);
  }
  lie_at(there.base());
  lease_ = std::move(there);
}

// What lies in the arena, and where values look, for a second half that runs once more.
void Program::put_aside() {
  turned_.clear();
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const Buffer& buffer = buffers_[b];
    if (buffer.kind == BufferKind::planned && !buffer.elsewhere) continue;
    turned_.push_back({static_cast<int>(b), buffer.storage, buffer.first_byte, buffer.elsewhere});
  }
  const auto bytes = static_cast<std::size_t>(at_turn_->kept_bytes);
  if (!aside_) aside_ = c10::GetAllocator(arena_.device().where().type())->allocate(bytes);
  aside_bytes_ = at_turn_->kept_bytes;
  const DeviceStep reads(arena_.device(), home_, aside_bytes_);
  copy_bytes(arena_.device(), aside_.get(), home_, aside_bytes_);
  keeps_turn_ = true;
}

// The caller's memory, behind the last call of a second half that uses it.
void Program::let_go_after(int index) {
  if (keeps_turn_) return;
  for (const int buffer : at_index(uses_end_, index)) {
    if (at_index(buffers_, buffer).first_write == kNeverWritten) let_go_of(buffer);
  }
}

}  // namespace lowtide::torch_runtime
