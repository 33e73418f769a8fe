#include "queue_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>

namespace lowtide::torch_runtime {
namespace {

c10::Stream current_stream(c10::Device where) {
  return c10::impl::VirtualGuardImpl(where.type()).getStream(where);
}

}  // namespace

QueueClock::QueueClock(c10::Device where)
    : where_(where),
      begin_(where.type(), c10::EventFlag::BACKEND_DEFAULT),
      end_(where.type(), c10::EventFlag::BACKEND_DEFAULT) {}

void QueueClock::begin() {
  const c10::Stream stream = current_stream(where_);
  stream.synchronize();
  begin_.record(stream);
}

std::int64_t QueueClock::nanos() {
  end_.record(current_stream(where_));
  end_.synchronize();
  return std::llround(1e6 * begin_.elapsedTime(end_));
}

}  // namespace lowtide::torch_runtime
