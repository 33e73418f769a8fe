#include "terminal.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <utility>

namespace lowtide::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
constexpr std::string_view kClear = "\r\x1b[K";

volatile std::sig_atomic_t line_shown = 0;

// Called by a signal handler too. Nothing can be done about progress that cannot be shown.
void write_error(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void end_by_signal(int signal) {
  if (line_shown != 0) write_error(kClear);
  ::_exit(128 + signal);
}

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

Progress::Progress(bool wanted) : shows_(wanted && ::isatty(STDERR_FILENO) == 1) {}

void Progress::stage(std::string_view what) {
  if (!shows_) return;
  line_shown = 1;
  write_error(std::string(kClear) + std::string(what) + " ...");
}

void Progress::clear() {
  if (line_shown == 0) return;
  write_error(kClear);
  line_shown = 0;
}

void take_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  for (const int signal : kSignals) {
    if (std::signal(signal, end_by_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

void give_back_signals() {
  std::signal(SIGPIPE, SIG_DFL);
}

Uninterrupted::Uninterrupted() {
  const sigset_t set = signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
}

Uninterrupted::~Uninterrupted() {
  const sigset_t set = signals();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

std::optional<Uninterrupted> uninterrupted_write(const std::string& output) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(output, ignored);
  if (std::filesystem::is_other(status)) return std::nullopt;
  return std::optional<Uninterrupted>(std::in_place);
}

}  // namespace lowtide::cli
