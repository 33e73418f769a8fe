#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/words.h"
#include "io/formats.h"
#include "io/json_rows.h"

namespace lowtide {
namespace {

// Values are made against the newest version of their buffer, so each is added as soon as the version that it shows
// exists, between the ops. If the file lists them in an order in which a builder can have made them, this finds it: a
// version stays the newest from one op to another, and adding early never misses that.
class GraphReader {
 public:
  explicit GraphReader(const std::vector<JsonSection>& sections)
      : buffers_(find_section(sections, "buffers"), JsonShape::list,
                 {{"size", &size_, JsonField::required},
                  {"name", &name_},
                  {"role", &role_},
                  {"resident", &resident_},
                  {"initial", &initial_},
                  {"kept", &kept_}}),
        values_(find_section(sections, "values"), JsonShape::list,
                {{"buffer", &value_buffer_, JsonField::required},
                 {"version", &value_version_},
                 {"dtype", &value_dtype_},
                 {"shape", &value_shape_}}),
        ops_(find_section(sections, "ops"), JsonShape::list,
             {{"name", &name_, JsonField::required},
              {"reads", &spec_.reads},
              {"writes", &spec_.writes},
              {"workspace", &size_},
              {"time_ns", &time_},
              {"stream", &spec_.stream},
              {"random", &spec_.flags.random},
              {"mutating", &spec_.flags.mutating},
              {"collective", &spec_.flags.collective},
              {"must_not_recompute", &spec_.flags.must_not_recompute},
              {"may_skip_updates", &spec_.flags.may_skip_updates},
              {"backward", &spec_.flags.backward},
              {"source", &spec_.source},
              {"module", &spec_.module},
              {"region", &spec_.region}}),
        edges_(find_section(sections, "edges"), JsonShape::list,
               {{"before", &before_, JsonField::required}, {"after", &after_, JsonField::required}}),
        reuses_(find_section(sections, "reuses"), JsonShape::list,
                {{"op", &op_, JsonField::required},
                 {"from", &from_, JsonField::required},
                 {"to", &to_, JsonField::required}}),
        axes_(find_section(sections, "axes"), JsonShape::list,
              {{"op", &op_, JsonField::required},
               {"reads", &axis_.reads},
               {"writes", &axis_.writes},
               {"counts", &axis_.counts, JsonField::required},
               {"workspaces", &axis_.workspaces},
               {"times_ns", &axis_.times},
               {"exact", &axis_.exact}}) {}

  Result<Graph> run() {
    if (Status status = add_buffers(); !status.ok()) return status.error();
    if (Status status = next_value(); !status.ok()) return status.error();
    if (Status status = add_ops(); !status.ok()) return status.error();
    if (Status status = add_edges(); !status.ok()) return status.error();
    if (Status status = add_reuses(); !status.ok()) return status.error();
    if (Status status = add_axes(); !status.ok()) return status.error();
    return std::move(builder_).build();
  }

 private:
  Status add_buffers() {
    versions_.reserve(buffers_.size());
    while (true) {
      size_ = 0;
      name_ = {};
      role_ = role_name(Role::activation);
      resident_ = initial_ = kept_ = false;
      const Result<bool> more = buffers_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      const std::optional<Role> role = find_role(role_);
      if (!role) {
        return Error{ErrorCode::malformed_file,
                     words("buffers[", buffers_.index(), "].role: there is no role ", shown(role_))};
      }
      const Result<BufferId> id =
          builder_.add_buffer({.size = Bytes(size_),
                               .residence = resident_ ? Residence::resident : Residence::planned,
                               .role = *role,
                               .name = name_,
                               .initial = initial_});
      if (!id.ok()) return id.error();
      if (kept_) {
        if (Status status = builder_.keep(*id); !status.ok()) return status;
      }
      versions_.push_back(initial_ ? 1 : 0);
    }
  }

  Status add_ops() {
    while (true) {
      if (Status status = add_values(); !status.ok()) return status;
      size_ = time_ = 0;
      spec_.reads.clear();
      spec_.writes.clear();
      spec_.stream = spec_.region = 0;
      spec_.flags = {};
      spec_.source = spec_.module = {};
      const Result<bool> more = ops_.next();
      if (!more.ok()) return more.error();
      if (!*more) break;
      if (Status status = check_reads(); !status.ok()) return status;
      spec_.name = name_;
      spec_.workspace = Bytes(size_);
      spec_.cost = Nanos(time_);
      const Result<OpId> id = builder_.add_op(spec_);
      if (!id.ok()) return id.error();
      for (const BufferId buffer : spec_.writes) ++versions_[buffer.index()];
    }
    if (!value_left_) return Done{};
    return Error{ErrorCode::malformed_file,
                 words("values[", values_.index(), "] shows version ", value_version_, " of buffer ", value_buffer_,
                       ", which has ", versions_[value_buffer_])};
  }

  Status next_value() {
    value_version_ = 0;
    value_dtype_ = {};
    value_shape_.clear();
    const Result<bool> more = values_.next();
    if (!more.ok()) return more.error();
    value_left_ = *more;
    return Done{};
  }

  // All values that can be made before the next op.
  Status add_values() {
    while (value_left_) {
      if (value_buffer_ < versions_.size()) {
        const std::uint32_t exist = versions_[value_buffer_];
        if (value_version_ >= exist) return Done{};
        if (value_version_ + 1 < exist) {
          return Error{ErrorCode::malformed_file,
                       words("values[", values_.index(), "] shows version ", value_version_, " of buffer ",
                             value_buffer_, ", which was overwritten before the value listed above it could be made; ",
                             "list values in the order in which ops make what they show")};
        }
      }
      const Result<ValueId> id = builder_.add_value(BufferId(value_buffer_), value_dtype_, value_shape_);
      if (!id.ok()) return id.error();
      if (Status status = next_value(); !status.ok()) return status;
    }
    return Done{};
  }

  // An op may not read a value that still waits for its content.
  Status check_reads() const {
    if (!value_left_) return Done{};
    for (const ValueId value : spec_.reads) {
      if (value.index() < values_.index() || value.index() >= values_.size()) continue;
      return Error{ErrorCode::read_of_nothing, words("op ", ops_.index(), " ", shown(name_), " reads value ", value,
                                                     ", but value ", values_.index(), " shows version ", value_version_,
                                                     " of buffer ", value_buffer_, ", which nothing has written yet")};
    }
    return Done{};
  }

  Status add_edges() {
    while (true) {
      const Result<bool> more = edges_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      if (Status status = builder_.add_edge(OpId(before_), OpId(after_)); !status.ok()) return status;
    }
  }

  Status add_reuses() {
    while (true) {
      const Result<bool> more = reuses_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      if (Status status = builder_.add_reuse(OpId(op_), BufferId(from_), BufferId(to_)); !status.ok()) return status;
    }
  }

  Status add_axes() {
    while (true) {
      axis_ = {};
      const Result<bool> more = axes_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      AxisSpec spec{.reads = {axis_.reads.begin(), axis_.reads.end()},
                    .writes = {axis_.writes.begin(), axis_.writes.end()}};
      for (const auto& [name, list] : {std::pair("workspaces", &axis_.workspaces), std::pair("times_ns", &axis_.times),
                                       std::pair("exact", &axis_.exact)}) {
        if (list->empty()) list->resize(axis_.counts.size());
        if (list->size() == axis_.counts.size()) continue;
        return wrong_axis(words(name, ": expected as many numbers as there are counts, ", axis_.counts.size(),
                                ", but found ", list->size()));
      }
      for (std::size_t i = 0; i < axis_.counts.size(); ++i) {
        if (axis_.counts[i] > std::numeric_limits<std::uint32_t>::max()) {
          return wrong_axis(
              words("counts[", i, "]: expected a whole number from 0 to 4294967295, but found ", axis_.counts[i]));
        }
        if (axis_.exact[i] > 1) return wrong_axis(words("exact[", i, "]: expected 0 or 1, but found ", axis_.exact[i]));
        spec.counts.push_back({.count = static_cast<std::uint32_t>(axis_.counts[i]),
                               .workspace = Bytes(axis_.workspaces[i]),
                               .cost = Nanos(axis_.times[i]),
                               .exact = axis_.exact[i] == 1});
      }
      if (Status status = builder_.add_axis(OpId(op_), spec); !status.ok()) return status;
    }
  }

  Error wrong_axis(const std::string& what) const {
    return {ErrorCode::malformed_file, words("axes[", axes_.index(), "].", what)};
  }

  // What the rows are read into.
  std::uint64_t size_ = 0;
  std::uint64_t time_ = 0;
  std::string_view name_;
  std::string_view role_;
  bool resident_ = false;
  bool initial_ = false;
  bool kept_ = false;
  std::uint32_t value_buffer_ = 0;
  std::uint32_t value_version_ = 0;
  std::string_view value_dtype_;
  std::vector<std::int64_t> value_shape_;
  OpSpec spec_;
  std::uint32_t before_ = 0;
  std::uint32_t after_ = 0;
  std::uint32_t op_ = 0;
  std::uint32_t from_ = 0;
  std::uint32_t to_ = 0;
  struct AxisRow {
    std::vector<std::uint64_t> reads, writes, counts, workspaces, times, exact;
  };
  AxisRow axis_;

  JsonRows buffers_;
  JsonRows values_;
  JsonRows ops_;
  JsonRows edges_;
  JsonRows reuses_;
  JsonRows axes_;
  bool value_left_ = false;              // a value was read that is not yet added
  std::vector<std::uint32_t> versions_;  // by buffer: how many exist
  GraphBuilder builder_;
};

void write_reuses(const Graph& graph, JsonWriter& out) {
  out.open_list("reuses");
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    for (const Reuse& reuse : graph.op(id).reuses) {
      out.open_row();
      out.field("op", id);
      out.field("from", reuse.from);
      out.field("to", reuse.to);
      out.close_row();
    }
  }
  out.close_list();
}

void write_axis(OpId op, const Axis& axis, JsonWriter& out) {
  const auto numbers = [&](std::string_view name, auto number) {
    const auto says_nothing = [&](const PartCount& parts) { return std::invoke(number, parts) == 0; };
    if (!std::ranges::all_of(axis.counts, says_nothing)) out.list(name, axis.counts, number);
  };
  out.open_row();
  out.field("op", op);
  if (!axis.reads.empty()) out.list("reads", axis.reads, &Bytes::count);
  out.list("writes", axis.writes, &Bytes::count);
  numbers("counts", &PartCount::count);
  numbers("workspaces", [](const PartCount& parts) { return parts.workspace.count(); });
  numbers("times_ns", [](const PartCount& parts) { return parts.cost.count(); });
  numbers("exact", [](const PartCount& parts) { return std::uint64_t{parts.exact ? 1U : 0U}; });
  out.close_row();
}

void write_axes(const Graph& graph, JsonWriter& out) {
  out.open_list("axes");
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    for (std::size_t i = 0; i < graph.num_axes(id); ++i) write_axis(id, graph.axis(id, i), out);
  }
  out.close_list();
}

}  // namespace

Result<Graph> read_graph(Text text, const std::string& subject) {
  const Result<FormatText> opened =
      open_format(text, kGraphFormat, {{"buffers", "values", "ops", "edges", "reuses", "axes"}}, subject);
  if (!opened.ok()) return opened.error();
  Result<Graph> graph = GraphReader(opened->sections).run();
  if (!graph.ok()) return about(subject, graph.error());
  return graph;
}

void write_graph(const Graph& graph, JsonWriter& out) {
  out.open(kGraphFormat, 1);
  out.open_list("buffers");
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    out.open_row();
    if (!buffer.name.empty()) out.field("name", buffer.name);
    out.field("size", buffer.size);
    if (buffer.role != Role::activation) out.field("role", role_name(buffer.role));
    if (!buffer.planned()) out.field("resident", true);
    if (!graph.version(buffer.versions.front()).writer) out.field("initial", true);
    if (buffer.planned() && buffer.kept) out.field("kept", true);
    out.close_row();
  }
  out.close_list();

  out.open_list("values");
  for (ValueId id(0); id.index() < graph.num_values(); id = id.next()) {
    const Value value = graph.value(id);
    const Version version = graph.version(value.version);
    out.open_row();
    out.field("buffer", version.buffer);
    if (version.index != 0) out.field("version", std::uint64_t{version.index});
    if (!value.dtype.empty()) out.field("dtype", value.dtype);
    if (!value.shape.empty()) out.list("shape", value.shape, [](std::int64_t extent) { return extent; });
    out.close_row();
  }
  out.close_list();

  out.open_list("ops");
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    out.open_row();
    out.field("name", op.name);
    if (!op.reads.empty()) out.list("reads", op.reads, &ValueId::value);
    if (!op.writes.empty()) {
      out.list("writes", op.writes, [&](VersionId version) { return graph.version(version).buffer.value(); });
    }
    if (op.workspace != Bytes(0)) out.field("workspace", op.workspace);
    if (op.cost != Nanos(0)) out.field("time_ns", op.cost);
    if (op.stream != 0) out.field("stream", std::uint64_t{op.stream});
    if (op.flags.random) out.field("random", true);
    if (op.flags.mutating) out.field("mutating", true);
    if (op.flags.collective) out.field("collective", true);
    if (op.flags.must_not_recompute) out.field("must_not_recompute", true);
    if (op.flags.may_skip_updates) out.field("may_skip_updates", true);
    if (op.flags.backward) out.field("backward", true);
    if (!op.source.empty()) out.field("source", op.source);
    if (!op.module.empty()) out.field("module", op.module);
    if (op.region != 0) out.field("region", std::uint64_t{op.region});
    out.close_row();
  }
  out.close_list();

  out.open_list("edges");
  for (const Edge& edge : graph.edges()) {
    out.open_row();
    out.field("before", edge.before);
    out.field("after", edge.after);
    out.close_row();
  }
  out.close_list();

  if (graph.has_reuses()) write_reuses(graph, out);
  if (graph.has_axes()) write_axes(graph, out);
  out.close();
}

}  // namespace lowtide
