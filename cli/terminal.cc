#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace lowtide::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};
constexpr std::string_view kClear = "\r\x1b[K";
constexpr std::chrono::milliseconds kTick(200);

volatile std::sig_atomic_t line_shown = 0;

// Called by a signal handler too. Nothing can be done about progress that cannot be shown.
void write_error(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void end_by_signal(int signal) {
  const bool shown = line_shown != 0;
  line_shown = 0;
  if (shown) write_error(kClear);
  ::_exit(128 + signal);
}

// A line that wraps could not be cleared.
std::string_view cut_to_terminal(std::string_view line) {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  return line.substr(0, size.ws_col - 1u);
}

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

Progress::Progress(bool wanted) : shows_(wanted && ::isatty(STDERR_FILENO) == 1) {}

void Progress::stage(std::string what) {
  if (!shows_) return;
  ticking_ = {};
  stage_ = std::move(what);
  found_.clear();
  begin_ = std::chrono::steady_clock::now();
  line_shown = 1;
  write_error(std::string(kClear) + stage_ + " ...");
  const Uninterrupted signals_go_to_this_thread;
  try {
    ticking_ = std::jthread([this](const std::stop_token& stop) { tick(stop); });
  } catch (const std::system_error&) {  // no thread to be had: the line stays as it is
  }
}

void Progress::found(std::string text) {
  const std::scoped_lock lock(mutex_);
  found_ = std::move(text);
}

void Progress::tick(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!waiting_.wait_for(lock, stop, kTick, [&] { return stop.stop_requested(); })) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    std::array<char, 32> elapsed{};
    std::snprintf(elapsed.data(), elapsed.size(), " %.1f s", seconds.count());
    const std::string line = stage_ + elapsed.data() + (found_.empty() ? "" : ": ") + found_;
    if (line_shown != 0) write_error(std::string(kClear) + std::string(cut_to_terminal(line)));
  }
}

void Progress::clear() {
  ticking_ = {};
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
