#include "tier/transfers.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace lowtide::tier {
namespace {

using Clock = std::chrono::steady_clock;

bool overlap(std::int64_t a, std::int64_t a_bytes, std::int64_t b, std::int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

bool conflict(const Transfer& a, const Transfer& b) {
  const bool stores = a.direction == Direction::store || b.direction == Direction::store;
  if (stores && overlap(a.offset, a.bytes, b.offset, b.bytes)) return true;
  const bool loads = a.direction == Direction::load || b.direction == Direction::load;
  return loads && a.memory < b.memory + b.bytes && b.memory < a.memory + a.bytes;
}

}  // namespace

Transfers::Transfers(Descriptors files, Limits limits)
    : files_(std::move(files)), limits_(limits), contents_(files_.ordinary) {}

Ticket Transfers::issue(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  const Ticket ticket = ++last_ticket_;
  const Fault fault = faults_ ? faults_->of_next_transfer() : Fault::none;
  if (transfer.bytes == 0) return ticket;
  if (queue_.empty()) last_move_ = Clock::now();
  const bool aligned = reinterpret_cast<std::uintptr_t>(transfer.memory) % kDirectAlignment == 0;
  queue_.emplace(ticket, Pending{transfer, aligned && files_.direct != nullptr, fault});
  work_.notify_one();
  return ticket;
}

// `over` is asked with the lock. False if nothing moves for too long before that.
template <typename Over>
bool Transfers::wait_until(std::unique_lock<std::mutex>& lock, Over over) {
  const Clock::time_point since = Clock::now();
  while (!over()) {
    const Clock::time_point limit = std::max(since, last_move_) + limits_.patience;
    if (Clock::now() >= limit) return false;
    moved_.wait_until(lock, limit);
  }
  return true;
}

std::optional<Failure> Transfers::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  if (!wait_until(lock, [&] { return !queue_.contains(ticket); })) {
    return Failure{queue_.at(ticket).transfer, Failure::Reason::late, ETIMEDOUT};
  }
  auto failed = failures_.extract(ticket);
  if (failed.empty()) return std::nullopt;
  return failed.mapped();
}

std::optional<Failure> Transfers::wait_all() {
  std::unique_lock lock(mutex_);
  if (!wait_until(lock, [&] { return queue_.empty(); })) {
    return Failure{queue_.begin()->second.transfer, Failure::Reason::late, ETIMEDOUT};
  }
  if (failures_.empty()) return std::nullopt;
  return std::exchange(failures_, {}).begin()->second;
}

bool Transfers::wait_for(std::int64_t offset, std::int64_t bytes) {
  std::unique_lock lock(mutex_);
  return wait_until(lock, [&] {
    return std::none_of(queue_.begin(), queue_.end(), [&](const auto& each) {
      return overlap(offset, bytes, each.second.transfer.offset, each.second.transfer.bytes);
    });
  });
}

bool Transfers::is_quiet() {
  const std::lock_guard lock(mutex_);
  return queue_.empty();
}

void Transfers::set_faults(std::shared_ptr<Faults> faults) {
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
}

std::optional<Chunk> Transfers::next() {
  const std::lock_guard lock(mutex_);
  return take_next();
}

std::optional<Chunk> Transfers::wait_for_next() {
  std::unique_lock lock(mutex_);
  std::optional<Chunk> chunk;
  work_.wait(lock, [&] { return closed_ || (chunk = take_next()).has_value(); });
  return chunk;
}

std::optional<Chunk> Transfers::take_next() {
  for (auto each = queue_.begin(); each != queue_.end();) {
    const auto here = each++;
    Pending& pending = here->second;
    if (!pending.begun) {
      if (has_to_wait(here)) continue;
      if (!begin(pending)) {
        end(here);
        continue;
      }
    }
    if (pending.given_out < pending.transfer.bytes) return cut(here->first, pending);
  }
  return std::nullopt;
}

bool Transfers::has_to_wait(Queue::const_iterator pending) const {
  return std::any_of(queue_.begin(), pending,
                     [&](const auto& earlier) { return conflict(earlier.second.transfer, pending->second.transfer); });
}

// False if it is over before it has begun.
bool Transfers::begin(Pending& pending) {
  const Transfer& transfer = pending.transfer;
  if (transfer.direction == Direction::load && contents_.is_lost(transfer.offset, transfer.bytes)) return false;
  pending.begun = true;
  pending.checksums.resize(static_cast<std::size_t>((transfer.bytes + limits_.chunk_bytes - 1) / limits_.chunk_bytes));
  if (transfer.direction == Direction::store) contents_.begin_store(transfer.offset, transfer.bytes);
  return true;
}

Chunk Transfers::cut(Ticket ticket, Pending& pending) {
  const Transfer& transfer = pending.transfer;
  const std::int64_t begin = pending.given_out;
  const std::int64_t bytes = std::min(limits_.chunk_bytes, transfer.bytes - begin);
  const bool last = begin + bytes == transfer.bytes;
  pending.given_out += bytes;
  ++pending.at_disk;
  return {.transfer = ticket,
          .index = static_cast<std::size_t>(begin / limits_.chunk_bytes),
          .direction = transfer.direction,
          .memory = transfer.memory + begin,
          .offset = transfer.offset + begin,
          .bytes = bytes,
          .direct = pending.direct,
          .fault = last ? pending.fault : Fault::none,
          .faults = last && pending.fault == Fault::stuck ? faults_ : nullptr};
}

void Transfers::finish(const Chunk& chunk) {
  const std::lock_guard lock(mutex_);
  last_move_ = Clock::now();
  const auto found = queue_.find(chunk.transfer);
  Pending& pending = found->second;
  pending.checksums[chunk.index] = chunk.checksum;
  if (chunk.error != 0) {
    pending.error = chunk.error;
    pending.given_out = pending.transfer.bytes;
  }
  if (--pending.at_disk == 0 && pending.given_out == pending.transfer.bytes) end(found);
}

std::optional<Failure::Reason> Transfers::outcome(Pending& pending) {
  const auto [direction, memory, offset, bytes] = pending.transfer;
  if (!pending.begun) return Failure::Reason::lost;
  if (pending.error != 0) return Failure::Reason::system;
  if (direction == Direction::store) {
    contents_.end_store(offset, bytes, std::move(pending.checksums));
    return std::nullopt;
  }
  if (contents_.is_right(offset, bytes, pending.transfer.memory, pending.checksums)) return std::nullopt;
  return Failure::Reason::checksum;
}

void Transfers::end(Queue::iterator pending) {
  Pending& last = pending->second;
  const std::optional<Failure::Reason> failed = outcome(last);
  if (last.begun && last.transfer.direction == Direction::store) contents_.end_change();
  if (failed) failures_.emplace(pending->first, Failure{last.transfer, *failed, last.error});
  queue_.erase(pending);
  work_.notify_all();
  moved_.notify_all();
}

void Transfers::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  work_.notify_all();
}

bool Transfers::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace lowtide::tier
