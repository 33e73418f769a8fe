#include "lowtide/files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <tuple>

#include "base/words.h"
#include "draft.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/verify.h"
#include "random_graph.h"
#include "splits.h"
#include "swaps.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A directory that is gone after the test.
class Files : public ::testing::Test {
 protected:
  Files() { fs::create_directories(directory_); }
  ~Files() override { fs::remove_all(directory_); }

  fs::path path(const std::string& name) const { return directory_ / name; }
  fs::path written(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  fs::path directory_ = fs::path(::testing::TempDir()) /
                        ::testing::UnitTest::GetInstance()->current_test_info()->name() /
                        std::to_string(std::random_device{}());
};

// Everything that the public face of a graph tells.
void expect_same(const Graph& a, const Graph& b) {
  ASSERT_EQ(a.num_buffers(), b.num_buffers());
  ASSERT_EQ(a.num_versions(), b.num_versions());
  ASSERT_EQ(a.num_values(), b.num_values());
  ASSERT_EQ(a.num_ops(), b.num_ops());
  for (BufferId id(0); id.index() < a.num_buffers(); id = id.next()) {
    const Buffer x = a.buffer(id);
    const Buffer y = b.buffer(id);
    EXPECT_TRUE(std::tie(x.name, x.size, x.residence, x.role, x.kept) ==
                std::tie(y.name, y.size, y.residence, y.role, y.kept));
    EXPECT_TRUE(std::ranges::equal(x.versions, y.versions));
  }
  for (VersionId id(0); id.index() < a.num_versions(); id = id.next()) {
    const Version x = a.version(id);
    const Version y = b.version(id);
    EXPECT_TRUE(std::tie(x.buffer, x.index, x.writer) == std::tie(y.buffer, y.index, y.writer));
    EXPECT_TRUE(std::ranges::equal(x.readers, y.readers));
  }
  for (ValueId id(0); id.index() < a.num_values(); id = id.next()) {
    const Value x = a.value(id);
    const Value y = b.value(id);
    EXPECT_TRUE(std::tie(x.version, x.dtype) == std::tie(y.version, y.dtype));
    EXPECT_TRUE(std::ranges::equal(x.shape, y.shape));
  }
  for (OpId id(0); id.index() < a.num_ops(); id = id.next()) {
    const Op x = a.op(id);
    const Op y = b.op(id);
    EXPECT_TRUE(std::tie(x.name, x.workspace, x.cost, x.stream, x.source, x.module, x.region) ==
                std::tie(y.name, y.workspace, y.cost, y.stream, y.source, y.module, y.region));
    EXPECT_TRUE(std::tie(x.flags.random, x.flags.mutating, x.flags.collective, x.flags.must_not_recompute,
                         x.flags.may_skip_updates, x.flags.backward) ==
                std::tie(y.flags.random, y.flags.mutating, y.flags.collective, y.flags.must_not_recompute,
                         y.flags.may_skip_updates, y.flags.backward));
    EXPECT_TRUE(std::ranges::equal(x.reads, y.reads));
    EXPECT_TRUE(std::ranges::equal(x.writes, y.writes));
    EXPECT_TRUE(std::ranges::equal(x.reuses, y.reuses));
    ASSERT_EQ(a.num_axes(id), b.num_axes(id));
    for (std::size_t i = 0; i < a.num_axes(id); ++i) {
      EXPECT_TRUE(std::ranges::equal(a.axis(id, i).reads, b.axis(id, i).reads));
      EXPECT_TRUE(std::ranges::equal(a.axis(id, i).writes, b.axis(id, i).writes));
      EXPECT_TRUE(std::ranges::equal(a.axis(id, i).counts, b.axis(id, i).counts));
    }
  }
  EXPECT_TRUE(std::ranges::equal(
      a.edges(), b.edges(), [](const Edge& x, const Edge& y) { return x.before == y.before && x.after == y.after; }));
  EXPECT_EQ(a.resident_bytes(), b.resident_bytes());
}

// Values that nobody reads, that are read late or twice; a buffer with content that is added after an op; every field.
Graph awkward_graph() {
  GraphBuilder builder;
  const BufferId h = unwrap(builder.add_buffer({.size = Bytes(128), .name = "a \"name\"\\ \n\t\x01 \xC3\xA9"}));
  unwrap(builder.add_op({.name = "make", .writes = {h}, .stream = 4294967295, .region = 4294967295}));
  const BufferId w = unwrap(builder.add_buffer({.size = Bytes(1ULL << 40),
                                                .residence = Residence::resident,
                                                .role = Role::optimizer_state,
                                                .name = "w",
                                                .initial = true}));
  const std::vector<std::int64_t> shape = {2, 0, 9223372036854775807};
  const ValueId late = unwrap(builder.add_value(w, "float64", shape));
  unwrap(builder.add_value(h, "unread", {}));
  const ValueId before = unwrap(builder.add_value(h, "", {}));
  unwrap(builder.add_op({.name = "",
                         .reads = {before, before},
                         .writes = {h},
                         .flags = {.mutating = true, .may_skip_updates = true, .backward = true}}));
  const ValueId after = unwrap(builder.add_value(h, "bfloat16", {}));
  const BufferId y =
      unwrap(builder.add_buffer({.size = Bytes(0), .residence = Residence::resident, .role = Role::output}));
  const OpId last = unwrap(builder.add_op({.name = "use",
                                           .reads = {after, late},
                                           .writes = {y, w},
                                           .workspace = Bytes(77),
                                           .cost = Nanos(18446744073709551615ULL),
                                           .flags = {.random = true, .collective = true, .must_not_recompute = true},
                                           .source = "train.py:12",
                                           .module = "encoder.0"}));
  unwrap(builder.add_value(y, "at the end", {}));
  unwrap(builder.add_edge(OpId(0), last));
  unwrap(builder.add_edge(OpId(0), OpId(1)));
  unwrap(builder.keep(h));
  return unwrap(std::move(builder).build());
}

TEST(GraphText, IsTheWholeGraph) {
  const Graph graph = awkward_graph();
  const std::string text = graph_text(graph);
  const Graph read = unwrap(parse_graph(text));
  expect_same(graph, read);
  EXPECT_EQ(graph_text(read), text);
}

TEST(GraphText, IsTheWholeOfRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = seed % 2 == 0});
    const Graph read = unwrap(parse_graph(graph_text(graph)));
    expect_same(graph, read);
    EXPECT_EQ(graph_text(read), graph_text(graph));
  }
}

TEST(GraphText, OfManyBatches) {
  GraphBuilder builder;
  for (std::size_t i = 0; i < 30'000; ++i) {
    const BufferId made = unwrap(builder.add_buffer({.size = Bytes(i), .name = words("buffer ", i)}));
    unwrap(builder.add_op({.name = "make", .writes = {made}}));
    unwrap(builder.add_value(made, "float32", {}));
  }
  const Graph graph = unwrap(std::move(builder).build());
  expect_same(graph, unwrap(parse_graph(graph_text(graph))));
}

TEST(GraphText, MayListItsFieldsInAnyOrder) {
  const Graph graph = unwrap(parse_graph(R"( {"ops":[{"writes":[0],"name":"make"},{"name":"use","reads":[0]}],
    "version":1, "values":[{"dtype":"float32","buffer":0}], "buffers":[{"size":64}], "format":"lowtide-graph"} )"));
  EXPECT_EQ(graph.num_ops(), 2U);
  EXPECT_EQ(graph.op(OpId(1)).reads.size(), 1U);
}

TEST(PlanText, IsTheWholePlan) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Plan made = unwrap(plan(graph));
    const std::string text = plan_text(made);
    const Plan read = unwrap(parse_plan(text));
    EXPECT_EQ(plan_text(read), text);
    const Status status = verify(graph, read);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(PlanText, WithTiersIsTheWholePlanToo) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random);
    const Plan made = finish(draft_with_swaps(graph, random));
    const std::string text = plan_text(made);
    const Plan read = unwrap(parse_plan(text));
    EXPECT_EQ(plan_text(read), text);
    EXPECT_EQ(read.transfers, made.transfers);
    EXPECT_TRUE(std::ranges::equal(read.tiers, made.tiers, [](const Tier& a, const Tier& b) {
      return std::tie(a.name, a.link, a.arena, a.resident) == std::tie(b.name, b.link, b.arena, b.resident);
    }));
    EXPECT_TRUE(std::ranges::equal(read.blocks, made.blocks, {}, &Block::tier, &Block::tier));
    const Status status = verify(graph, read);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

TEST(PlanText, InPartsIsTheWholePlanToo) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Graph graph = random_graph(random, {.axes = true});
    const Plan made = finish(draft_with_parts(graph, random));
    const std::string text = plan_text(made);
    const Plan read = unwrap(parse_plan(text));
    EXPECT_EQ(plan_text(read), text);
    EXPECT_EQ(read.parts, made.parts);
    EXPECT_TRUE(std::ranges::equal(read.blocks, made.blocks, {}, &Block::part, &Block::part));
    EXPECT_TRUE(std::ranges::equal(read.blocks, made.blocks, {}, &Block::period, &Block::period));
    const Status status = verify(graph, read);
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

// Plans without tiers can still be read by whoever knows none.
TEST(PlanText, HasTheFirstVersionThatCanSayIt) {
  const auto version = [](const Plan& plan) { return plan_text(plan).substr(0, 50); };
  Plan plan;
  EXPECT_THAT(version(plan), HasSubstr("\"version\":1"));
  plan.tiers.push_back({.name = "", .link = {Bytes(1), Bytes(1)}});
  EXPECT_THAT(version(plan), HasSubstr("\"version\":2"));
  plan.tiers.clear();
  plan.blocks.push_back({.buffer = {}, .begin = {}, .end = {}, .offset = {}, .tier = 4294967295});
  EXPECT_THAT(version(plan), HasSubstr("\"version\":2"));
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).blocks[0].tier, 4294967295U);
  plan.blocks.clear();
  plan.transfers.push_back({});
  EXPECT_THAT(version(plan), HasSubstr("\"version\":2"));
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).transfers.size(), 1U);
  plan.order.resize(3);
  plan.parts.resize(3);
  EXPECT_THAT(version(plan), HasSubstr("\"version\":2"));
  EXPECT_TRUE(unwrap(parse_plan(plan_text(plan))).parts.empty());
  plan.parts[1] = {4294967295, {0, 0}};
  EXPECT_THAT(version(plan), HasSubstr("\"version\":3"));
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).parts, plan.parts);
  plan.parts.clear();
  plan.blocks.resize(1);
  plan.blocks[0].period = Bytes(18446744073709551615ULL);
  EXPECT_THAT(version(plan), HasSubstr("\"version\":3"));
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).blocks[0].period, plan.blocks[0].period);
}

TEST(PlanText, IsRefusedWithThePlaceWhereItIsWrong) {
  const std::tuple<unsigned, const char*, const char*> kRefused[] = {
      {1, R"("tiers":[])", "there is no field 'tiers'; there are format, version, provenance, figures, blocks, steps"},
      {1, R"("blocks":[{"buffer":0,"begin":0,"end":1,"tier":1}])", "blocks[0]: there is no field 'tier'"},
      {2, R"("tiers":[{"name":"disk","store_per_second":1}])", "tiers[0]: field 'load_per_second' is missing"},
      {2, R"("tiers":[{"store_per_second":1,"load_per_second":-1}])", "tiers[0].load_per_second: expected a whole"},
      {2, R"("blocks":[{"buffer":0,"begin":0,"end":1,"tier":4294967296}])", "blocks[0].tier: expected a whole number"},
      {2, R"("transfers":[{"from":0,"to":1,"issue":0}])", "transfers[0]: field 'wait' is missing"},
      {2, R"("blocks":[{"buffer":0,"begin":0,"end":1,"part":1}])", "blocks[0]: there is no field 'part'"},
      {2, R"("steps":[{"op":0,"axis":1}])", "steps[0]: there is no field 'axis'"},
      {3, R"("steps":[{"op":0,"parts":4294967296}])", "steps[0].parts: expected a whole number"},
      {4, R"("figures":{})", "is lowtide-plan version 4; this lowtide reads versions 1 to 3"}};
  for (const auto& [version, text, message] : kRefused) {
    SCOPED_TRACE(text);
    const Result<Plan> plan = parse_plan(words(R"({"format":"lowtide-plan","version":)", version, ",", text, "}"));
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(plan.error().message, HasSubstr(message));
  }
}

TEST(PlanText, OfAMalformedPlanIsWritten) {
  Plan plan;
  plan.order.emplace_back(3);
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).order.size(), 1U);
}

// Eight megabytes in one piece: no field, element or gap between them needs as much.
TEST(PlanText, WithAHugePieceIsRefused) {
  const std::string text = plan_text(Plan());
  const std::string filling(std::size_t{8} << 20, ' ');
  for (const char* before : {"\"version\"", "1,", "\"order\"", "\"arena\"", "]"}) {
    SCOPED_TRACE(before);
    std::string huge = text;
    huge.insert(huge.find(before), filling);
    const Result<Plan> read = parse_plan(huge);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::file_too_large) << read.error().message;
  }
}

struct Case {
  const char* name;
  ErrorCode code;
  const char* message;
  const char* text;  // behind {"format":"lowtide-graph","version":1, and before }
};

const Case kCases[] = {
    {"unknown_section", ErrorCode::malformed_file,
     "the text: there is no field 'opps'; there are format, version, buffers, values, ops, edges, reuses, axes",
     R"("opps":[])"},
    {"unknown_field", ErrorCode::malformed_file, "the text: buffers[0]: there is no field 'sise'; there are size, name",
     R"("buffers":[{"sise":64}])"},
    {"missing_field", ErrorCode::malformed_file, "the text: values[0]: field 'buffer' is missing", R"("values":[{}])"},
    {"field_twice", ErrorCode::malformed_file, "buffers[0]: field 'size' is given twice",
     R"("buffers":[{"size":1,"size":2}])"},
    {"section_twice", ErrorCode::malformed_file, "field 'ops' is given twice", R"("ops":[],"ops":[])"},
    {"not_a_list", ErrorCode::malformed_file, "ops: expected a list, but found '{}'", R"("ops":{})"},
    {"not_an_object", ErrorCode::malformed_file, "ops[1]: expected an object, but found '3'",
     R"("ops":[{"name":"a"}, 3])"},
    {"not_a_number", ErrorCode::malformed_file,
     "ops[0].reads[2]: expected a whole number from 0 to 4294967295, but found '\"x\"'",
     R"("buffers":[{"size":1,"resident":true,"initial":true}],"values":[{"buffer":0}],
        "ops":[{"name":"a","reads":[0,0,"x"]}])"},
    {"negative", ErrorCode::malformed_file, "buffers[0].size: expected a whole number from 0 to",
     R"("buffers":[{"size":-1}])"},
    {"not_whole", ErrorCode::malformed_file, "but found '1.5'", R"("buffers":[{"size":1.5}])"},
    {"too_large", ErrorCode::malformed_file, "but found '18446744073709551616'",
     R"("buffers":[{"size":18446744073709551616}])"},
    {"null", ErrorCode::malformed_file, "expected true or false, but found 'null'",
     R"("buffers":[{"size":1,"resident":null}])"},
    {"no_role", ErrorCode::malformed_file, "buffers[0].role: there is no role 'wait'",
     R"("buffers":[{"size":1,"role":"wait"}])"},
    {"no_comma", ErrorCode::malformed_file, "ops[1]: ", R"("ops":[{"name":"a"} {"name":"b"}])"},
    {"comma_at_the_end", ErrorCode::malformed_file, "ops[1]: ", R"("ops":[{"name":"a"},])"},
    {"wrong_bracket", ErrorCode::malformed_file, "ops", R"("ops":[{"name":"a"]])"},
    {"deep", ErrorCode::malformed_file, "nested deeper than 8 levels", R"("ops":[[[[[[[[[[]]]]]]]]]])"},
    {"value_of_no_version", ErrorCode::malformed_file, "values[0] shows version 1 of buffer 0, which has 1",
     R"("buffers":[{"size":1,"resident":true,"initial":true}],"values":[{"buffer":0,"version":1}])"},
    {"values_in_an_impossible_order", ErrorCode::malformed_file,
     "values[1] shows version 0 of buffer 0, which was overwritten before the value listed above it could be made",
     R"("buffers":[{"size":1,"resident":true,"initial":true}],
        "values":[{"buffer":0,"version":1},{"buffer":0}],"ops":[{"name":"a","writes":[0]}])"},
    {"read_too_early", ErrorCode::read_of_nothing,
     "op 0 'a' reads value 0, but value 0 shows version 0 of buffer 0, which nothing has written yet",
     R"("buffers":[{"size":1}],"values":[{"buffer":0}],"ops":[{"name":"a","reads":[0],"writes":[0]}])"},
    {"no_such_value", ErrorCode::unknown_id, "the text: there is no value 7: 0 exist",
     R"("ops":[{"name":"a","reads":[7]}])"},
    {"no_such_buffer", ErrorCode::unknown_id, "the text: there is no buffer 7: 0 exist", R"("values":[{"buffer":7}])"},
    {"stale_read", ErrorCode::stale_read, "has been overwritten by version 1",
     R"("buffers":[{"size":1,"resident":true,"initial":true}],"values":[{"buffer":0}],
        "ops":[{"name":"a","writes":[0]},{"name":"b","reads":[0]}])"},
    {"axis_without_counts", ErrorCode::malformed_file, "axes[0]: field 'counts' is missing",
     R"("ops":[{"name":"a"}],"axes":[{"op":0}])"},
    {"axis_of_too_many_parts", ErrorCode::malformed_file,
     "axes[0].counts[1]: expected a whole number from 0 to 4294967295, but found 4294967296",
     R"("ops":[{"name":"a"}],"axes":[{"op":0,"counts":[2,4294967296]}])"},
    {"axis_with_too_many_times", ErrorCode::malformed_file,
     "axes[0].times_ns: expected as many numbers as there are counts, 1, but found 2",
     R"("ops":[{"name":"a"}],"axes":[{"op":0,"counts":[2],"times_ns":[1,2]}])"},
    {"axis_exact_enough", ErrorCode::malformed_file, "axes[0].exact[0]: expected 0 or 1, but found 2",
     R"("ops":[{"name":"a"}],"axes":[{"op":0,"counts":[2],"exact":[2]}])"},
    {"axis_of_no_op", ErrorCode::unknown_id, "there is no op 1: 1 exist",
     R"("ops":[{"name":"a"}],"axes":[{"op":1,"counts":[2]}])"},
    {"invalid_axis", ErrorCode::invalid_axis, "cannot run in these parts: it writes nothing",
     R"("ops":[{"name":"a"}],"axes":[{"op":0,"counts":[2]}])"},
    {"edge_against_program", ErrorCode::edge_against_program, "cannot be ordered before",
     R"("ops":[{"name":"a"},{"name":"b"}],"edges":[{"before":1,"after":0}])"},
};

TEST(GraphText, IsRefusedWithThePlaceWhereItIsWrong) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Result<Graph> graph = parse_graph(words(R"({"format":"lowtide-graph","version":1,)", c.text, "}"));
    ASSERT_FALSE(graph.ok());
    EXPECT_EQ(graph.error().code, c.code) << graph.error().message;
    EXPECT_THAT(graph.error().message, HasSubstr(c.message));
  }
}

TEST_F(Files, RoundTripPlainAndCompressed) {
  const Graph graph = awkward_graph();
  for (const char* name : {"graph.json", "graph.json.zst"}) {
    unwrap(save_graph(graph, path(name)));
    expect_same(graph, unwrap(load_graph(path(name))));
  }
  EXPECT_LT(fs::file_size(path("graph.json.zst")), fs::file_size(path("graph.json")));
  fs::rename(path("graph.json.zst"), path("renamed.json"));  // the content decides, not the name
  expect_same(graph, unwrap(load_graph(path("renamed.json"))));
  EXPECT_EQ(std::distance(fs::directory_iterator(path("")), {}), 2);  // nothing is left beside them
}

// 60 MB of text that compress to next to nothing.
TEST_F(Files, ThatCompressVeryWellCanBeRead) {
  GraphBuilder builder;
  const std::string name(2000, 'x');
  for (std::size_t i = 0; i < 30'000; ++i) unwrap(builder.add_op({.name = name}));
  const fs::path regular = path("regular.json.zst");
  unwrap(save_graph(unwrap(std::move(builder).build()), regular));
  EXPECT_LT(fs::file_size(regular), 4'000'000U);
  EXPECT_EQ(unwrap(load_graph(regular)).num_ops(), 30'000U);
}

TEST(PlanFormat, AnAlignmentIsKept) {
  Plan plan;
  EXPECT_EQ(plan_text(plan).find("alignment"), std::string::npos);
  plan.alignment = Bytes(512);
  EXPECT_EQ(unwrap(parse_plan(plan_text(plan))).alignment, Bytes(512));
}

TEST_F(Files, PlansAreWrittenOnlyIfTheyAreRight) {
  std::mt19937_64 random(1);
  const Graph graph = random_graph(random);
  Plan made = unwrap(plan(graph));
  unwrap(save_plan(graph, made, path("plan.json")));
  EXPECT_EQ(plan_text(unwrap(load_plan(path("plan.json")))), plan_text(made));
  made.time += Nanos(1);
  const Status refused = save_plan(graph, made, path("wrong.json"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::wrong_time);
  EXPECT_FALSE(fs::exists(path("wrong.json")));
}

template <typename T>
std::string refusal(const Result<T>& result) {
  return result.ok() ? "not refused" : words(code_text(result.error().code), ": ", result.error().message);
}

TEST_F(Files, OfOtherFormatsAndVersionsAreRefusedByName) {
  const fs::path newer = written("step.json", R"({"format":"lowtide-graph","version":2,"new":{"things":[1,2]}})");
  EXPECT_EQ(refusal(load_graph(newer)),
            words("E602: ", newer.string(), " is lowtide-graph version 2; this lowtide reads version 1"));
  EXPECT_EQ(refusal(load_plan(newer)),
            words("E601: ", newer.string(), " is no lowtide-plan: its format is '\"lowtide-graph\"'"));
  const fs::path other = written("other.json", R"({"nodes":[]})");
  EXPECT_EQ(refusal(load_graph(other)),
            words("E601: ", other.string(), " is no lowtide-graph: it has no field 'format'"));
  const fs::path text = written("text", "hello");
  EXPECT_EQ(refusal(load_graph(text)),
            words("E603: ", text.string(), ": at byte 0: expected '{', but there is 'hello'"));
  const fs::path empty = written("empty", "");
  EXPECT_EQ(refusal(load_graph(empty)),
            words("E603: ", empty.string(), ": at byte 0: expected '{', but the text ends"));
}

TEST_F(Files, ThatTheSystemRefusesSaySo) {
  EXPECT_EQ(refusal(load_graph(path("none.json"))),
            words("E604: ", path("none.json").string(), ": cannot open it to read: No such file or directory"));
  EXPECT_EQ(load_graph(path("none.json")).error().system_error, ENOENT);
  EXPECT_EQ(load_graph(path("")).error().system_error, EISDIR);
  EXPECT_EQ(refusal(save_graph(awkward_graph(), path("none/graph.json"))),
            words("E604: ", path("none/graph.json").string(),
                  ": cannot create a file in its directory: No such file or directory"));
}

TEST_F(Files, ReplaceWhatWasThereOnlyWhenTheyAreWhole) {
  const Graph graph = awkward_graph();
  const fs::path old = written("graph.json", "something else");
  fs::create_symlink(old, path("link.json"));
  unwrap(save_graph(graph, path("link.json")));
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  expect_same(graph, unwrap(load_graph(old)));
}

}  // namespace
}  // namespace lowtide
