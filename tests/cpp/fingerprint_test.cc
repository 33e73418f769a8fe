#include "lowtide/fingerprint.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "base/words.h"
#include "gtest/gtest.h"
#include "random_graph.h"
#include "unwrap.h"

namespace lowtide {
namespace {

// A graph in pieces that can be changed and put together again. Ops all have one name, so that only their places in the
// graph tell them apart.
struct Pieces {
  struct BufferPiece {
    BufferSpec spec;
    bool kept;
  };
  struct ValuePiece {
    std::size_t buffer;
    std::uint32_t version;
    std::string dtype;
    std::vector<std::int64_t> shape;
  };
  struct OpPiece {
    std::string name = "op";
    std::vector<std::size_t> reads;
    std::vector<std::size_t> writes;
    std::vector<std::pair<std::size_t, std::size_t>> reuses;
    std::vector<AxisSpec> axes;
    Bytes workspace;
    Nanos cost;
    std::uint32_t stream;
    OpFlags flags;
    std::uint32_t region;
  };
  std::vector<BufferPiece> buffers;
  std::vector<ValuePiece> values;
  std::vector<OpPiece> ops;
  std::vector<std::pair<std::size_t, std::size_t>> edges;
};

Pieces pieces_of(const Graph& graph) {
  Pieces pieces;
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    const bool initial = !graph.version(buffer.versions.front()).writer;
    pieces.buffers.push_back(
        {{.size = buffer.size, .residence = buffer.residence, .role = buffer.role, .initial = initial}, buffer.kept});
  }
  for (ValueId id(0); id.index() < graph.num_values(); id = id.next()) {
    const Value value = graph.value(id);
    const Version version = graph.version(value.version);
    pieces.values.push_back(
        {version.buffer.index(), version.index, std::string(value.dtype), {value.shape.begin(), value.shape.end()}});
  }
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    Pieces::OpPiece piece{.reads = {},
                          .writes = {},
                          .reuses = {},
                          .axes = {},
                          .workspace = op.workspace,
                          .cost = Nanos(op.cost.count() % 2),
                          .stream = op.stream,
                          .flags = op.flags,
                          .region = op.region};
    for (const ValueId read : op.reads) piece.reads.push_back(read.index());
    for (const VersionId write : op.writes) piece.writes.push_back(graph.version(write).buffer.index());
    for (const Reuse& reuse : op.reuses) piece.reuses.emplace_back(reuse.from.index(), reuse.to.index());
    for (std::size_t i = 0; i < graph.num_axes(id); ++i) {
      const auto [of_reads, of_writes, counts] = graph.axis(id, i);
      piece.axes.push_back(
          {{of_reads.begin(), of_reads.end()}, {of_writes.begin(), of_writes.end()}, {counts.begin(), counts.end()}});
    }
    pieces.ops.push_back(piece);
  }
  for (const Edge& edge : graph.edges()) pieces.edges.emplace_back(edge.before.index(), edge.after.index());
  return pieces;
}

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// The graph, its ops in the given order, all else in a random one if there is a `random`.
Result<Graph> assembled(const Pieces& pieces, const std::vector<std::size_t>& order, std::mt19937_64* random) {
  GraphBuilder builder;
  const auto shuffle = [&](auto& list) {
    if (random != nullptr) std::ranges::shuffle(list, *random);
  };
  std::vector<BufferId> buffers(pieces.buffers.size());
  std::vector<std::optional<ValueId>> values(pieces.values.size());
  std::vector<std::uint32_t> versions(pieces.buffers.size());
  std::optional<Error> refused;
  const auto add_values = [&](std::size_t buffer) {
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < pieces.values.size(); ++i) {
      if (pieces.values[i].buffer == buffer && pieces.values[i].version + 1 == versions[buffer]) shown.push_back(i);
    }
    shuffle(shown);
    for (const std::size_t i : shown) {
      const Result<ValueId> id = builder.add_value(buffers[buffer], pieces.values[i].dtype, pieces.values[i].shape);
      id.ok() ? void(values[i] = *id) : void(refused = id.error());
    }
  };
  std::vector<std::size_t> places = in_order(pieces.buffers.size());
  shuffle(places);
  for (const std::size_t i : places) {
    BufferSpec spec = pieces.buffers[i].spec;
    const std::string name = words("renamed ", random != nullptr ? (*random)() : 0);
    spec.name = name;
    const Result<BufferId> id = builder.add_buffer(spec);
    if (!id.ok()) return id.error();
    buffers[i] = *id;
    if (pieces.buffers[i].kept) unwrap(builder.keep(*id));
    if (!spec.initial) continue;
    versions[i] = 1;
    add_values(i);
  }
  std::vector<OpId> ops(pieces.ops.size());
  for (const std::size_t i : order) {
    const Pieces::OpPiece& piece = pieces.ops[i];
    const std::string source = words("file:", random != nullptr ? (*random)() : 0);
    OpSpec spec{.name = piece.name,
                .workspace = piece.workspace,
                .cost = piece.cost,
                .stream = piece.stream,
                .flags = piece.flags,
                .source = source,
                .module = source,
                .region = piece.region};
    for (const std::size_t read : piece.reads) {
      if (!values[read]) return Error{ErrorCode::read_of_nothing, "a read of what is not there yet"};
      spec.reads.push_back(*values[read]);
    }
    for (const std::size_t write : piece.writes) spec.writes.push_back(buffers[write]);
    const Result<OpId> id = builder.add_op(spec);
    if (!id.ok()) return id.error();
    ops[i] = *id;
    for (const auto& [from, to] : piece.reuses) {
      if (Status status = builder.add_reuse(*id, buffers[from], buffers[to]); !status.ok()) return status.error();
    }
    for (const AxisSpec& axis : piece.axes) {
      if (Status status = builder.add_axis(*id, axis); !status.ok()) return status.error();
    }
    for (const std::size_t write : piece.writes) {
      ++versions[write];
      add_values(write);
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> edges = pieces.edges;
  shuffle(edges);
  for (const auto& [before, after] : edges) {
    if (Status status = builder.add_edge(ops[before], ops[after]); !status.ok()) return status.error();
  }
  if (refused) return *refused;
  return std::move(builder).build();
}

Fingerprint of(const Pieces& pieces) {
  return fingerprint(unwrap(assembled(pieces, in_order(pieces.ops.size()), nullptr)));
}

TEST(Fingerprint, DoesNotDependOnNamesAndOrders) {
  std::set<Fingerprint> seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Pieces pieces = pieces_of(random_graph(random));
    const Graph graph = unwrap(assembled(pieces, in_order(pieces.ops.size()), nullptr));
    const Fingerprint first = fingerprint(graph);
    EXPECT_TRUE(seen.insert(first).second) << "two graphs with one fingerprint";
    for (int i = 0; i < 5; ++i) {
      std::vector<std::size_t> order;
      for (const OpId op : random_order(graph, random)) order.push_back(op.index());
      EXPECT_EQ(fingerprint_text(fingerprint(unwrap(assembled(pieces, order, &random)))), fingerprint_text(first));
    }
  }
}

// Changes one thing, or answers false where it cannot. What is changed makes a difference even where all else is alike.
struct Mutation {
  const char* name;
  bool (*apply)(Pieces& pieces, std::mt19937_64& random);
};

template <typename List>
auto& any(List& list, std::mt19937_64& random) {
  return list[random() % list.size()];
}

bool flip(bool& flag) {
  flag = !flag;
  return true;
}

// Of an op that has axes.
AxisSpec* any_axis(Pieces& pieces, std::mt19937_64& random) {
  std::vector<AxisSpec>& axes = any(pieces.ops, random).axes;
  return axes.empty() ? nullptr : &any(axes, random);
}

PartCount* any_count(Pieces& pieces, std::mt19937_64& random) {
  AxisSpec* const axis = any_axis(pieces, random);
  return axis == nullptr ? nullptr : &any(axis->counts, random);
}

bool change_period(std::vector<Bytes>& periods, std::mt19937_64& random) {
  if (periods.empty()) return false;
  Bytes& period = any(periods, random);
  if (period == Bytes(0)) return false;
  period = random() % 3 == 0 ? Bytes(0) : Bytes(random() % 2 == 0 ? period.count() / 2 : period.count() * 2);
  return true;
}

const Mutation kMutations[] = {
    {"op_name", [](Pieces& p, auto& r) { return any(p.ops, r).name = "another", true; }},
    {"workspace", [](Pieces& p, auto& r) { return any(p.ops, r).workspace += Bytes(1), true; }},
    {"cost", [](Pieces& p, auto& r) { return any(p.ops, r).cost += Nanos(2), true; }},
    {"stream", [](Pieces& p, auto& r) { return ++any(p.ops, r).stream, true; }},
    {"region", [](Pieces& p, auto& r) { return ++any(p.ops, r).region, true; }},
    {"random", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.random); }},
    {"mutating", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.mutating); }},
    {"collective", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.collective); }},
    {"must_not_recompute", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.must_not_recompute); }},
    {"may_skip_updates", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.may_skip_updates); }},
    {"backward", [](Pieces& p, auto& r) { return flip(any(p.ops, r).flags.backward); }},
    {"size", [](Pieces& p, auto& r) { return any(p.buffers, r).spec.size += Bytes(1), true; }},
    {"role", [](Pieces& p, auto& r) { return any(p.buffers, r).spec.role = Role::gradient, true; }},
    {"residence",
     [](Pieces& p, auto& r) {
       auto& buffer = any(p.buffers, r);
       if (buffer.spec.initial || !buffer.kept) return false;
       const bool resident = buffer.spec.residence == Residence::resident;
       buffer.spec.residence = resident ? Residence::planned : Residence::resident;
       return true;
     }},
    {"kept",
     [](Pieces& p, auto& r) {
       auto& buffer = any(p.buffers, r);
       return buffer.spec.residence == Residence::planned && flip(buffer.kept);
     }},
    {"dtype", [](Pieces& p, auto& r) { return !p.values.empty() && (any(p.values, r).dtype += "x", true); }},
    {"shape", [](Pieces& p, auto& r) { return !p.values.empty() && (any(p.values, r).shape.push_back(1), true); }},
    {"unread_value",
     [](Pieces& p, auto& r) { return !p.values.empty() && (p.values.push_back(any(p.values, r)), true); }},
    {"drop_read",
     [](Pieces& p, auto& r) {
       auto& reads = any(p.ops, r).reads;
       if (reads.empty()) return false;
       reads.erase(reads.begin() + static_cast<std::ptrdiff_t>(r() % reads.size()));
       return true;
     }},
    {"read_twice",
     [](Pieces& p, auto& r) {
       auto& reads = any(p.ops, r).reads;
       return !reads.empty() && (reads.push_back(any(reads, r)), true);
     }},
    {"swap_reads",
     [](Pieces& p, auto& r) {
       auto& reads = any(p.ops, r).reads;
       if (reads.size() < 2) return false;
       const Pieces::ValuePiece& a = p.values[reads[0]];
       const Pieces::ValuePiece& b = p.values[reads[1]];
       if (p.buffers[a.buffer].spec.size == p.buffers[b.buffer].spec.size) return false;
       std::swap(reads[0], reads[1]);
       return true;
     }},
    {"read_another",
     [](Pieces& p, auto& r) {
       auto& reads = any(p.ops, r).reads;
       if (reads.empty()) return false;
       const std::size_t other = r() % p.values.size();
       const Pieces::ValuePiece& a = p.values[reads[0]];
       const Pieces::ValuePiece& b = p.values[other];
       if (p.buffers[a.buffer].spec.size == p.buffers[b.buffer].spec.size) return false;
       reads[0] = other;
       return true;
     }},
    {"drop_write",
     [](Pieces& p, auto& r) {
       auto& writes = any(p.ops, r).writes;
       return !writes.empty() && (writes.pop_back(), true);
     }},
    {"add_write", [](Pieces& p, auto& r) { return any(p.ops, r).writes.push_back(r() % p.buffers.size()), true; }},
    {"swap_writes",
     [](Pieces& p, auto& r) {
       auto& writes = any(p.ops, r).writes;
       if (writes.size() < 2 || p.buffers[writes[0]].spec.size == p.buffers[writes[1]].spec.size) return false;
       std::swap(writes[0], writes[1]);
       return true;
     }},
    {"add_edge",
     [](Pieces& p, auto& r) {
       const std::size_t before = r() % (p.ops.size() - 1);
       p.edges.emplace_back(before, before + 1 + r() % (p.ops.size() - before - 1));
       return true;
     }},
    {"drop_reuse",
     [](Pieces& p, auto& r) {
       auto& reuses = any(p.ops, r).reuses;
       return !reuses.empty() && (reuses.pop_back(), true);
     }},
    {"drop_axis",
     [](Pieces& p, auto& r) {
       auto& axes = any(p.ops, r).axes;
       return !axes.empty() && (axes.pop_back(), true);
     }},
    {"axis_twice",
     [](Pieces& p, auto& r) {
       auto& axes = any(p.ops, r).axes;
       return !axes.empty() && (axes.push_back(AxisSpec(axes.back())), true);
     }},
    {"period_of_a_read",
     [](Pieces& p, auto& r) {
       AxisSpec* const axis = any_axis(p, r);
       return axis != nullptr && change_period(axis->reads, r);
     }},
    {"period_of_a_write",
     [](Pieces& p, auto& r) {
       AxisSpec* const axis = any_axis(p, r);
       return axis != nullptr && change_period(axis->writes, r);
     }},
    {"drop_count",
     [](Pieces& p, auto& r) {
       AxisSpec* const axis = any_axis(p, r);
       return axis != nullptr && (axis->counts.pop_back(), true);
     }},
    {"count",
     [](Pieces& p, auto& r) {
       PartCount* const parts = any_count(p, r);
       return parts != nullptr && (++parts->count, true);
     }},
    {"workspace_of_a_part",
     [](Pieces& p, auto& r) {
       PartCount* const parts = any_count(p, r);
       return parts != nullptr && (parts->workspace += Bytes(1), true);
     }},
    {"cost_of_a_part",
     [](Pieces& p, auto& r) {
       PartCount* const parts = any_count(p, r);
       return parts != nullptr && (parts->cost += Nanos(1), true);
     }},
    {"exact",
     [](Pieces& p, auto& r) {
       PartCount* const parts = any_count(p, r);
       return parts != nullptr && flip(parts->exact);
     }},
    {"drop_edge", [](Pieces& p, auto&) { return !p.edges.empty() && (p.edges.pop_back(), true); }},
};

TEST(Fingerprint, ChangesWithEverySingleThing) {
  std::map<std::string, int> tried;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const Pieces pieces = pieces_of(random_graph(random, {.axes = seed % 2 == 0}));
    const Fingerprint before = of(pieces);
    for (const Mutation& mutation : kMutations) {
      SCOPED_TRACE(words(mutation.name, ", seed ", seed));
      Pieces mutant = pieces;
      if (!mutation.apply(mutant, random)) continue;
      const Result<Graph> graph = assembled(mutant, in_order(mutant.ops.size()), nullptr);
      if (!graph.ok()) continue;  // what was changed is no graph
      EXPECT_NE(fingerprint(*graph), before);
      ++tried[mutation.name];
    }
  }
  for (const Mutation& mutation : kMutations) EXPECT_GT(tried[mutation.name], 10) << mutation.name;
}

// Two independent ops, told apart by their cost: whether it matters which comes first.
TEST(Fingerprint, SeesTheOrderOfRandomOpsAndOfCollectives) {
  const auto pair = [](std::uint64_t first, std::uint64_t second, OpFlags flags) {
    GraphBuilder builder;
    for (const std::uint64_t cost : {first, second}) {
      unwrap(builder.add_op({.name = "op", .cost = Nanos(cost), .flags = flags}));
    }
    return fingerprint(unwrap(std::move(builder).build()));
  };
  EXPECT_EQ(pair(1, 2, {}), pair(2, 1, {}));
  EXPECT_NE(pair(1, 2, {.random = true}), pair(2, 1, {.random = true}));
  EXPECT_NE(pair(1, 2, {.collective = true}), pair(2, 1, {.collective = true}));
}

// Two alike inputs: one op that reads each, or two that read the same.
TEST(Fingerprint, TellsAlikeInputsApart) {
  const auto readers = [](std::size_t second) {
    GraphBuilder builder;
    std::vector<ValueId> inputs;
    for (int i = 0; i < 2; ++i) {
      const BufferId input =
          unwrap(builder.add_buffer({.size = Bytes(64), .residence = Residence::resident, .initial = true}));
      inputs.push_back(unwrap(builder.add_value(input, "float32", {})));
    }
    unwrap(builder.add_op({.name = "op", .reads = {inputs[0]}}));
    unwrap(builder.add_op({.name = "op", .reads = {inputs[second]}}));
    return fingerprint(unwrap(std::move(builder).build()));
  };
  EXPECT_NE(readers(0), readers(1));
}

TEST(Fingerprint, AsText) {
  const Fingerprint some{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(fingerprint_text(some), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(parse_fingerprint("0123456789abcdeffedcba9876543210"), some);
  for (const char* text : {"", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100",
                           "0123456789abcdeg0000000000000000", "-123456789abcdef0000000000000000"}) {
    EXPECT_EQ(parse_fingerprint(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lowtide
