// queue_clock.h: how long a device takes for what is queued between two moments, by its own events.
//
//   current stream   | earlier work | begin() |   call   | nanos()
//                                   |<------------------>|
//
// Earlier work, and all that the stream waits for then, is over when the clock begins: transfers on other streams count
// for nothing.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <optional>

namespace lowtide::torch_runtime {

class QueueClock {
 public:
  explicit QueueClock(c10::Device where);

  void begin();
  std::int64_t nanos();  // waits for what was queued since

 private:
  c10::Device where_;
  c10::Event begin_;
  c10::Event end_;
};

}  // namespace lowtide::torch_runtime
