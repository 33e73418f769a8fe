#include "op_names.h"

#include <memory>

namespace lowtide::torch_runtime {
namespace {

thread_local OpNames* watcher = nullptr;  // callbacks are plain functions

}  // namespace

OpNames::OpNames() : names_{""} {}

void OpNames::watch() {
  if (is_watching()) return;
  watcher = this;
  depth_ = 0;
  current_ = kNone;
  auto callback = at::RecordFunctionCallback(
      [](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
        if (watcher != nullptr) watcher->enter(op.name());
        return nullptr;
      },
      [](const at::RecordFunction&, at::ObserverContext*) {
        if (watcher != nullptr) watcher->leave();
      });
  handle_ = at::addThreadLocalCallback(callback.scopes({at::RecordScope::FUNCTION}));
}

void OpNames::stop() {
  if (!is_watching()) return;
  at::removeCallback(handle_);
  handle_ = at::INVALID_CALLBACK_HANDLE;
  watcher = nullptr;
  current_ = kNone;
}

std::uint32_t OpNames::current() const {
  return watcher == this ? current_ : kNone;
}

void OpNames::enter(const char* name) {
  if (depth_++ > 0) return;
  const auto [found, is_new] = numbers_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (is_new) names_.emplace_back(name);
  current_ = found->second;
}

void OpNames::leave() {
  if (depth_ > 0 && --depth_ == 0) current_ = kNone;
}

}  // namespace lowtide::torch_runtime
