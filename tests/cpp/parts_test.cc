#include "rewrite/parts.h"

#include <algorithm>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/lifetimes.h"
#include "order/algorithms.h"
#include "rewrite/recompute.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Bytes kSize{64};
constexpr Bytes kNone{0};

// Ops over buffers of 64 bytes. The first buffer has content from before.
class StepMaker {
 public:
  StepMaker() {
    unwrap(builder.add_buffer({.size = kSize, .residence = Residence::resident, .name = "x", .initial = true}));
  }

  BufferId buffer(std::string_view name = {}) { return unwrap(builder.add_buffer({.size = kSize, .name = name})); }

  OpId op(const std::vector<std::size_t>& reads, const std::vector<std::size_t>& writes, OpFlags flags = {}) {
    OpSpec spec{.name = "op", .cost = Nanos(10), .flags = flags};
    for (const std::size_t read : reads) spec.reads.push_back(unwrap(builder.add_value(BufferId(read), "u8", {{64}})));
    for (const std::size_t write : writes) spec.writes.emplace_back(write);
    return unwrap(builder.add_op(spec));
  }

  void axis(OpId op, std::vector<Bytes> reads, std::vector<Bytes> writes) {
    const std::vector<PartCount> counts = {{2, Bytes(0), Nanos(6), true}, {4, Bytes(8), Nanos(4), true}};
    ASSERT_TRUE(builder.add_axis(op, {std::move(reads), std::move(writes), counts}).ok());
  }

  GraphBuilder builder;
};

// The picture: b is there in halves.
TEST(Parts, Rows) {
  StepMaker maker;
  for (const std::string_view name : {"a", "b", "c", "d"}) maker.buffer(name);
  for (std::size_t i = 0; i < 4; ++i) maker.axis(maker.op({i}, {i + 1}), {kSize}, {kSize});
  const Graph graph = unwrap(std::move(maker.builder).build());
  const std::vector<Split> splits = {{{{OpId(1), 0}, {OpId(2), 0}}, 2}};
  const Divided divided = unwrap(run_in_parts(graph, splits));

  ASSERT_EQ(divided.graph.num_ops(), 6u);
  EXPECT_THAT(divided.op_of, ElementsAre(OpId(0), OpId(1), OpId(2), OpId(1), OpId(2), OpId(3)));
  EXPECT_EQ(divided.part_of[3], (StepPart{0, {1, 2}}));
  EXPECT_EQ(divided.part_of[0], StepPart{});
  EXPECT_THAT(divided.buffer_of,
              ElementsAre(BufferId(0), BufferId(1), BufferId(2), BufferId(3), BufferId(4), BufferId(2)));
  EXPECT_EQ(divided.held[2], (Part{0, 2}));
  EXPECT_EQ(divided.held[5], (Part{1, 2}));
  EXPECT_EQ(divided.period[5], kSize);
  EXPECT_EQ(divided.held[3], Part{});
  EXPECT_EQ(divided.graph.buffer(BufferId(5)).size, Bytes(32));
  EXPECT_EQ(divided.graph.buffer(BufferId(3)).versions.size(), 2u) << "c is written part by part";
  EXPECT_EQ(divided.graph.op(OpId(1)).cost, Nanos(6));
  EXPECT_FALSE(divided.graph.op(OpId(2)).flags.mutating);
  EXPECT_TRUE(divided.graph.op(OpId(4)).flags.mutating);
  EXPECT_EQ(operand_bound(divided.graph), Bytes(128)) << "c and d";
}

TEST(Parts, PlanOfWhole) {
  StepMaker maker;
  for (const std::string_view name : {"a", "b"}) maker.buffer(name);
  for (std::size_t i = 0; i < 2; ++i) maker.axis(maker.op({i}, {i + 1}), {kSize}, {kSize});
  ASSERT_TRUE(maker.builder.keep(BufferId(2)).ok());
  const Graph graph = unwrap(std::move(maker.builder).build());
  const std::vector<Split> splits = {{{{OpId(0), 0}, {OpId(1), 0}}, 4}};
  const Divided divided = unwrap(run_in_parts(graph, splits));
  const Plan whole = plan_of_whole(graph, divided, unwrap(plan(divided.graph)));
  EXPECT_EQ(whole.order.size(), 8u);
  EXPECT_EQ(whole.parts[7], (StepPart{0, {3, 4}}));
  EXPECT_EQ(whole.blocks[1].part, (Part{0, 4}));
  EXPECT_EQ(whole.blocks[3].buffer, BufferId(1));
  EXPECT_EQ(whole.blocks[3].part, (Part{1, 4}));
  EXPECT_EQ(whole.blocks[2].part, Part{});
  EXPECT_EQ(whole.peak, Bytes(64 + 16 + 8));
}

class RefusalTest : public ::testing::Test {
 protected:
  std::string refusal(std::vector<CutOp> ops, std::uint32_t count = 2) {
    if (!graph_) graph_ = unwrap(std::move(maker.builder).build());
    const std::vector<Split> splits = {{std::move(ops), count}};
    const Result<Divided> divided = run_in_parts(*graph_, splits);
    if (divided.ok()) return "";
    EXPECT_EQ(divided.error().code, ErrorCode::invalid_axis);
    return divided.error().message;
  }

  StepMaker maker;
  std::optional<Graph> graph_;
};

TEST_F(RefusalTest, OfWhatCannotBe) {
  for (int i = 0; i < 4; ++i) maker.buffer();
  maker.axis(maker.op({0}, {1}), {kSize}, {kSize});  // rows
  maker.axis(maker.op({1}, {2}), {kNone}, {kSize});  // reads all of it
  maker.axis(maker.op({1}, {3}), {kSize}, {kNone});  // a sum
  maker.axis(maker.op({3}, {4}), {kSize}, {kSize});  // reads the sum
  EXPECT_THAT(refusal({{OpId(9), 0}}), HasSubstr("there is no op 9"));
  EXPECT_THAT(refusal({{OpId(0), 1}}), HasSubstr("has no axis 1"));
  EXPECT_THAT(refusal({{OpId(0), 0}}, 3), HasSubstr("cannot run in 3 parts"));
  EXPECT_THAT(refusal({{OpId(1), 0}, {OpId(0), 0}}), HasSubstr("program order"));
  EXPECT_THAT(refusal({{OpId(0), 0}, {OpId(1), 0}}), HasSubstr("reads in other parts"));
  EXPECT_THAT(refusal({{OpId(2), 0}, {OpId(3), 0}}), HasSubstr("reads in other parts"));
  EXPECT_THAT(refusal({{OpId(0), 0}, {OpId(3), 0}}), HasSubstr("between the parts")) << "op 2 lies between";
  EXPECT_EQ(refusal({{OpId(0), 0}, {OpId(2), 0}}), "");
}

TEST_F(RefusalTest, OfOpsThatAnEdgeNames) {
  for (int i = 0; i < 2; ++i) maker.buffer();
  for (std::size_t i = 0; i < 2; ++i) maker.axis(maker.op({i}, {i + 1}), {kSize}, {kSize});
  ASSERT_TRUE(maker.builder.add_edge(OpId(0), OpId(1)).ok());
  EXPECT_THAT(refusal({{OpId(1), 0}}), HasSubstr("named in an edge"));
}

// -- every byte -------------------------------------------------------------------------------------------------------

using Content = std::vector<std::uint64_t>;  // by byte

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  a = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
  return a ^ (a >> 29);
}

bool is_in(std::size_t byte, Bytes period, Part part) {
  return byte % period.count() / (period.count() / part.count) == part.index;
}

// Runs a graph whose ops may be parts of those of another. What an op makes of a part depends on all bytes of that part
// of its operands and on nothing else of them.
class ByteMachine {
 public:
  ByteMachine(const Graph& original, const Divided& divided, const std::vector<std::optional<StepPart>>& cut)
      : original_(original), divided_(divided), cut_(cut), contents_(divided.graph.num_buffers()) {}

  // The last content of every buffer that the original keeps or nobody parted.
  std::vector<Content> run() {
    for (BufferId id(0); id.index() < contents_.size(); id = id.next()) {
      const Buffer buffer = divided_.graph.buffer(id);
      contents_[id.index()].assign(buffer.size.count(), 0);
      if (buffer.planned()) continue;
      for (std::size_t byte = 0; byte < buffer.size.count(); ++byte) contents_[id.index()][byte] = mixed(7, byte);
    }
    for (OpId id(0); id.index() < divided_.graph.num_ops(); id = id.next()) run_op(id);
    return contents_;
  }

 private:
  // The bytes of one part of an operand, wherever they lie.
  Content gathered(BufferId id, Bytes period, Part part) const {
    const Content& content = contents_[id.index()];
    if (period == kNone || part.count == 1 || divided_.held[id.index()].count > 1) return content;
    Content bytes;
    for (std::size_t byte = 0; byte < content.size(); ++byte) {
      if (is_in(byte, period, part)) bytes.push_back(content[byte]);
    }
    return bytes;
  }

  void run_part(OpId id, Part part) {
    const Op op = divided_.graph.op(id);
    const OpId whole = divided_.op_of[id.index()];
    const std::optional<StepPart>& cut = cut_[whole.index()];
    const Axis axis = cut ? original_.axis(whole, cut->axis) : Axis{};
    std::uint64_t seed = mixed(whole.index(), part.index);
    const auto take = [&](BufferId buffer, Bytes period) {
      for (const std::uint64_t byte : gathered(buffer, period, part)) seed = mixed(seed, byte);
    };
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      take(divided_.graph.version(divided_.graph.value(op.reads[i]).version).buffer, cut ? axis.reads[i] : kNone);
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const BufferId buffer = divided_.graph.version(op.writes[i]).buffer;
      Content& content = contents_[buffer.index()];
      const Bytes period = cut ? axis.writes[i] : kNone;
      const bool is_sum = cut && period == kNone;
      const bool is_own = divided_.held[buffer.index()].count > 1;
      std::size_t place = 0;
      for (std::size_t byte = 0; byte < content.size(); ++byte) {
        if (period != kNone && !is_own && !is_in(byte, period, part)) continue;
        const std::uint64_t made = mixed(mixed(seed, i), place++);
        content[byte] = is_sum && part.index > 0 ? content[byte] + made : made;
      }
    }
  }

  // An op that is cut elsewhere runs in the same parts here.
  void run_op(OpId id) {
    const StepPart own = divided_.part_of[id.index()];
    const std::optional<StepPart>& cut = cut_[divided_.op_of[id.index()].index()];
    if (!cut || own.part.count > 1) return run_part(id, own.part);
    for (std::uint32_t index = 0; index < cut->part.count; ++index) run_part(id, {index, cut->part.count});
  }

  const Graph& original_;
  const Divided& divided_;
  const std::vector<std::optional<StepPart>>& cut_;  // by op of the original
  std::vector<Content> contents_;
};

struct RandomCase {
  Graph graph;
  std::vector<Split> splits;
};

RandomCase random_case(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return random() % n; };
  StepMaker maker;
  std::vector<std::size_t> written = {0};
  const std::size_t ops = 3 + below(8);
  for (std::size_t i = 0; i < ops; ++i) {
    std::set<std::size_t> reads;
    for (std::size_t r = 0; r < 1 + below(2); ++r) reads.insert(written[below(written.size())]);
    const bool in_place = written.size() > 1 && below(4) == 0;
    const std::size_t write = in_place ? written[1 + below(written.size() - 1)] : maker.buffer().index();
    if (in_place) reads.insert(write);
    const OpId op = maker.op({reads.begin(), reads.end()}, {write});
    for (const Bytes period : {kSize, Bytes(16)}) {
      std::vector<Bytes> periods;
      for (const std::size_t read : reads) periods.push_back(read != write && below(6) == 0 ? kNone : period);
      maker.axis(op, periods, {!in_place && below(5) == 0 && periods[0] != kNone ? kNone : period});
    }
    if (!in_place) written.push_back(write);
  }
  RandomCase made{unwrap(std::move(maker.builder).build()), {}};
  const auto axis = static_cast<std::uint32_t>(below(2));
  std::vector<CutOp> ops_of[2];
  for (std::size_t i = 0; i < ops; ++i) {
    const std::size_t which = below(3);
    if (which < 2) ops_of[which].push_back({OpId(i), below(8) == 0 ? 1 - axis : axis});
  }
  for (auto& chosen : ops_of) {
    if (!chosen.empty()) made.splits.push_back({std::move(chosen), below(2) == 0 ? 2u : 4u});
  }
  return made;
}

TEST(Parts, MakeTheBytesOfTheWhole) {
  int divided_cases = 0, refused = 0, parted = 0;
  for (std::uint32_t seed = 0; seed < 4'000; ++seed) {
    const RandomCase made = random_case(seed);
    const Result<Divided> divided = run_in_parts(made.graph, made.splits);
    if (!divided.ok()) {
      ++refused;
      continue;
    }
    ++divided_cases;
    std::vector<std::optional<StepPart>> cut(made.graph.num_ops());
    for (const Split& split : made.splits) {
      for (const CutOp& one : split.ops) cut[one.op.index()] = StepPart{one.axis, {0, split.count}};
    }
    const Divided same = unwrap(run_in_parts(made.graph, {}));
    const std::vector<Content> expected = ByteMachine(made.graph, same, cut).run();
    const std::vector<Content> found = ByteMachine(made.graph, *divided, cut).run();
    for (std::size_t buffer = 0; buffer < expected.size(); ++buffer) {
      if (divided->held[buffer].count > 1) {
        ++parted;
        continue;
      }
      ASSERT_EQ(found[buffer], expected[buffer]) << "seed " << seed << " buffer " << buffer;
    }
  }
  EXPECT_GT(divided_cases, 200);
  EXPECT_GT(refused, 200);
  EXPECT_GT(parted, 100);
}

}  // namespace
}  // namespace lowtide
