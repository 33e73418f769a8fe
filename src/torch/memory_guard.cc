#include "memory_guard.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator.h"
#include "arena.h"

namespace lowtide::torch_runtime {
namespace {

constexpr std::int64_t kLine = 64;
static_assert(kGuardMargin == kLine);

// Owners of a line that are no buffers. A dead line remembers after which call it died.
constexpr int kLent = -1;
constexpr int kRunningWorkspace = -2;
constexpr int kBeforeTheStep = -1;
constexpr int dead_since(int call) {
  return -4 - call;
}
constexpr bool is_dead(int owner) {
  return owner <= dead_since(kBeforeTheStep);
}
constexpr int died_after(int owner) {
  return -4 - owner;
}

constexpr unsigned char kPoisonBytes[2] = {0xFD, 0x7F};  // 0x7FFD in every two bytes
constexpr std::uint64_t kPoison = 0x7FFD7FFD7FFD7FFD;

std::int64_t lines_of(std::int64_t bytes) {
  return (bytes + kLine - 1) / kLine;
}

void poison(std::byte* begin, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += 8) std::memcpy(begin + i, &kPoison, 8);
}

// The first byte of `bytes` from `begin` on that is not poison, or `bytes`. `phase` is begin's place in its line.
std::int64_t first_change(const std::byte* begin, std::int64_t bytes, std::int64_t phase) {
  std::int64_t i = 0;
  for (; i < bytes && (phase + i) % 8 != 0; ++i) {
    if (static_cast<unsigned char>(begin[i]) != kPoisonBytes[(phase + i) % 2]) return i;
  }
  for (; i + 8 <= bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin + i, 8);
    if (word != kPoison) break;
  }
  for (; i < bytes; ++i) {
    if (static_cast<unsigned char>(begin[i]) != kPoisonBytes[(phase + i) % 2]) return i;
  }
  return bytes;
}

struct Print {
  std::uint64_t content;
  bool poisoned;
};

// Four lanes, so that the multiplications do not wait for each other.
Print print_of(const std::byte* data, std::int64_t bytes) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::uint64_t words[4];
  bool poisoned = false;
  std::int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    std::memcpy(words, data + i, 32);
    for (int lane = 0; lane < 4; ++lane) {
      lanes[lane] = (lanes[lane] ^ words[lane]) * kFactor;
      poisoned |= words[lane] == kPoison;
    }
  }
  for (; i < bytes; i += 8) {
    const auto left = static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - i));
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, left);
    lanes[0] = (lanes[0] ^ word) * kFactor;
    poisoned |= left >= 4 && std::memcmp(&word, &kPoison, left) == 0;
  }
  std::uint64_t content = static_cast<std::uint64_t>(bytes);
  for (const std::uint64_t lane : lanes) content = (content ^ (lane >> 32) ^ lane) * kFactor;
  return {content, poisoned};
}

const char* words_for(MemoryFault::Kind kind) {
  switch (kind) {
    case MemoryFault::Kind::overlap:
      return "overlap";
    case MemoryFault::Kind::dead_operand:
      return "dead_operand";
    case MemoryFault::Kind::changed:
      return "changed";
    case MemoryFault::Kind::out_of_range:
      return "out_of_range";
    case MemoryFault::Kind::dead_changed:
      return "dead_changed";
    case MemoryFault::Kind::poison_result:
      return "poison_result";
  }
  return "";
}

MemoryFault fault(MemoryFault::Kind kind, int buffer, int first_suspect, int last_suspect) {
  MemoryFault found(kind);
  found.buffer = buffer;
  found.first_suspect = std::max(first_suspect, 0);
  found.last_suspect = last_suspect;
  return found;
}

}  // namespace

MemoryFault::MemoryFault(Kind what) : std::runtime_error(words_for(what)), kind(what) {}

MemoryGuard::MemoryGuard(GuardLevel level, const Arena& arena, std::int64_t arena_bytes)
    : level_(level),
      arena_(arena),
      arena_bytes_(arena_bytes),
      lines_(static_cast<std::size_t>(lines_of(arena_bytes))) {}

void MemoryGuard::add_buffer(std::int64_t offset, std::int64_t bytes) {
  buffers_.push_back({.offset = offset, .bytes = bytes});
}

void MemoryGuard::add_call(Operands operands) {
  const auto outside = [&](int buffer) { return buffers_[static_cast<std::size_t>(buffer)].bytes == 0; };
  std::erase_if(operands.takes, outside);
  std::erase_if(operands.makes, outside);
  std::erase_if(operands.writes, outside);
  calls_.push_back(std::move(operands));
}

void MemoryGuard::begin_step(std::byte* base) {
  base_ = base;
  std::fill(lines_.begin(), lines_.end(), dead_since(kBeforeTheStep));
  for (const auto& [place, bytes] : escaped_stretches(arena_)) {
    const std::int64_t offset = place - (base_ - arena_.base());
    const std::int64_t end = std::min(lines_of(offset + bytes), static_cast<std::int64_t>(lines_.size()));
    for (std::int64_t line = std::max<std::int64_t>(offset, 0) / kLine; line < end; ++line) {
      lines_[static_cast<std::size_t>(line)] = kLent;
    }
  }
  for (std::size_t line = 0; line < lines_.size(); ++line) {
    if (is_dead(lines_[line])) poison(base_ + static_cast<std::int64_t>(line) * kLine, kLine);
  }
  for (Watched& buffer : buffers_) buffer.alive = false;
}

void MemoryGuard::before(int call, bool apart) {
  const Operands& operands = calls_[static_cast<std::size_t>(call)];
  for (const int buffer : operands.takes) check_taken(call, buffer);
  for (const int buffer : operands.makes) {
    Watched& made = buffers_[static_cast<std::size_t>(buffer)];
    const auto replaced = std::find_if(operands.replaces.begin(), operands.replaces.end(),
                                       [&](const auto& pair) { return pair.second == buffer; });
    if (replaced == operands.replaces.end()) {
      claim(call, made.offset, made.bytes, buffer);
    } else if (!apart) {
      take_over(replaced->first, buffer);
    }
    made.alive = true;
    made.place = base_ + made.offset;
  }
  if (operands.workspace_bytes > 0) {
    claim(call, operands.workspace_offset, operands.workspace_bytes, kRunningWorkspace);
  }
}

void MemoryGuard::lies_at(int buffer, const void* place) {
  buffers_[static_cast<std::size_t>(buffer)].place = static_cast<const std::byte*>(place);
}

void MemoryGuard::check_taken(int call, int buffer) {
  Watched& taken = buffers_[static_cast<std::size_t>(buffer)];
  if (!taken.alive) throw fault(MemoryFault::Kind::dead_operand, buffer, call, call);
  const int first = taken.known_after + 1;
  check_margins(MemoryFault::Kind::dead_changed, buffer, taken.offset, taken.bytes, first, call - 1);
  if (print_of(taken.place, taken.bytes).content != taken.content) {
    throw fault(MemoryFault::Kind::changed, buffer, first, call - 1);
  }
  taken.known_after = call - 1;
}

// An operand that nobody needs any more gives its lines to a result. If it lies elsewhere, they were never its own.
void MemoryGuard::take_over(int from, int to) {
  Watched& ended = buffers_[static_cast<std::size_t>(from)];
  ended.alive = false;
  for (std::int64_t line = ended.offset / kLine; line < ended.offset / kLine + lines_of(ended.bytes); ++line) {
    int& state = lines_[static_cast<std::size_t>(line)];
    if (state == from) state = to;
  }
}

// What is given out must be nobody's, and untouched since it died.
void MemoryGuard::claim(int call, std::int64_t offset, std::int64_t bytes, int owner) {
  const int given = owner == kRunningWorkspace ? MemoryFault::kWorkspace : owner;
  const std::int64_t begin = offset / kLine;
  const std::int64_t end = begin + lines_of(bytes);
  for (std::int64_t line = begin; line < end; ++line) {
    const int state = lines_[static_cast<std::size_t>(line)];
    if (state == kLent || is_dead(state)) continue;  // what is lent the allocator will not serve
    MemoryFault found = fault(MemoryFault::Kind::overlap, state, call, call);
    found.other = given;
    throw found;
  }
  check_margins(MemoryFault::Kind::dead_changed, given, offset, bytes, 0, call - 1);
  for (std::int64_t line = begin; line < end; ++line) {
    int& state = lines_[static_cast<std::size_t>(line)];
    if (state == kLent) continue;
    if (first_change(base_ + line * kLine, kLine, 0) != kLine) {
      throw fault(MemoryFault::Kind::dead_changed, given, died_after(state) + 1, call - 1);
    }
    state = owner;
  }
}

// The dead lines on either side, and what is left of the last line.
void MemoryGuard::check_margins(MemoryFault::Kind kind, int buffer, std::int64_t offset, std::int64_t bytes, int first,
                                int last) {
  const auto is_dead_at = [&](std::int64_t at) {
    return at >= 0 && at < arena_bytes_ && is_dead(lines_[static_cast<std::size_t>(at / kLine)]);
  };
  const auto complain = [&](std::int64_t distance) {
    MemoryFault found = fault(kind, buffer, first, last);
    found.distance = distance;
    throw found;
  };
  const std::int64_t end = offset + bytes;
  const std::int64_t whole_end = lines_of(end) * kLine;
  if (is_dead_at(offset - kLine)) {
    const std::int64_t at = first_change(base_ + offset - kLine, kLine, 0);
    if (at != kLine) complain(at - kLine);
  }
  if (lines_[static_cast<std::size_t>(offset / kLine)] != kLent) {
    const std::int64_t at = first_change(base_ + end, whole_end - end, end % kLine);
    if (at != whole_end - end) complain(at);
  }
  if (is_dead_at(whole_end)) {
    const std::int64_t at = first_change(base_ + whole_end, kLine, 0);
    if (at != kLine) complain(whole_end - end + at);
  }
}

void MemoryGuard::after(int call) {
  const Operands& operands = calls_[static_cast<std::size_t>(call)];
  const auto check = [&](int buffer, std::int64_t offset, std::int64_t bytes) {
    check_margins(MemoryFault::Kind::out_of_range, buffer, offset, bytes, call, call);
  };
  bool poison_allowed = operands.may_leave_poison;
  for (const int buffer : operands.takes) {
    const Watched& taken = buffers_[static_cast<std::size_t>(buffer)];
    check(buffer, taken.offset, taken.bytes);
    poison_allowed |= taken.poisoned;
  }
  for (const int buffer : operands.makes) {
    const Watched& made = buffers_[static_cast<std::size_t>(buffer)];
    check(buffer, made.offset, made.bytes);
  }
  if (operands.workspace_bytes > 0) {
    check(MemoryFault::kWorkspace, operands.workspace_offset, operands.workspace_bytes);
    give_back(call, operands.workspace_offset, operands.workspace_bytes);
  }
  for (const int buffer : operands.makes) note_written(call, buffer, poison_allowed);
  for (const int buffer : operands.writes) note_written(call, buffer, poison_allowed);
  if (level_ == GuardLevel::everything) check_everything(call);
}

void MemoryGuard::note_written(int call, int buffer, bool poison_allowed) {
  Watched& written = buffers_[static_cast<std::size_t>(buffer)];
  const Print print = print_of(written.place, written.bytes);
  if (print.poisoned && !poison_allowed) throw fault(MemoryFault::Kind::poison_result, buffer, call, call);
  written.content = print.content;
  written.poisoned = print.poisoned;
  written.known_after = call;
}

void MemoryGuard::check_everything(int call) {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    Watched& buffer = buffers_[b];
    if (!buffer.alive) continue;
    if (print_of(buffer.place, buffer.bytes).content != buffer.content) {
      throw fault(MemoryFault::Kind::changed, static_cast<int>(b), call, call);
    }
    buffer.known_after = call;
  }
  check_dead(call, call);
}

void MemoryGuard::check_dead(int first, int last) const {
  for (std::size_t line = 0; line < lines_.size(); ++line) {
    if (!is_dead(lines_[line])) continue;
    if (first_change(base_ + static_cast<std::int64_t>(line) * kLine, kLine, 0) == kLine) continue;
    const int since = std::max(first, died_after(lines_[line]) + 1);
    throw fault(MemoryFault::Kind::dead_changed, MemoryFault::kWorkspace, std::min(since, last), last);
  }
}

void MemoryGuard::end_life(int call, int buffer) {
  Watched& ended = buffers_[static_cast<std::size_t>(buffer)];
  if (ended.bytes == 0 || !ended.alive) return;
  ended.alive = false;
  give_back(call, ended.offset, ended.bytes);
}

void MemoryGuard::give_back(int call, std::int64_t offset, std::int64_t bytes) {
  const bool held = overlaps_escaped(base_ + offset, bytes);
  for (std::int64_t line = offset / kLine; line < offset / kLine + lines_of(bytes); ++line) {
    int& state = lines_[static_cast<std::size_t>(line)];
    if (state == kLent) continue;
    state = held ? kLent : dead_since(call);
    if (!held) poison(base_ + line * kLine, kLine);
  }
}

void MemoryGuard::end_step() {
  check_dead(0, static_cast<int>(calls_.size()) - 1);
}

}  // namespace lowtide::torch_runtime
