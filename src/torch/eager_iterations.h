// eager_iterations.h: iterations of eager code: what they ask for is written down, and scripts say where it is served.
//
//   begin(no script, record)  ...  finish()       an iteration that is recorded
//   begin(script)             ...  finish()       one that is served from the arena
//
// Where the arena lies is another matter: eager_replay.h for the CPU, device_replay.h for other devices.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "op_names.h"
#include "replay/script.h"
#include "replay/server.h"
#include "replay/trace.h"

namespace lowtide::torch_runtime {

class EagerIterations {
 public:
  virtual ~EagerIterations() = default;

  // No more iterations, by the thread that started them; the arena goes, but for what is alive in it.
  virtual void stop() = 0;

  virtual void set_paused(bool paused) { paused_ = paused; }

  // Memory for scripts of up to so many bytes. Throws c10::Error when there is none.
  virtual void set_arena(std::int64_t bytes) = 0;

  // Without a script all requests are ordinary ones.
  using Scripts = std::vector<std::shared_ptr<replay::Script>>;
  virtual void begin(Scripts variants, replay::Suits suits, bool record) = 0;

  struct Outcome {
    replay::Tally tally;
    std::int64_t unplanned = 0;  // requests that were made without a script
    std::int64_t escaped = 0;    // blocks that are alive; the script no longer serves them in the arena
    bool blocked = false;        // something that had escaped before was in the way
  };
  virtual Outcome finish();

  // The requests of the last iteration that was recorded; none if it was too long. If it had no script, also the
  // operator that made each, "" where none is known.
  struct Recording {
    static constexpr std::int64_t kAlignment = 64;
    std::vector<replay::TracedRequest> requests;
    std::vector<std::string> ops;
    std::int64_t alignment = kAlignment;  // of places for them
  };
  virtual Recording take_recording();

  // Requests that other threads made, and blocks that outlived their arena and are not released.
  std::int64_t requests_elsewhere() const { return elsewhere_.load(std::memory_order_relaxed); }
  virtual std::size_t blocks_left_behind() = 0;

  // -- for the allocator ------------------------------------------------------------------------------------------

  std::int64_t highest_end() const { return server_.tally().highest_end; }
  bool is_recording() const { return recording_; }
  void note_request(const void* address, std::int64_t bytes) {
    if (paused_) return;
    events_.push_back({address, bytes});
    if (op_names_.is_watching()) ops_.push_back(op_names_.current());
    if (events_.size() >= kLongestRecording) [[unlikely]]
      drop_recording();
  }
  void note_release(const void* address) {
    events_.push_back({address, replay::TraceEvent::kReleased});
    if (events_.size() >= kLongestRecording) [[unlikely]]
      drop_recording();
  }
  void count_elsewhere() { elsewhere_.fetch_add(1, std::memory_order_relaxed); }

 protected:
  // The offset of a request in the arena; below 0 if it is an ordinary one.
  std::int64_t place(std::int64_t bytes) {
    if (paused_) return replay::kOutside;
    if (variants_.empty()) {
      ++unplanned_;
      return replay::kOutside;
    }
    return server_.serve(bytes);
  }
  bool is_planned() const { return !variants_.empty(); }
  bool is_paused() const { return paused_; }

  void start_anew();

  // Iterations in a row that begin while something that escaped is alive, this one included.
  int count_blocked();
  void forget_blocked() { blocked_ = 0; }

  // An iteration begins, with an arena of so many bytes.
  void follow(Scripts variants, replay::Suits suits, bool record, std::int64_t arena_bytes);
  void give_up_recording();

  replay::Server server_;

 private:
  static constexpr std::size_t kLongestRecording = 4'000'000;  // events

  void drop_recording();
  void serve_outside(std::span<const replay::Escaped> escaped);

  Scripts variants_;
  bool paused_ = false;
  bool recording_ = false;
  std::int64_t unplanned_ = 0;
  int blocked_ = 0;
  std::vector<replay::TraceEvent> events_;
  OpNames op_names_;
  std::vector<std::uint32_t> ops_;  // of the requests among the events, if names are watched
  std::atomic<std::int64_t> elsewhere_{0};
};

}  // namespace lowtide::torch_runtime
