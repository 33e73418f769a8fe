#include "lowtide/graph.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unwrap.h"

namespace lowtide {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr BufferSpec kWeight{
    .size = Bytes(40), .residence = Residence::resident, .role = Role::parameter, .name = "w", .initial = true};

// The picture of graph.h.
TEST(Graph, InPlace) {
  GraphBuilder builder;
  const BufferId x = unwrap(builder.add_buffer(
      {.size = Bytes(8), .residence = Residence::resident, .role = Role::input, .name = "x", .initial = true}));
  const BufferId w = unwrap(builder.add_buffer(kWeight));
  const BufferId h = unwrap(builder.add_buffer({.size = Bytes(16), .name = "h"}));
  const BufferId y = unwrap(builder.add_buffer({.size = Bytes(16), .name = "y"}));
  const ValueId xv = unwrap(builder.add_value(x, "float32", {{2, 1}}));
  const ValueId wv = unwrap(builder.add_value(w, "float32", {}));
  const OpId linear =
      unwrap(builder.add_op({.name = "linear", .reads = {xv, wv}, .writes = {h}, .source = "net.py:1"}));
  const ValueId a = unwrap(builder.add_value(h, "float32", {}));
  const ValueId b = unwrap(builder.add_value(h, "int32", {}));
  const OpId relu = unwrap(builder.add_op({.name = "relu_", .reads = {a}, .writes = {h}}));
  const ValueId c = unwrap(builder.add_value(h, "float32", {}));
  const OpId mul = unwrap(builder.add_op({.name = "mul", .reads = {c, c}, .writes = {y}}));
  const OpId mul_in_place = unwrap(builder.add_op({.name = "mul_", .reads = {c}, .writes = {h}}));
  const Graph graph = unwrap(std::move(builder).build());

  EXPECT_EQ(graph.num_ops(), 4u);
  EXPECT_EQ(graph.num_buffers(), 4u);
  EXPECT_EQ(graph.num_values(), 5u);
  EXPECT_EQ(graph.num_versions(), 6u);  // x, w, three of h, y
  EXPECT_EQ(graph.resident_bytes(), Bytes(48));

  ASSERT_EQ(graph.buffer(h).versions.size(), 3u);
  const Version first = graph.version(graph.buffer(h).versions[0]);
  const Version second = graph.version(graph.buffer(h).versions[1]);
  const Version third = graph.version(graph.buffer(h).versions[2]);
  EXPECT_EQ(first.writer, linear);
  EXPECT_THAT(first.readers, ElementsAre(relu));
  EXPECT_EQ(second.index, 1u);
  EXPECT_THAT(second.readers, ElementsAre(mul, mul_in_place));  // mul reads it twice and is listed once
  EXPECT_EQ(third.writer, mul_in_place);
  EXPECT_THAT(third.readers, IsEmpty());
  EXPECT_EQ(graph.value(a).version, graph.value(b).version);
  EXPECT_NE(graph.value(a).version, graph.value(c).version);
  EXPECT_EQ(graph.value(b).dtype, "int32");
  EXPECT_THAT(graph.value(xv).shape, ElementsAre(2, 1));

  EXPECT_EQ(graph.version(graph.buffer(w).versions[0]).writer, std::nullopt);
  EXPECT_TRUE(graph.buffer(w).kept);
  EXPECT_FALSE(graph.buffer(h).kept);
  EXPECT_EQ(graph.buffer(w).name, "w");
  EXPECT_EQ(graph.op(linear).name, "linear");
  EXPECT_EQ(graph.op(linear).source, "net.py:1");
}

TEST(Graph, RefusesWhatCannotBe) {
  struct Case {
    const char* name;
    ErrorCode code;
    const char* message;
    // Gets a builder with a resident 'w' (buffer 0, value 0), an unwritten planned 'h' (buffer 1) and an op 'first'
    // that reads w.
    Error (*attempt)(GraphBuilder& builder);
  };
  const Case cases[] = {
      {"planned_initial", ErrorCode::invalid_buffer, "buffer 2 'p' is planned and has initial content",
       [](GraphBuilder& b) { return b.add_buffer({.size = Bytes(1), .name = "p", .initial = true}).error(); }},
      {"value_of_unknown_buffer", ErrorCode::unknown_id, "there is no buffer 9: 2 exist",
       [](GraphBuilder& b) { return b.add_value(BufferId(9), "float32", {}).error(); }},
      {"value_of_nothing", ErrorCode::read_of_nothing, "buffer 1 'h', which nothing has written yet",
       [](GraphBuilder& b) { return b.add_value(BufferId(1), "float32", {}).error(); }},
      {"negative_extent", ErrorCode::invalid_shape, "'w' has extent -3 in dimension 1",
       [](GraphBuilder& b) { return b.add_value(BufferId(0), "float32", {{2, -3}}).error(); }},
      {"read_of_unknown_value", ErrorCode::unknown_id, "there is no value 7: 1 exist",
       [](GraphBuilder& b) { return b.add_op({.name = "f", .reads = {ValueId(7)}}).error(); }},
      {"write_of_unknown_buffer", ErrorCode::unknown_id, "there is no buffer 5: 2 exist",
       [](GraphBuilder& b) { return b.add_op({.name = "f", .writes = {BufferId(5)}}).error(); }},
      {"stale_read", ErrorCode::stale_read,
       "op 2 'f' reads value 0, version 0 of buffer 0 'w', which has been overwritten by version 1",
       [](GraphBuilder& b) {
         unwrap(b.add_op({.name = "add_", .reads = {ValueId(0)}, .writes = {BufferId(0)}}));
         return b.add_op({.name = "f", .reads = {ValueId(0)}}).error();
       }},
      {"duplicate_write", ErrorCode::duplicate_write, "op 1 'f' writes buffer 1 'h' twice",
       [](GraphBuilder& b) {
         return b.add_op({.name = "f", .writes = {BufferId(1), BufferId(0), BufferId(1)}}).error();
       }},
      {"size_overflow", ErrorCode::size_overflow,
       "buffer 'big' of 9223372036854775807 bytes",  // 2^63 - 1, beside w and h
       [](GraphBuilder& b) { return b.add_buffer({.size = Bytes(~std::uint64_t{0} >> 1), .name = "big"}).error(); }},
      {"workspace_overflow", ErrorCode::size_overflow, "workspace of op 'f' of 18446744073709551615 bytes",
       [](GraphBuilder& b) { return b.add_op({.name = "f", .workspace = Bytes::max()}).error(); }},
      {"edge_to_unknown_op", ErrorCode::unknown_id, "there is no op 4: 1 exist",
       [](GraphBuilder& b) { return b.add_edge(OpId(0), OpId(4)).error(); }},
      {"edge_to_itself", ErrorCode::edge_against_program, "op 0 'first' cannot be ordered before op 0 'first'",
       [](GraphBuilder& b) { return b.add_edge(OpId(0), OpId(0)).error(); }},
      {"keep_unknown", ErrorCode::unknown_id, "there is no buffer 3: 2 exist",
       [](GraphBuilder& b) { return b.keep(BufferId(3)).error(); }},
      {"never_written", ErrorCode::never_written, "buffer 1 'h' has no initial content and no op writes it",
       [](GraphBuilder& b) { return std::move(b).build().error(); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    GraphBuilder builder;
    unwrap(builder.add_buffer(kWeight));
    unwrap(builder.add_buffer({.size = Bytes(16), .name = "h"}));
    unwrap(builder.add_value(BufferId(0), "float32", {}));
    unwrap(builder.add_op({.name = "first", .reads = {ValueId(0)}}));
    const Error error = c.attempt(builder);
    EXPECT_EQ(error.code, c.code);
    EXPECT_THAT(error.message, HasSubstr(c.message));

    // The builder is none the worse for it.
    unwrap(builder.add_op({.name = "last", .writes = {BufferId(1)}}));
    EXPECT_TRUE(std::move(builder).build().ok());
  }
}

// An op that reads two planned buffers and makes two more; the last is of another size.
class ReuseTest : public ::testing::Test {
 protected:
  ReuseTest() {
    for (const std::uint64_t size : {64, 64, 64, 32}) ids.push_back(unwrap(builder.add_buffer({.size = Bytes(size)})));
    ids.push_back(unwrap(builder.add_buffer(kWeight)));
    unwrap(builder.add_op({.name = "make", .writes = {ids[0], ids[1]}}));
    const ValueId x = unwrap(builder.add_value(ids[0], "u8", {}));
    const ValueId y = unwrap(builder.add_value(ids[1], "u8", {}));
    const ValueId w = unwrap(builder.add_value(ids[4], "u8", {}));
    unwrap(builder.add_op({.name = "f", .reads = {x, y, w}, .writes = {ids[1], ids[2], ids[3]}}));
    unwrap(builder.add_op({.name = "g", .reads = {x}}));
  }

  std::string refusal(std::size_t op, std::size_t from, std::size_t to) {
    const Status status = builder.add_reuse(OpId(op), ids[from], ids[to]);
    if (status.ok()) return "";
    EXPECT_EQ(status.error().code, ErrorCode::invalid_reuse);
    return status.error().message;
  }

  GraphBuilder builder;
  std::vector<BufferId> ids;
};

TEST_F(ReuseTest, IsRefusedWhereItCannotBe) {
  EXPECT_THAT(refusal(2, 0, 2), HasSubstr("it does not make it"));
  EXPECT_THAT(refusal(1, 0, 1), HasSubstr("it does not make it")) << "it changes it in place";
  EXPECT_THAT(refusal(1, 2, 2), HasSubstr("it does not read those"));
  EXPECT_THAT(refusal(1, 1, 2), HasSubstr("it changes those in place"));
  EXPECT_THAT(refusal(1, 4, 2), HasSubstr("both must be planned"));
  EXPECT_THAT(refusal(1, 0, 3), HasSubstr("their sizes differ"));
  EXPECT_EQ(refusal(1, 0, 2), "");
  EXPECT_THAT(refusal(1, 0, 2), HasSubstr("only once"));
  EXPECT_THAT(refusal(0, 0, 1), HasSubstr("it does not read those"));
  EXPECT_EQ(builder.add_reuse(OpId(7), ids[0], ids[2]).error().code, ErrorCode::unknown_id);
  EXPECT_EQ(builder.add_reuse(OpId(1), BufferId(9), ids[2]).error().code, ErrorCode::unknown_id);

  const Graph graph = unwrap(std::move(builder).build());
  EXPECT_THAT(graph.op(OpId(1)).reuses, ::testing::ElementsAre(Reuse{ids[0], ids[2]}));
  EXPECT_TRUE(graph.has_reuses());
  EXPECT_FALSE(graph.without_reuses().has_reuses());
}

// A product of matrices that is made and then changed in place, with a weight: 64 bytes each.
class AxisTest : public ::testing::Test {
 protected:
  AxisTest() {
    const BufferId w = unwrap(builder.add_buffer(kWeight));
    const BufferId h = unwrap(builder.add_buffer({.size = Bytes(64)}));
    unwrap(builder.add_op({.name = "mm", .reads = {unwrap(builder.add_value(w, "u8", {}))}, .writes = {h}}));
    unwrap(builder.add_op({.name = "relu_", .reads = {unwrap(builder.add_value(h, "u8", {}))}, .writes = {h}}));
    unwrap(builder.add_op({.name = "dropout", .reads = {}, .writes = {h}, .flags = {.random = true}}));
    unwrap(builder.add_op({.name = "nothing", .reads = {unwrap(builder.add_value(h, "u8", {}))}}));
  }

  std::string refusal(std::size_t op, std::vector<Bytes> reads, std::vector<Bytes> writes,
                      std::vector<std::uint32_t> counts) {
    AxisSpec spec{.reads = std::move(reads), .writes = std::move(writes)};
    for (const std::uint32_t count : counts) spec.counts.push_back({.count = count, .cost = Nanos(count)});
    const Status status = builder.add_axis(OpId(op), spec);
    if (status.ok()) return "";
    EXPECT_EQ(status.error().code, ErrorCode::invalid_axis);
    return status.error().message;
  }

  GraphBuilder builder;
};

TEST_F(AxisTest, IsRefusedWhereItCannotBe) {
  const Bytes none(0);
  EXPECT_THAT(refusal(0, {}, {Bytes(64)}, {2}), HasSubstr("a period for each"));
  EXPECT_THAT(refusal(0, {none}, {none}, {2}), HasSubstr("none of its operands"));
  EXPECT_THAT(refusal(0, {none}, {Bytes(64)}, {}), HasSubstr("at least one number"));
  EXPECT_THAT(refusal(0, {none}, {Bytes(64)}, {4, 2}), HasSubstr("must rise"));
  EXPECT_THAT(refusal(0, {none}, {Bytes(64)}, {1}), HasSubstr("from 2"));
  EXPECT_THAT(refusal(0, {none}, {Bytes(64)}, {2, 3}), HasSubstr("multiple of the number"));
  EXPECT_THAT(refusal(0, {none}, {Bytes(48)}, {2}), HasSubstr("multiple of its period"));
  EXPECT_THAT(refusal(1, {Bytes(64)}, {Bytes(32)}, {2}), HasSubstr("in different parts"));
  EXPECT_THAT(refusal(1, {Bytes(64)}, {none}, {2}), HasSubstr("not in place"));
  EXPECT_THAT(refusal(2, {}, {Bytes(64)}, {2}), HasSubstr("random"));
  EXPECT_THAT(refusal(3, {Bytes(64)}, {}, {2}), HasSubstr("writes nothing"));
  EXPECT_EQ(builder.add_axis(OpId(7), {}).error().code, ErrorCode::unknown_id);

  EXPECT_EQ(refusal(0, {none}, {Bytes(64)}, {2, 4}), "");
  EXPECT_EQ(refusal(0, {Bytes(4)}, {none}, {2}), "") << "a sum";
  EXPECT_EQ(refusal(1, {Bytes(32)}, {Bytes(32)}, {2}), "");
  EXPECT_THAT(refusal(0, {none}, {Bytes(64)}, {2}), HasSubstr("program order"));

  const Graph graph = unwrap(std::move(builder).build());
  EXPECT_TRUE(graph.has_axes());
  ASSERT_EQ(graph.num_axes(OpId(0)), 2u);
  EXPECT_EQ(graph.num_axes(OpId(2)), 0u);
  EXPECT_EQ(graph.axis(OpId(0), 0).counts[1], (PartCount{.count = 4, .cost = Nanos(4)}));
  EXPECT_EQ(graph.axis(OpId(0), 1).writes[0], none);
  EXPECT_EQ(graph.axis(OpId(1), 0).reads[0], Bytes(32));
}

TEST(Graph, EmptyIsAGraph) {
  const Graph graph = unwrap(GraphBuilder().build());
  EXPECT_EQ(graph.num_ops(), 0u);
  EXPECT_EQ(graph.resident_bytes(), Bytes(0));
}

TEST(Graph, MessagesShowTheBeginningOfLongNames) {
  GraphBuilder builder;
  const std::string name = std::string(199, 'x') + "\u00e9" + std::string(5000, 'y');  // two bytes, 199 and 200
  (void)unwrap(builder.add_buffer({.size = Bytes(4), .name = name}));
  const Result<Graph> graph = std::move(builder).build();
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().message,
            "buffer 0 '" + std::string(199, 'x') + "...' has no initial content and no op writes it");
}

TEST(Graph, RolesHaveNames) {
  for (const Role role : {Role::parameter, Role::buffer, Role::optimizer_state, Role::temporary}) {
    EXPECT_EQ(find_role(role_name(role)), role);
  }
  EXPECT_EQ(role_name(Role::gradient), "gradient");
  EXPECT_EQ(find_role("weights"), std::nullopt);
}

}  // namespace
}  // namespace lowtide
