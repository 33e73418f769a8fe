// graph.h: what is planned: the ops of one step, the tensors they touch and the memory behind those.
//
// A graph is five tables. Ops read values and write buffers; every write makes a new version of a buffer; a value is a
// tensor that shows one version. In-place ops are therefore no special case, and a read always says which content it
// means:
//
//   op            reads      writes             buffer h    version 0    version 1    version 2
//   0  linear     x, w       h version 0           |--------- linear ---- relu_ ------ mul_ -----> time
//   1  relu_      h (v0)     h version 1                      value a      value c
//   2  mul        c          y version 0                      value b
//   3  mul_       c          h version 2        a and b are two views of one version: one buffer, one content
//
// An op that reads version k must run before the op that writes k + 1: op 2 before op 3 above. The same rule covers
// weights that are updated in place, running statistics, optimizer state and accumulated gradients. (Case "in_place" of
// graph_test.cc.)
//
// Memory is planned for buffers, never for values. A planned buffer lives in the arena, from its first write to its
// last use. A resident buffer lives outside: parameters, optimizer state, the batch, what the caller keeps.
//
//   GraphBuilder builder;
//   BufferId w = *builder.add_buffer({.size = Bytes(4096), .residence = Residence::resident, .role = Role::parameter,
//                                     .name = "weight", .initial = true});
//   BufferId y = *builder.add_buffer({.size = Bytes(1024), .name = "y"});
//   ValueId weight = *builder.add_value(w, "float32", {{32, 32}});
//   OpId linear = *builder.add_op({.name = "aten::linear", .reads = {weight}, .writes = {y}});
//   Result<Graph> graph = std::move(builder).build();
//
// Some ops can write their result where an operand lies that nobody needs any more. The graph says which (Reuse), the
// plan decides.
//
// Tables are kept as structures of arrays: a graph of one million ops and three million reads takes well under 1 GiB.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lowtide/axis.h"
#include "lowtide/lists.h"
#include "lowtide/status.h"
#include "lowtide/text_index.h"
#include "lowtide/units.h"

namespace lowtide {

enum class Residence : std::uint8_t {
  planned,   // in the arena, at an offset that the plan chooses
  resident,  // outside the arena, for the whole step
};

// What a buffer is for, in reports and to orders that look for weight updates. No plan is wrong because of it.
enum class Role : std::uint8_t {
  parameter,
  buffer,
  input,
  activation,
  gradient,
  optimizer_state,
  output,
  constant,
  temporary,
};

std::string_view role_name(Role role);
std::optional<Role> find_role(std::string_view name);

struct OpFlags {
  bool random = false;              // draws from the random generator: random ops keep program order among themselves
  bool mutating = false;            // writes to something it was given, in place
  bool collective = false;          // talks to other ranks: collectives keep program order among themselves
  bool must_not_recompute = false;  // running it twice would be wrong
  // Run again, it can leave out what it changes in resident buffers, with the same results: batch norm and its running
  // statistics. It then neither reads nor writes those buffers.
  bool may_skip_updates = false;
  bool backward = false;  // of a backward pass: what a region makes again, it makes again for such ops
};

// The storage behind one or more values.
struct Buffer {
  std::string_view name;
  Bytes size;
  Residence residence;
  Role role;
  bool kept;                            // its last version must be there at the end; always so if resident
  std::span<const VersionId> versions;  // in the order of their writes; never empty

  bool planned() const { return residence == Residence::planned; }
};

// A buffer's content between two writes.
struct Version {
  BufferId buffer;
  std::uint32_t index;            // 0 for the buffer's first content
  std::optional<OpId> writer;     // none: the content exists when the step begins (resident buffers only)
  std::span<const OpId> readers;  // each once, in program order
};

// A tensor: one way of looking at a version.
struct Value {
  VersionId version;
  std::string_view dtype;
  std::span<const std::int64_t> shape;
};

// Bytes that an op may take over: it can write the first content of `to` where `from` lies, with the same result bit
// for bit, because it reads each part of `from` before it writes there. Both are planned and of one size. Whether it
// does is for the plan to decide: it can only where nothing needs `from` afterwards.
struct Reuse {
  BufferId from;
  BufferId to;

  bool operator==(const Reuse&) const = default;
};

// A write of a version with index > 0 is in place: the op changes what is there, whether or not it also lists it as
// read.
struct Op {
  std::string_view name;
  std::span<const ValueId> reads;
  std::span<const VersionId> writes;
  std::span<const Reuse> reuses;  // each `from` once; a `to` may have several to choose from
  Bytes workspace;                // scratch bytes while it runs
  Nanos cost;
  std::uint32_t stream;
  OpFlags flags;
  std::string_view source;  // "train.py:12"
  std::string_view module;  // "encoder.layers.3.attention"
  std::uint32_t region;     // 0: none; see below
};

// Ops of one region, other than 0, are asked to run again. What they make, and no op but theirs and those of a backward
// pass uses, is dropped after its last use in the region, and made again for the backward pass: see plan().

// `before` must run earlier than `after`, for a reason that no buffer shows.
enum class EdgeReason : std::uint8_t {
  given,  // nobody here knows why: ops that it names run once
  rerun,  // a rewrite lets `after` run again, behind `before`; it may do so more often
};

struct Edge {
  OpId before;
  OpId after;
  EdgeReason reason = EdgeReason::given;
};

// Immutable. Ids count from 0 in the order in which things were added; op ids are program order, which is always a
// valid order. Versions that exist when the step begins come before those that ops write. Views handed out (names,
// spans) live as long as the graph.
class Graph {
 public:
  std::size_t num_ops() const { return op_cost_.size(); }
  std::size_t num_buffers() const { return buffer_size_.size(); }
  std::size_t num_versions() const { return version_buffer_.size(); }
  std::size_t num_values() const { return value_version_.size(); }

  Op op(OpId id) const;
  Buffer buffer(BufferId id) const;
  Version version(VersionId id) const;
  Value value(ValueId id) const;

  // Explicit edges only. Random ops and collectives are further ordered by their flags.
  std::span<const Edge> edges() const { return edges_; }

  bool has_reuses() const { return op_reuses_.num_items() > 0; }

  // The ways in which an op may run in parts.
  std::size_t num_axes(OpId id) const { return op_axes_[id.index()].size(); }
  Axis axis(OpId id, std::size_t index) const;
  bool has_axes() const { return op_axes_.num_items() > 0; }

  // The same graph, in which every result has bytes of its own: what eager execution does.
  Graph without_reuses() const;

  // All resident buffers together. No sum of sizes of one graph overflows: the builder has checked.
  Bytes resident_bytes() const { return resident_bytes_; }

 private:
  friend class GraphBuilder;

  std::string_view text(std::uint32_t id) const {
    const std::span<const char> chars = texts_[id];
    return {chars.data(), chars.size()};
  }

  Lists<char> texts_;  // interned: each distinct text once

  std::vector<std::uint32_t> op_name_, op_source_, op_module_, op_stream_, op_region_;
  std::vector<OpFlags> op_flags_;
  std::vector<Bytes> op_workspace_;
  std::vector<Nanos> op_cost_;
  Lists<ValueId> op_reads_;
  Lists<VersionId> op_writes_;
  Lists<Reuse> op_reuses_;
  Lists<std::uint32_t> op_axes_;  // into the next three

  Lists<Bytes> axis_reads_, axis_writes_;
  Lists<PartCount> axis_counts_;

  std::vector<std::uint32_t> buffer_name_;
  std::vector<Bytes> buffer_size_;
  std::vector<Residence> buffer_residence_;
  std::vector<Role> buffer_role_;
  std::vector<bool> buffer_kept_;
  Lists<VersionId> buffer_versions_;

  std::vector<BufferId> version_buffer_;
  std::vector<std::uint32_t> version_index_;
  std::vector<std::optional<OpId>> version_writer_;
  Lists<OpId> version_readers_;

  std::vector<VersionId> value_version_;
  std::vector<std::uint32_t> value_dtype_;
  Lists<std::int64_t> value_shape_;

  std::vector<Edge> edges_;
  Bytes resident_bytes_;
};

// What a buffer is made from. With `initial` it has content when the step begins, as only resident buffers can;
// otherwise an op of the step writes it first.
struct BufferSpec {
  Bytes size = {};
  Residence residence = Residence::planned;
  Role role = Role::activation;
  std::string_view name = {};
  bool initial = false;
};

// What an op is made from. The first write of a buffer creates its content, any further one changes it in place.
struct OpSpec {
  std::string_view name = {};
  std::vector<ValueId> reads = {};
  std::vector<BufferId> writes = {};
  Bytes workspace = {};
  Nanos cost = {};
  std::uint32_t stream = 0;
  OpFlags flags = {};
  std::string_view source = {};
  std::string_view module = {};
  std::uint32_t region = 0;
};

// Takes ops in program order, checks each as it comes, and refuses with an E1xx error that names the objects concerned.
// A refused call leaves the builder as it was.
class GraphBuilder {
 public:
  Result<BufferId> add_buffer(const BufferSpec& spec);

  // A tensor that shows the newest version of `buffer`. Once that is overwritten, the value can no longer be read.
  Result<ValueId> add_value(BufferId buffer, std::string_view dtype, std::span<const std::int64_t> shape);

  Result<OpId> add_op(const OpSpec& spec);

  // Orders two ops for a reason that no buffer shows. `before` must also come first in program order.
  Status add_edge(OpId before, OpId after, EdgeReason reason = EdgeReason::given);

  // `op` makes `to` and reads `from`, and may do so in the same bytes: see Reuse. In program order.
  Status add_reuse(OpId op, BufferId from, BufferId to);

  // A way in which `op` may run in parts. In program order.
  Status add_axis(OpId op, const AxisSpec& spec);

  // The last version of a planned buffer is wanted when the step ends.
  Status keep(BufferId buffer);

  // Ends the building; the builder is empty afterwards.
  Result<Graph> build() &&;

 private:
  std::uint32_t intern(std::string_view text) { return text_index_.intern(text, graph_.texts_); }
  std::string describe(BufferId buffer) const;
  Status reserve_bytes(Bytes size, std::string_view what, std::string_view name);
  VersionId add_version(BufferId buffer, std::optional<OpId> writer);
  void number_versions();

  Graph graph_;
  TextIndex text_index_;
  std::vector<std::optional<VersionId>> newest_;             // by buffer: what a value made now would show
  std::vector<std::pair<std::size_t, Reuse>> reuses_;        // by op
  std::vector<std::pair<std::size_t, std::uint32_t>> axes_;  // by op
  Bytes total_;                                              // sizes and workspaces so far
};

inline Op Graph::op(OpId id) const {
  const std::size_t i = id.index();
  return {text(op_name_[i]), op_reads_[i], op_writes_[i],       op_reuses_[i],       op_workspace_[i], op_cost_[i],
          op_stream_[i],     op_flags_[i], text(op_source_[i]), text(op_module_[i]), op_region_[i]};
}

inline Axis Graph::axis(OpId id, std::size_t index) const {
  const std::uint32_t axis = op_axes_[id.index()][index];
  return {axis_reads_[axis], axis_writes_[axis], axis_counts_[axis]};
}

inline Buffer Graph::buffer(BufferId id) const {
  const std::size_t i = id.index();
  return {text(buffer_name_[i]), buffer_size_[i], buffer_residence_[i],
          buffer_role_[i],       buffer_kept_[i], buffer_versions_[i]};
}

inline Version Graph::version(VersionId id) const {
  const std::size_t i = id.index();
  return {version_buffer_[i], version_index_[i], version_writer_[i], version_readers_[i]};
}

inline Value Graph::value(ValueId id) const {
  const std::size_t i = id.index();
  return {value_version_[i], text(value_dtype_[i]), value_shape_[i]};
}

}  // namespace lowtide
