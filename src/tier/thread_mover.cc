#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tier/mover.h"

namespace lowtide::tier {
namespace {

std::int64_t move(const Chunk& chunk, const Descriptors& files) {
  const auto [file, memory, offset, bytes] = chunk.ask(files);
  const ssize_t moved =
      chunk.direction == Direction::store ? pwrite(file, memory, bytes, offset) : pread(file, memory, bytes, offset);
  return moved < 0 ? -errno : moved;
}

void move_all(const std::shared_ptr<Transfers>& transfers) {
  const Descriptors& files = transfers->files();
  while (std::optional<Chunk> chunk = transfers->wait_for_next()) {
    if (chunk->prepare(files)) {
      while (chunk->take(move(*chunk, files))) {
      }
      chunk->complete(files);
    }
    transfers->finish(*chunk);
  }
}

class ThreadMover : public Mover {
 public:
  ThreadMover(const std::shared_ptr<Transfers>& transfers, int depth) {
    try {
      for (int i = 0; i < depth; ++i) threads_.emplace_back([transfers] { move_all(transfers); });
    } catch (const std::system_error&) {  // the system has no more threads: a few will do
      if (threads_.empty()) throw;
    }
  }

  void wake() override {}

  void end(bool all_over) override {
    for (std::thread& thread : threads_) all_over ? thread.join() : thread.detach();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Mover> make_thread_mover(std::shared_ptr<Transfers> transfers, int depth) {
  return std::make_unique<ThreadMover>(transfers, depth);
}

}  // namespace lowtide::tier
