// terminal.h: what the program does to the terminal it runs on: a line of progress, and how it ends when interrupted.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace lowtide::cli {

// Says on standard error, in one line that is overwritten and in the end cleared, what is being done; where that takes
// long, also for how long, and what has been found so far:
//
//   planning ...
//   planning 2.3 s: peak 5.61 GiB at +4.1 % time, bound 5.50 GiB, gap 2.0 %
class Progress {
 public:
  // Says nothing unless `wanted` and standard error is a terminal.
  explicit Progress(bool wanted);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void stage(std::string what);

  // May be called on another thread.
  void found(std::string text);
  void clear();

 private:
  void tick(const std::stop_token& stop);

  bool shows_;
  std::mutex mutex_;  // for the two below
  std::string found_;
  std::condition_variable_any waiting_;
  std::string stage_;
  std::chrono::steady_clock::time_point begin_;
  std::jthread ticking_;
};

// From here on Ctrl-C and SIGTERM clear the line of progress and end the program with 128 + the signal's number. Where
// the caller had them ignored, they stay so. A closed pipe is no reason to end: writing to it fails.
void take_signals();

// What a program that this one turns into expects.
void give_back_signals();

// While it lives, Ctrl-C and SIGTERM wait: a file is written wholly or not at all.
class Uninterrupted {
 public:
  Uninterrupted();
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;
};

// What a write to `output` needs. A pipe has no such care, and its reader may let us wait for ever.
std::optional<Uninterrupted> uninterrupted_write(const std::string& output);

}  // namespace lowtide::cli
