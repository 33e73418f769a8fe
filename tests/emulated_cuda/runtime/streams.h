// Streams are queues of work, events are marks in them.
//
// Ordinarily work is done as soon as it is queued. In late mode it is done when something waits for it: the latest
// order that CUDA allows. Then a missing wait between two streams, or memory that is reused while another stream still
// reads it, shows in the numbers.
//
//     main   | write x | record e |
//     side   | wait for e | read x |     side.synchronize() performs main up to e, then side.
//                                        Without the wait it performs side alone, and x is not yet written.
//
// Where the host waits for the whole device, the declared figure `late` says who comes first: 1 the newest stream, so
// that it overtakes those that it should have waited for; 2 the oldest, so that memory is reused before others have
// read it; from 3 on, streams take turns at random with this seed.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "clock.h"

namespace emulated_cuda {

struct Stream;

// A place in a stream. An event can be recorded again elsewhere: who waits for it waits for the record of that moment.
struct Record {
  Stream* on;
  bool performed = false;
  double time = 0;
};

struct Event {
  std::shared_ptr<Record> last;  // null until it is recorded
  std::uint64_t asked = 0;       // queries since then
};

struct Work {
  std::function<void()> run;  // empty for waits and marks
  EngineKind engine = EngineKind::none;
  double seconds = 0;  // on the virtual clock; below 0: the CPU time that `run` takes

  std::shared_ptr<Record> wait_for;  // or: wait for this place, or be it
  std::shared_ptr<Record> marks;
};

struct Stream {
  struct Queued {
    Work work;
    double queued_at;  // host time
  };
  std::deque<Queued> queue;
  double time = 0;
  int device = 0;
  int priority = 0;
};

Stream& current_default_stream();
Stream* make_stream(int priority);
void forget_stream(Stream* stream);  // its address stays valid: events may name it

void enqueue(Stream& stream, Work work);
void record(const std::shared_ptr<Event>& event, Stream& stream);
void wait_for(const std::shared_ptr<Event>& event, Stream& stream);

// The host waits.
void synchronize(Stream& stream);
void synchronize(Event& event);
void synchronize_all();

// Whether there is nothing left. Whoever asks often enough gets there.
bool query(Stream& stream);
bool query(Event& event);

}  // namespace emulated_cuda
