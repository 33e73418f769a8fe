#include "streams.h"

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "devices.h"
#include "figures.h"
#include "operators.h"

namespace emulated_cuda {
namespace {

constexpr std::uint64_t kPatience = 256;  // queries of an event that is not performed, until its stream takes a step

std::vector<Stream*>& streams() {
  static auto* const made = new std::vector<Stream*>;
  return *made;
}

void perform_until(const Record& record);

void perform_first(Stream& stream) {
  Stream::Queued first = std::move(stream.queue.front());
  stream.queue.pop_front();
  Work& work = first.work;
  if (work.wait_for) {
    perform_until(*work.wait_for);
    stream.time = std::max(stream.time, work.wait_for->time);
  } else if (work.marks) {
    work.marks->performed = true;
    work.marks->time = stream.time = std::max(stream.time, first.queued_at);
  } else {
    const double begin = thread_seconds();
    if (work.run) work.run();
    const double seconds = work.seconds < 0 ? thread_seconds() - begin : work.seconds;
    stream.time = engine(work.engine).end_of(std::max(stream.time, first.queued_at), seconds);
  }
}

void perform_until(const Record& record) {
  while (!record.performed) perform_first(*record.on);
}

Stream* next_to_perform() {
  static std::mt19937_64 chance;
  static std::uint64_t seed = 0;
  if (figures().late != seed) chance.seed(seed = figures().late);
  std::vector<Stream*> waiting;
  std::copy_if(streams().begin(), streams().end(), std::back_inserter(waiting),
               [](Stream* s) { return !s->queue.empty(); });
  if (waiting.empty()) return nullptr;
  if (seed > 2) return waiting[chance() % waiting.size()];
  return seed == 2 ? waiting.front() : waiting.back();
}

}  // namespace

Stream& current_default_stream() {
  static auto* const made = new std::map<int, Stream*>;
  Stream*& stream = (*made)[current_device()];
  if (stream == nullptr) {  // it counts as older than all others, whenever it is first used
    stream = make_stream(0);
    std::rotate(streams().begin(), streams().end() - 1, streams().end());
  }
  return *stream;
}
Stream* make_stream(int priority) {
  auto* const made = new Stream;
  made->device = current_device();
  made->priority = priority;
  streams().push_back(made);
  return made;
}
void forget_stream(Stream* stream) {
  while (!stream->queue.empty()) perform_first(*stream);
  std::erase(streams(), stream);
}

void enqueue(Stream& stream, Work work) {
  stream.queue.push_back({std::move(work), host_time()});
  if (figures().late == 0) {
    while (!stream.queue.empty()) perform_first(stream);
  }
}
void record(const std::shared_ptr<Event>& event, Stream& stream) {
  event->last = std::make_shared<Record>(Record{.on = &stream});
  event->asked = 0;
  enqueue(stream, {.run = {}, .wait_for = {}, .marks = event->last});
}
void wait_for(const std::shared_ptr<Event>& event, Stream& stream) {
  if (event->last) enqueue(stream, {.run = {}, .wait_for = event->last, .marks = {}});
}

void synchronize(Stream& stream) {
  note_wait();
  while (!stream.queue.empty()) perform_first(stream);
  host_waits_until(stream.time);
}
void synchronize(Event& event) {
  note_wait();
  if (!event.last) return;
  perform_until(*event.last);
  host_waits_until(event.last->time);
}
void synchronize_all() {
  note_wait();
  while (Stream* const next = next_to_perform()) perform_first(*next);
  for (const Stream* stream : streams()) host_waits_until(stream->time);
}

bool query(Stream& stream) {
  if (stream.queue.empty()) return true;
  perform_first(stream);
  return false;
}
bool query(Event& event) {
  if (!event.last || event.last->performed) return true;
  if (++event.asked % kPatience == 0) perform_first(*event.last->on);
  return false;
}

}  // namespace emulated_cuda
