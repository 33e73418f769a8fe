#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>
#include <utility>

#include "tier/mover.h"

namespace lowtide::tier {
namespace {

// One thread has the ring. Others reach it by its bell: an eventfd that the ring always has a read of.
class Ring {
 public:
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // False if the kernel refuses.
  bool open(unsigned depth) {
    if (bell_.number() < 0 || io_uring_queue_init(depth + 1, &ring_, 0) != 0) return false;
    open_ = true;
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    const bool able = probe != nullptr && io_uring_opcode_supported(probe, IORING_OP_READ) != 0 &&
                      io_uring_opcode_supported(probe, IORING_OP_WRITE) != 0;
    if (probe != nullptr) io_uring_free_probe(probe);
    return able;
  }

  void ring_bell() const {
    const std::uint64_t one = 1;
    static_cast<void>(write(bell_.number(), &one, sizeof(one)));
  }

  void listen() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, bell_.number(), &rung_, sizeof(rung_), 0);
    io_uring_sqe_set_data(entry, nullptr);
    io_uring_submit(&ring_);
  }

  void submit(Chunk* chunk, const Descriptors& files) {
    const auto [file, memory, offset, bytes] = chunk->ask(files);
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto size = static_cast<unsigned>(bytes);
    const auto place = static_cast<std::uint64_t>(offset);
    if (chunk->direction == Direction::store) {
      io_uring_prep_write(entry, file, memory, size, place);
    } else {
      io_uring_prep_read(entry, file, memory, size, place);
    }
    io_uring_sqe_set_data(entry, chunk);
    io_uring_submit(&ring_);
  }

  // Waits for something to end; null for the bell.
  std::pair<Chunk*, std::int64_t> wait() {
    io_uring_cqe* entry = nullptr;
    while (io_uring_wait_cqe(&ring_, &entry) != 0) {  // a signal
    }
    const std::pair<Chunk*, std::int64_t> ended = {static_cast<Chunk*>(io_uring_cqe_get_data(entry)), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return ended;
  }

 private:
  io_uring ring_ = {};
  bool open_ = false;
  Descriptor bell_{eventfd(0, EFD_CLOEXEC)};
  std::uint64_t rung_ = 0;
};

void feed(Ring& ring, Transfers& transfers, int depth) {
  const Descriptors& files = transfers.files();
  int at_disk = 0;
  std::unique_ptr<Chunk> ended;  // completed when the disk has the next, since checksums take a while
  ring.listen();
  while (true) {
    while (at_disk < depth) {
      std::optional<Chunk> next = transfers.next();
      if (!next) break;
      auto chunk = std::make_unique<Chunk>(*std::move(next));
      if (!chunk->prepare(files)) {
        transfers.finish(*chunk);
        continue;
      }
      ring.submit(chunk.release(), files);
      ++at_disk;
    }
    if (ended) {
      ended->complete(files);
      transfers.finish(*std::exchange(ended, nullptr));
      continue;  // others may have waited for that
    }
    if (at_disk == 0 && transfers.is_closed()) return;
    const auto [chunk, result] = ring.wait();
    if (chunk == nullptr) {
      ring.listen();
    } else if (chunk->take(result)) {
      ring.submit(chunk, files);
    } else {
      --at_disk;
      ended.reset(chunk);
    }
  }
}

class RingMover : public Mover {
 public:
  RingMover(std::shared_ptr<Ring> ring, std::shared_ptr<Transfers> transfers, int depth)
      : ring_(ring), thread_([ring, transfers, depth] { feed(*ring, *transfers, depth); }) {}

  void wake() override { ring_->ring_bell(); }

  void end(bool all_over) override { all_over ? thread_.join() : thread_.detach(); }

 private:
  std::shared_ptr<Ring> ring_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Mover> make_ring_mover(std::shared_ptr<Transfers> transfers, int depth) {
  auto ring = std::make_shared<Ring>();
  if (!ring->open(static_cast<unsigned>(depth))) return nullptr;
  return std::make_unique<RingMover>(std::move(ring), std::move(transfers), depth);
}

}  // namespace lowtide::tier
