#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/shown_name.h"
#include "base/words.h"
#include "lowtide/graph.h"

namespace lowtide {
namespace {

// Sums of sizes stay below this, so that no pass over a graph has to think about overflow.
constexpr Bytes kMaxTotal{(std::uint64_t{1} << 63) - 1};

std::string named(std::string_view kind, std::size_t index, std::string_view name) {
  return words(kind, " ", index, " ", quoted_name(name));
}

Error unknown(std::string_view kind, std::size_t index, std::size_t available) {
  return {ErrorCode::unknown_id, words("there is no ", kind, " ", index, ": ", available, " exist")};
}

Error too_many(std::string_view kind) {
  return {ErrorCode::too_many_objects, words("more than ", kMaxIds, " ", kind, ", the most that 32-bit ids can name")};
}

}  // namespace

Graph Graph::without_reuses() const {
  Graph plain = *this;
  plain.op_reuses_ = Lists<Reuse>::group(num_ops(), {});
  return plain;
}

std::string GraphBuilder::describe(BufferId buffer) const {
  return named("buffer", buffer.index(), graph_.text(graph_.buffer_name_[buffer.index()]));
}

Status GraphBuilder::reserve_bytes(Bytes size, std::string_view what, std::string_view name) {
  const std::optional<Bytes> total = checked_add(total_, size);
  if (!total || *total > kMaxTotal) {
    return Error{ErrorCode::size_overflow, words(what, " ", quoted_name(name), " of ", size,
                                                 " bytes: the graph's sizes would add up to more than ", kMaxTotal,
                                                 " bytes (", total_, " so far)")};
  }
  total_ = *total;
  return Done{};
}

VersionId GraphBuilder::add_version(BufferId buffer, std::optional<OpId> writer) {
  const VersionId id(graph_.version_buffer_.size());
  const std::optional<VersionId> previous = newest_[buffer.index()];
  graph_.version_buffer_.push_back(buffer);
  graph_.version_index_.push_back(previous ? graph_.version_index_[previous->index()] + 1 : 0);
  graph_.version_writer_.push_back(writer);
  newest_[buffer.index()] = id;
  return id;
}

Result<BufferId> GraphBuilder::add_buffer(const BufferSpec& spec) {
  if (graph_.num_buffers() >= kMaxIds) return too_many("buffers");
  if (graph_.num_versions() >= kMaxIds) return too_many("versions");
  if (spec.initial && spec.residence == Residence::planned) {
    return Error{ErrorCode::invalid_buffer,
                 words(named("buffer", graph_.num_buffers(), spec.name),
                       " is planned and has initial content: the arena is empty when a step begins")};
  }
  if (Status status = reserve_bytes(spec.size, "buffer", spec.name); !status.ok()) return status.error();

  const BufferId id(graph_.num_buffers());
  const bool resident = spec.residence == Residence::resident;
  graph_.buffer_name_.push_back(intern(spec.name));
  graph_.buffer_size_.push_back(spec.size);
  graph_.buffer_residence_.push_back(spec.residence);
  graph_.buffer_role_.push_back(spec.role);
  graph_.buffer_kept_.push_back(resident);
  if (resident) graph_.resident_bytes_ += spec.size;
  newest_.emplace_back();
  if (spec.initial) add_version(id, std::nullopt);
  return id;
}

Result<ValueId> GraphBuilder::add_value(BufferId buffer, std::string_view dtype, std::span<const std::int64_t> shape) {
  if (graph_.num_values() >= kMaxIds) return too_many("values");
  if (buffer.index() >= graph_.num_buffers()) return unknown("buffer", buffer.index(), graph_.num_buffers());
  if (!newest_[buffer.index()]) {
    return Error{ErrorCode::read_of_nothing,
                 words("a value is made from ", describe(buffer), ", which nothing has written yet")};
  }
  if (const auto negative = std::ranges::find_if(shape, [](std::int64_t extent) { return extent < 0; });
      negative != shape.end()) {
    return Error{ErrorCode::invalid_shape, words("a value of ", describe(buffer), " has extent ", *negative,
                                                 " in dimension ", negative - shape.begin())};
  }
  const ValueId id(graph_.num_values());
  graph_.value_version_.push_back(*newest_[buffer.index()]);
  graph_.value_dtype_.push_back(intern(dtype));
  graph_.value_shape_.add(shape);
  return id;
}

Result<OpId> GraphBuilder::add_op(const OpSpec& spec) {
  const OpId id(graph_.num_ops());
  if (graph_.num_ops() >= kMaxIds) return too_many("ops");
  if (spec.writes.size() > kMaxIds - graph_.num_versions()) return too_many("versions");
  for (const ValueId value : spec.reads) {
    if (value.index() >= graph_.num_values()) return unknown("value", value.index(), graph_.num_values());
    const VersionId version = graph_.value_version_[value.index()];
    const BufferId buffer = graph_.version_buffer_[version.index()];
    const VersionId newest = *newest_[buffer.index()];
    if (version != newest) {
      return Error{ErrorCode::stale_read,
                   words(named("op", id.index(), spec.name), " reads value ", value, ", version ",
                         graph_.version_index_[version.index()], " of ", describe(buffer),
                         ", which has been overwritten by version ", graph_.version_index_[newest.index()])};
    }
  }
  for (const BufferId buffer : spec.writes) {
    if (buffer.index() >= graph_.num_buffers()) return unknown("buffer", buffer.index(), graph_.num_buffers());
  }
  std::vector<BufferId> sorted = spec.writes;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    return Error{ErrorCode::duplicate_write,
                 words(named("op", id.index(), spec.name), " writes ", describe(*twice), " twice")};
  }
  if (Status status = reserve_bytes(spec.workspace, "workspace of op", spec.name); !status.ok()) return status.error();

  graph_.op_name_.push_back(intern(spec.name));
  graph_.op_source_.push_back(intern(spec.source));
  graph_.op_module_.push_back(intern(spec.module));
  graph_.op_stream_.push_back(spec.stream);
  graph_.op_region_.push_back(spec.region);
  graph_.op_flags_.push_back(spec.flags);
  graph_.op_workspace_.push_back(spec.workspace);
  graph_.op_cost_.push_back(spec.cost);
  graph_.op_reads_.add(spec.reads);
  for (const BufferId buffer : spec.writes) graph_.op_writes_.push(add_version(buffer, id));
  graph_.op_writes_.close();
  return id;
}

Status GraphBuilder::add_edge(OpId before, OpId after, EdgeReason reason) {
  for (const OpId op : {before, after}) {
    if (op.index() >= graph_.num_ops()) return unknown("op", op.index(), graph_.num_ops());
  }
  if (before >= after) {
    const auto op_name = [&](OpId op) { return named("op", op.index(), graph_.text(graph_.op_name_[op.index()])); };
    return Error{ErrorCode::edge_against_program, words(op_name(before), " cannot be ordered before ", op_name(after),
                                                        ": it does not precede it in program order")};
  }
  graph_.edges_.push_back({before, after, reason});
  return Done{};
}

Status GraphBuilder::add_reuse(OpId op, BufferId from, BufferId to) {
  if (op.index() >= graph_.num_ops()) return unknown("op", op.index(), graph_.num_ops());
  for (const BufferId buffer : {from, to}) {
    if (buffer.index() >= graph_.num_buffers()) return unknown("buffer", buffer.index(), graph_.num_buffers());
  }
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::invalid_reuse,
                 words(named("op", op.index(), graph_.text(graph_.op_name_[op.index()])), " cannot make ", describe(to),
                       " in the bytes of ", describe(from), ": ", why)};
  };
  const auto writes = [&](BufferId buffer) {
    return std::ranges::any_of(graph_.op_writes_[op.index()],
                               [&](VersionId version) { return graph_.version_buffer_[version.index()] == buffer; });
  };
  const auto makes = [&](VersionId version) {
    return graph_.version_buffer_[version.index()] == to && graph_.version_index_[version.index()] == 0;
  };
  const auto reads = [&](ValueId value) {
    return graph_.version_buffer_[graph_.value_version_[value.index()].index()] == from;
  };
  if (std::ranges::none_of(graph_.op_writes_[op.index()], makes)) return refuse("it does not make it");
  if (std::ranges::none_of(graph_.op_reads_[op.index()], reads)) return refuse("it does not read those");
  if (writes(from)) return refuse("it changes those in place");
  for (const BufferId buffer : {from, to}) {
    if (graph_.buffer_residence_[buffer.index()] != Residence::planned) return refuse("both must be planned");
  }
  if (graph_.buffer_size_[from.index()] != graph_.buffer_size_[to.index()]) return refuse("their sizes differ");
  if (!reuses_.empty() && op.index() < reuses_.back().first) return refuse("reuses are added in program order");
  for (auto known = reuses_.rbegin(); known != reuses_.rend() && known->first == op.index(); ++known) {
    if (known->second.from == from) return refuse("those can be taken over only once");
  }
  reuses_.emplace_back(op.index(), Reuse{from, to});
  return Done{};
}

Status GraphBuilder::add_axis(OpId op, const AxisSpec& spec) {
  if (op.index() >= graph_.num_ops()) return unknown("op", op.index(), graph_.num_ops());
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::invalid_axis, words(named("op", op.index(), graph_.text(graph_.op_name_[op.index()])),
                                                " cannot run in these parts: ", why)};
  };
  const std::span<const ValueId> reads = graph_.op_reads_[op.index()];
  const std::span<const VersionId> writes = graph_.op_writes_[op.index()];
  const OpFlags flags = graph_.op_flags_[op.index()];
  if (flags.random || flags.collective) return refuse("it is random or a collective");
  if (spec.reads.size() != reads.size() || spec.writes.size() != writes.size()) {
    return refuse("expected a period for each of its reads and writes");
  }
  if (writes.empty()) return refuse("it writes nothing");
  if (spec.counts.empty()) return refuse("expected at least one number of parts");
  if (!axes_.empty() && op.index() < axes_.back().first) return refuse("axes are added in program order");
  std::vector<std::pair<BufferId, Bytes>> periods;  // of all operands
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const VersionId version = graph_.value_version_[reads[i].index()];
    periods.emplace_back(graph_.version_buffer_[version.index()], spec.reads[i]);
  }
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const BufferId buffer = graph_.version_buffer_[writes[i].index()];
    if (spec.writes[i] == Bytes(0) && graph_.version_index_[writes[i].index()] > 0) {
      return refuse("parts of a sum are added to a result that it makes, not in place");
    }
    const auto other = [&](const auto& operand) { return operand.first == buffer && operand.second != spec.writes[i]; };
    if (std::ranges::any_of(periods, other)) return refuse("it reads and writes one buffer in different parts");
    periods.emplace_back(buffer, spec.writes[i]);
  }
  if (std::ranges::all_of(periods, [](const auto& operand) { return operand.second == Bytes(0); })) {
    return refuse("none of its operands is cut");
  }
  std::uint32_t last = 1;
  for (const PartCount& parts : spec.counts) {
    if (parts.count <= last) return refuse("numbers of parts must rise from 2");
    last = parts.count;
    const auto uneven = [&](const auto& operand) { return operand.second.count() % parts.count != 0; };
    if (std::ranges::any_of(periods, uneven)) return refuse("a period is not a multiple of the number of parts");
  }
  for (const auto& [buffer, period] : periods) {
    if (period != Bytes(0) && graph_.buffer_size_[buffer.index()].count() % period.count() != 0) {
      return refuse("a buffer's size is not a multiple of its period");
    }
  }
  axes_.emplace_back(op.index(), static_cast<std::uint32_t>(graph_.axis_reads_.size()));
  graph_.axis_reads_.add(spec.reads);
  graph_.axis_writes_.add(spec.writes);
  graph_.axis_counts_.add(spec.counts);
  return Done{};
}

Status GraphBuilder::keep(BufferId buffer) {
  if (buffer.index() >= graph_.num_buffers()) return unknown("buffer", buffer.index(), graph_.num_buffers());
  graph_.buffer_kept_[buffer.index()] = true;
  return Done{};
}

void GraphBuilder::number_versions() {
  const auto made = [&](std::size_t version) { return graph_.version_writer_[version].has_value(); };
  std::vector<std::size_t> order(graph_.num_versions());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::ranges::is_partitioned(order, std::not_fn(made))) return;
  std::ranges::stable_partition(order, std::not_fn(made));

  const auto reorder = [&](auto& column) {
    auto old = column;
    for (std::size_t i = 0; i < order.size(); ++i) column[i] = old[order[i]];
  };
  reorder(graph_.version_buffer_);
  reorder(graph_.version_index_);
  reorder(graph_.version_writer_);
  std::vector<VersionId> number(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) number[order[i]] = VersionId(i);
  for (VersionId& version : graph_.value_version_) version = number[version.index()];
  for (std::size_t op = 0; op < graph_.num_ops(); ++op) {
    for (VersionId& version : graph_.op_writes_[op]) version = number[version.index()];
  }
}

Result<Graph> GraphBuilder::build() && {
  for (std::size_t buffer = 0; buffer < newest_.size(); ++buffer) {
    if (newest_[buffer]) continue;
    return Error{ErrorCode::never_written,
                 words(describe(BufferId(buffer)), " has no initial content and no op writes it")};
  }

  number_versions();
  std::vector<std::pair<std::size_t, VersionId>> versions;
  versions.reserve(graph_.num_versions());
  for (std::size_t version = 0; version < graph_.num_versions(); ++version) {
    versions.emplace_back(graph_.version_buffer_[version].index(), VersionId(version));
  }
  graph_.buffer_versions_ = Lists<VersionId>::group(graph_.num_buffers(), versions);
  graph_.op_reuses_ = Lists<Reuse>::group(graph_.num_ops(), reuses_);
  graph_.op_axes_ = Lists<std::uint32_t>::group(graph_.num_ops(), axes_);

  std::vector<std::pair<std::size_t, OpId>> readers;
  readers.reserve(graph_.op_reads_.num_items());
  std::vector<std::size_t> last_reader(graph_.num_versions(), graph_.num_ops());
  for (std::size_t op = 0; op < graph_.num_ops(); ++op) {
    for (const ValueId value : graph_.op_reads_[op]) {
      const std::size_t version = graph_.value_version_[value.index()].index();
      if (std::exchange(last_reader[version], op) != op) readers.emplace_back(version, OpId(op));
    }
  }
  graph_.version_readers_ = Lists<OpId>::group(graph_.num_versions(), readers);

  GraphBuilder built = std::move(*this);
  *this = GraphBuilder();
  return std::move(built.graph_);
}

}  // namespace lowtide
