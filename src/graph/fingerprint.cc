#include "lowtide/fingerprint.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace lowtide {
namespace {

constexpr std::uint64_t mixed(std::uint64_t x, std::uint64_t first, std::uint64_t second) {
  x = (x ^ (x >> 32)) * first;
  x = (x ^ (x >> 29)) * second;
  return x ^ (x >> 32);
}

// Two chains of 64 bits with different constants over the same sequence of words. Each step is a bijection of the state
// for a given word, and of the word for a given state.
class Hash {
 public:
  explicit Hash(std::uint64_t kind) { add(kind); }

  void add(std::uint64_t word) {
    high_ = mixed(high_ + word, 0xd6e8feb86659fd93, 0xff51afd7ed558ccd) + 0x9e3779b97f4a7c15;
    low_ = mixed(low_ ^ word, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb) + 0xa0761d6478bd642f;
  }
  void add(const Fingerprint& part) {
    add(part.high);
    add(part.low);
  }
  void add(std::string_view text) {
    add(text.size());
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      word |= std::uint64_t{static_cast<unsigned char>(text[i])} << (i % 8 * 8);
      if (i % 8 == 7 || i + 1 == text.size()) add(std::exchange(word, 0));
    }
  }
  Fingerprint value() const { return {high_, low_}; }

 private:
  std::uint64_t high_ = 0x243f6a8885a308d3;
  std::uint64_t low_ = 0x13198a2e03707344;
};

// The same for any order of what is added.
Fingerprint& operator+=(Fingerprint& sum, const Fingerprint& part) {
  sum.high += part.high;
  sum.low += part.low;
  return sum;
}

// What a hash is of, so that none is taken for another.
enum Kind : std::uint64_t {
  of_op,
  of_version,
  of_value,
  of_read,
  of_write,
  of_edge,
  of_descendants,
  of_reuse,
  of_region,
  of_axis
};

class Fingerprinter {
 public:
  explicit Fingerprinter(const Graph& graph)
      : graph_(graph), op_hash_(graph.num_ops()), version_hash_(graph.num_versions()), uses_(graph.num_versions()) {}

  Fingerprint run() {
    look_back();
    look_ahead();
    for (ValueId id(0); id.index() < graph_.num_values(); id = id.next()) {
      Hash hash(of_value);
      hash.add(version_hash_[graph_.value(id).version.index()]);
      add_form(hash, id);
      sum_ += hash.value();
    }
    return sum_;
  }

 private:
  void add_form(Hash& hash, ValueId id) const {
    const Value value = graph_.value(id);
    hash.add(value.dtype);
    hash.add(value.shape.size());
    for (const std::int64_t extent : value.shape) hash.add(static_cast<std::uint64_t>(extent));
  }

  void add_buffer(Hash& hash, BufferId id) const {
    const Buffer buffer = graph_.buffer(id);
    hash.add(buffer.size.count());
    hash.add(static_cast<std::uint64_t>(buffer.role) << 2 | (buffer.planned() ? 2U : 0U) | (buffer.kept ? 1U : 0U));
  }

  // As places among what the op reads and writes.
  void add_reuse(Hash& hash, const Op& op, const Reuse& reuse) const {
    hash.add(of_reuse);
    const auto read = std::ranges::find_if(
        op.reads, [&](ValueId value) { return graph_.version(graph_.value(value).version).buffer == reuse.from; });
    const auto write =
        std::ranges::find_if(op.writes, [&](VersionId version) { return graph_.version(version).buffer == reuse.to; });
    hash.add(static_cast<std::uint64_t>(read - op.reads.begin()));
    hash.add(static_cast<std::uint64_t>(write - op.writes.begin()));
  }

  void add_axis(Hash& hash, const Axis& axis) const {
    hash.add(of_axis);
    for (const std::span<const Bytes> periods : {axis.reads, axis.writes}) {
      for (const Bytes period : periods) hash.add(period.count());
    }
    hash.add(axis.counts.size());
    for (const PartCount& parts : axis.counts) {
      hash.add(std::uint64_t{parts.count} << 1 | (parts.exact ? 1U : 0U));
      hash.add(parts.workspace.count());
      hash.add(parts.cost.count());
    }
  }

  // Hashes every op and version with all that it comes from, in program order.
  void look_back() {
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if (graph_.version(id).writer) continue;
      Hash hash(of_version);
      add_buffer(hash, graph_.version(id).buffer);
      version_hash_[id.index()] = hash.value();
    }
    const Lists<OpId> before = grouped([](const Edge& edge) { return std::pair(edge.after, edge.before); });
    Fingerprint last_random;
    Fingerprint last_collective;
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      const Op op = graph_.op(id);
      Hash hash(of_op);
      hash.add(op.name);
      hash.add(op.workspace.count());
      hash.add(op.cost.count());
      hash.add(std::uint64_t{op.flags.backward} << 37 | std::uint64_t{op.flags.may_skip_updates} << 36 |
               std::uint64_t{op.stream} << 4 | (op.flags.random ? 8U : 0U) | (op.flags.mutating ? 4U : 0U) |
               (op.flags.collective ? 2U : 0U) | (op.flags.must_not_recompute ? 1U : 0U));
      if (op.region != 0) {
        hash.add(of_region);
        hash.add(op.region);
      }
      if (op.flags.random) hash.add(last_random);
      if (op.flags.collective) hash.add(last_collective);
      hash.add(sum_of(before[id.index()]));
      hash.add(op.reads.size());
      for (const ValueId read : op.reads) {
        hash.add(version_hash_[graph_.value(read).version.index()]);
        add_form(hash, read);
      }
      hash.add(op.writes.size());
      for (const VersionId write : op.writes) {
        const Version version = graph_.version(write);
        add_buffer(hash, version.buffer);
        hash.add(version.index);
        if (version.index > 0) hash.add(version_hash_[previous(version).index()]);
      }
      for (const Reuse& reuse : op.reuses) add_reuse(hash, op, reuse);
      for (std::size_t i = 0; i < graph_.num_axes(id); ++i) add_axis(hash, graph_.axis(id, i));
      op_hash_[id.index()] = hash.value();
      for (std::size_t i = 0; i < op.writes.size(); ++i) {
        Hash made(of_version);
        made.add(op_hash_[id.index()]);
        made.add(i);
        version_hash_[op.writes[i].index()] = made.value();
      }
      if (op.flags.random) last_random = op_hash_[id.index()];
      if (op.flags.collective) last_collective = op_hash_[id.index()];
    }
  }

  // Adds to each of these hashes all that comes of it, from the last op to the first, and counts it.
  void look_ahead() {
    const Lists<OpId> after = grouped([](const Edge& edge) { return std::pair(edge.before, edge.after); });
    Fingerprint next_random;
    Fingerprint next_collective;
    for (OpId id(graph_.num_ops()); id.index() > 0;) {
      id = OpId(id.index() - 1);
      const Op op = graph_.op(id);
      Hash hash(of_descendants);
      hash.add(op_hash_[id.index()]);
      hash.add(sum_of(after[id.index()]));
      if (op.flags.random) hash.add(next_random);
      if (op.flags.collective) hash.add(next_collective);
      for (const VersionId write : op.writes) {
        finish(write);
        hash.add(version_hash_[write.index()]);
      }
      const Fingerprint whole = op_hash_[id.index()] = hash.value();
      sum_ += whole;
      for (std::size_t i = 0; i < op.reads.size(); ++i) {
        Hash use(of_read);
        use.add(whole);
        use.add(i);
        uses_[graph_.value(op.reads[i]).version.index()] += use.value();
      }
      for (std::size_t i = 0; i < op.writes.size(); ++i) {
        const Version version = graph_.version(op.writes[i]);
        if (version.index == 0) continue;
        Hash use(of_write);
        use.add(whole);
        use.add(i);
        uses_[previous(version).index()] += use.value();
      }
      if (op.flags.random) next_random = whole;
      if (op.flags.collective) next_collective = whole;
    }
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if (!graph_.version(id).writer) finish(id);
    }
  }

  // All uses of the version are known.
  void finish(VersionId id) {
    Hash hash(of_version);
    hash.add(version_hash_[id.index()]);
    hash.add(uses_[id.index()]);
    version_hash_[id.index()] = hash.value();
    sum_ += hash.value();
  }

  VersionId previous(const Version& version) const { return graph_.buffer(version.buffer).versions[version.index - 1]; }

  template <typename Ends>
  Lists<OpId> grouped(Ends ends) const {
    std::vector<std::pair<std::size_t, OpId>> pairs;
    pairs.reserve(graph_.edges().size());
    for (const Edge& edge : graph_.edges()) {
      const auto [at, other] = ends(edge);
      pairs.emplace_back(at.index(), other);
    }
    return Lists<OpId>::group(graph_.num_ops(), pairs);
  }

  Fingerprint sum_of(std::span<const OpId> ops) const {
    Fingerprint sum;
    for (const OpId op : ops) {
      Hash hash(of_edge);
      hash.add(op_hash_[op.index()]);
      sum += hash.value();
    }
    return sum;
  }

  const Graph& graph_;
  std::vector<Fingerprint> op_hash_;       // looking back; from look_ahead() on both ways
  std::vector<Fingerprint> version_hash_;  // likewise
  std::vector<Fingerprint> uses_;          // by version: the sum over those who read it or change it
  Fingerprint sum_;
};

}  // namespace

Fingerprint fingerprint(const Graph& graph) {
  return Fingerprinter(graph).run();
}

std::string fingerprint_text(const Fingerprint& fingerprint) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint64_t half : {fingerprint.high, fingerprint.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[half >> shift & 15];
  }
  return text;
}

std::optional<Fingerprint> parse_fingerprint(std::string_view text) {
  Fingerprint parsed;
  if (text.size() != 32) return std::nullopt;
  const auto half = [](std::string_view digits, std::uint64_t& number) {
    const char* const end = digits.data() + digits.size();
    return std::from_chars(digits.data(), end, number, 16).ptr == end;
  };
  if (!half(text.substr(0, 16), parsed.high) || !half(text.substr(16), parsed.low)) return std::nullopt;
  return parsed;
}

}  // namespace lowtide
