#include "random_graph.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/words.h"
#include "graph/dependencies.h"
#include "unwrap.h"

namespace lowtide {
namespace {

class Generator {
 public:
  Generator(std::mt19937_64& random, RandomGraphOptions options) : random_(random), options_(options) {}

  Graph generate() {
    const std::size_t ops = 3 + below(12);
    for (std::size_t i = 1 + below(3); i > 0; --i) add_buffer(Residence::resident, true, small_size());
    for (std::size_t i = 0; i < ops; ++i) add_op(i, ops);
    for (std::size_t i = below(3); i > 0; --i) {
      const std::size_t before = below(ops - 1);
      unwrap(builder_.add_edge(OpId(before), OpId(before + 1 + below(ops - before - 1))));
    }
    for (const BufferId buffer : readable_) {
      if (chance(0.1)) unwrap(builder_.keep(buffer));
    }
    return unwrap(std::move(builder_).build());
  }

 private:
  std::size_t below(std::size_t limit) { return random_() % limit; }
  bool chance(double p) { return static_cast<double>(random_() % 1000) < 1000 * p; }
  Bytes small_size() {
    if (options_.axes) return Bytes(chance(0.1) ? 1 + below(200) : chance(0.6) ? 96 : 24 * (1 + below(8)));
    return Bytes(chance(0.3) ? 64 * (1 + below(3)) : 1 + below(200));
  }

  BufferId add_buffer(Residence residence, bool initial, Bytes size) {
    const std::string name = words("b", planned_size_.size());
    const BufferId id = unwrap(builder_.add_buffer({.size = size,
                                                    .residence = residence,
                                                    .role = initial ? Role::parameter : Role::activation,
                                                    .name = name,
                                                    .initial = initial}));
    planned_size_.push_back(residence == Residence::planned ? std::optional(size) : std::nullopt);
    size_.push_back(size);
    if (initial) readable_.push_back(id);
    return id;
  }

  BufferId any_readable() {
    // Mostly the newest, as programs do.
    const std::size_t recent = std::min<std::size_t>(readable_.size(), 4);
    return chance(0.6) ? readable_[readable_.size() - 1 - below(recent)] : readable_[below(readable_.size())];
  }

  void add_op(std::size_t index, std::size_t count) {
    const std::string name = words("op", index);
    OpSpec spec{.name = name, .cost = Nanos(below(100))};
    std::vector<BufferId> sources;  // planned buffers that it reads
    for (std::size_t i = below(4); i > 0; --i) {
      const BufferId buffer = any_readable();
      if (planned_size_[buffer.index()]) sources.push_back(buffer);
      const ValueId value = show(buffer, "uint8");
      spec.reads.push_back(value);
      if (chance(0.2)) spec.reads.push_back(show(buffer, "int8"));  // a second view
    }
    if (chance(0.4)) {
      const BufferId buffer = any_readable();
      if (chance(0.7)) spec.reads.push_back(show(buffer, "uint8"));
      spec.writes.push_back(buffer);
    }
    std::vector<BufferId> created;
    if (spec.writes.empty() || chance(0.3)) {
      for (std::size_t i = chance(0.2) ? 2 : 1; i > 0; --i) {
        const bool alike = !sources.empty() && chance(options_.axes ? 0.8 : 0.5);  // as large as what is read
        const Bytes size = alike ? *planned_size_[sources[below(sources.size())].index()] : small_size();
        created.push_back(add_buffer(chance(0.12) ? Residence::resident : Residence::planned, false, size));
      }
    }
    spec.writes.insert(spec.writes.end(), created.begin(), created.end());
    if (chance(0.3)) spec.workspace = small_size();
    spec.flags.random = chance(options_.axes ? 0.07 : 0.2);
    spec.flags.collective = chance(options_.axes ? 0.05 : 0.15);
    spec.flags.must_not_recompute = chance(0.1);
    spec.flags.may_skip_updates = chance(0.5);
    if (options_.regions) {
      const bool late = 2 * index > count;
      spec.flags.backward = late && chance(0.8);
      if (!late) spec.region = static_cast<std::uint32_t>(below(3));
      if (spec.region != 0) spec.flags.collective = spec.flags.must_not_recompute = false;
    }
    const OpId op = unwrap(builder_.add_op(spec));
    for (const BufferId to : created) {
      for (const BufferId from : sources) {
        if (planned_size_[to.index()] != planned_size_[from.index()] || chance(0.2)) continue;
        // Refused where the op writes `from`, or may make another result there already.
        static_cast<void>(builder_.add_reuse(op, from, to));
      }
    }
    if (options_.axes) add_axes(op, spec, created);
    readable_.insert(readable_.end(), created.begin(), created.end());
  }

  ValueId show(BufferId buffer, std::string_view dtype) {
    shown_.push_back(buffer);
    return unwrap(builder_.add_value(buffer, dtype, {}));
  }

  // Mostly all operands are cut, and mostly by rows.
  void add_axes(OpId op, const OpSpec& spec, const std::vector<BufferId>& created) {
    for (std::size_t tries = 1 + below(5); tries > 0; --tries) {
      std::map<BufferId, Bytes> written;
      const bool columns = chance(0.3);
      const auto period = [&](BufferId buffer) {
        const Bytes size = size_[buffer.index()];
        return Bytes(columns != chance(0.05) ? size.count() / (size.count() % 48 == 0 ? 4 : 2) : size.count());
      };
      AxisSpec axis;
      for (const BufferId buffer : spec.writes) {
        const bool sums = std::ranges::count(created, buffer) > 0 && chance(0.15);
        axis.writes.push_back(written[buffer] = sums ? Bytes(0) : period(buffer));
      }
      for (const ValueId read : spec.reads) {
        const BufferId buffer = shown_[read.index()];
        const auto also = written.find(buffer);
        axis.reads.push_back(also != written.end() ? also->second : chance(0.15) ? Bytes(0) : period(buffer));
      }
      for (const std::uint32_t count : {2U, 3U, 4U}) {
        if (chance(count == 2 ? 0.1 : 0.6)) continue;
        axis.counts.push_back({count, chance(0.3) ? small_size() : Bytes(0), Nanos(below(50)), chance(0.5)});
      }
      // Refused where nothing is cut, a buffer has other bytes than so many times a period, or the op is never cut.
      static_cast<void>(builder_.add_axis(op, axis));
    }
  }

  std::mt19937_64& random_;
  RandomGraphOptions options_;
  GraphBuilder builder_;
  std::vector<BufferId> readable_;
  std::vector<std::optional<Bytes>> planned_size_;  // by buffer; none: resident
  std::vector<Bytes> size_;                         // by buffer
  std::vector<BufferId> shown_;                     // by value: its buffer
};

}  // namespace

Graph random_graph(std::mt19937_64& random, RandomGraphOptions options) {
  return Generator(random, options).generate();
}

std::vector<OpId> random_order(const Graph& graph, std::mt19937_64& random) {
  const Dependencies depends = dependencies(graph);
  std::vector<std::size_t> waiting(graph.num_ops());
  std::vector<OpId> ready;
  for (OpId op(0); op.index() < graph.num_ops(); op = op.next()) {
    waiting[op.index()] = depends.predecessors[op.index()].size();
    if (waiting[op.index()] == 0) ready.push_back(op);
  }
  std::vector<OpId> order;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const OpId op = ready.back();
    ready.pop_back();
    order.push_back(op);
    for (const OpId next : depends.successors[op.index()]) {
      if (--waiting[next.index()] == 0) ready.push_back(next);
    }
  }
  return order;
}

}  // namespace lowtide
