#include <utility>

#include "base/words.h"
#include "io/formats.h"
#include "io/json_rows.h"

namespace lowtide {
namespace {

class PlanReader {
 public:
  explicit PlanReader(const std::vector<JsonSection>& sections)
      : steps_(find_section(sections, "steps"), JsonShape::list,
               {{"op", &id_, JsonField::required}, {"reads", &reads_}, {"writes", &writes_}, {"workspace", &offset_}}),
        blocks_(find_section(sections, "blocks"), JsonShape::list,
                {{"buffer", &id_, JsonField::required},
                 {"begin", &begin_, JsonField::required},
                 {"end", &end_, JsonField::required},
                 {"offset", &offset_}}),
        figures_(find_section(sections, "figures"), JsonShape::object,
                 {{"alignment", &alignment_},
                  {"arena", &arena_},
                  {"peak", &peak_},
                  {"bound", &bound_},
                  {"resident", &resident_},
                  {"time_ns", &time_}}),
        provenance_(find_section(sections, "provenance"), JsonShape::object,
                    {{"order", &order_},
                     {"layout", &layout_},
                     {"version", &version_},
                     {"graph", &graph_},
                     {"recompute", &recompute_}}) {}

  Result<Plan> run() {
    if (Status status = read_steps(); !status.ok()) return status.error();
    if (Status status = read_blocks(); !status.ok()) return status.error();
    if (const Result<bool> row = figures_.next(); !row.ok()) return row.error();
    if (const Result<bool> row = provenance_.next(); !row.ok()) return row.error();
    plan_.alignment = Bytes(alignment_);
    plan_.arena = Bytes(arena_);
    plan_.peak = Bytes(peak_);
    plan_.bound = Bytes(bound_);
    plan_.resident = Bytes(resident_);
    plan_.time = Nanos(time_);
    plan_.provenance = {std::string(order_), std::string(layout_), std::string(version_), std::string(recompute_)};
    if (!graph_.empty()) {
      plan_.provenance.graph = parse_fingerprint(graph_);
      if (!plan_.provenance.graph) {
        return Error{ErrorCode::malformed_file,
                     words("provenance.graph: expected 32 hexadecimal digits, but found ", shown(graph_))};
      }
    }
    return std::move(plan_);
  }

 private:
  Status read_steps() {
    plan_.order.reserve(steps_.size());
    plan_.workspaces.reserve(steps_.size());
    while (true) {
      offset_.reset();
      reads_.clear();
      writes_.clear();
      const Result<bool> more = steps_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      plan_.order.emplace_back(id_);
      plan_.reads.add(reads_);
      plan_.writes.add(writes_);
      plan_.workspaces.emplace_back(offset_.value_or(0));
    }
  }

  Status read_blocks() {
    plan_.blocks.reserve(blocks_.size());
    while (true) {
      offset_.reset();
      const Result<bool> more = blocks_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      plan_.blocks.push_back(
          {BufferId(id_), StepIndex(begin_), StepIndex(end_), offset_ ? std::optional(Bytes(*offset_)) : std::nullopt});
    }
  }

  // What the rows are read into.
  std::uint32_t id_ = 0;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  std::optional<std::uint64_t> offset_;
  std::vector<BlockId> reads_;
  std::vector<BlockId> writes_;
  std::uint64_t alignment_ = kAlignment.count();
  std::uint64_t arena_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t bound_ = 0;
  std::uint64_t resident_ = 0;
  std::uint64_t time_ = 0;
  std::string_view order_;
  std::string_view layout_;
  std::string_view version_;
  std::string_view recompute_;
  std::string_view graph_;

  JsonRows steps_;
  JsonRows blocks_;
  JsonRows figures_;
  JsonRows provenance_;
  Plan plan_;
};

}  // namespace

Result<Plan> read_plan(Text text, const std::string& subject) {
  const auto sections = open_format(text, kPlanFormat, {"provenance", "figures", "blocks", "steps"}, subject);
  if (!sections.ok()) return sections.error();
  Result<Plan> plan = PlanReader(*sections).run();
  if (!plan.ok()) return about(subject, plan.error());
  return plan;
}

void write_plan(const Plan& plan, JsonWriter& out) {
  out.open(kPlanFormat, kFormatVersion);
  out.open_object("provenance");
  out.field("order", plan.provenance.order);
  out.field("layout", plan.provenance.layout);
  out.field("version", plan.provenance.version);
  if (!plan.provenance.recompute.empty()) out.field("recompute", plan.provenance.recompute);
  if (plan.provenance.graph) out.field("graph", fingerprint_text(*plan.provenance.graph));
  out.close_row();

  out.open_object("figures");
  if (plan.alignment != kAlignment) out.field("alignment", plan.alignment);
  out.field("arena", plan.arena);
  out.field("peak", plan.peak);
  out.field("bound", plan.bound);
  out.field("resident", plan.resident);
  out.field("time_ns", plan.time);
  out.close_row();

  out.open_list("blocks");
  for (const Block& block : plan.blocks) {
    out.open_row();
    out.field("buffer", block.buffer);
    out.field("begin", block.begin);
    out.field("end", block.end);
    if (block.offset) out.field("offset", *block.offset);
    out.close_row();
  }
  out.close_list();

  out.open_list("steps");
  for (std::size_t step = 0; step < plan.order.size(); ++step) {
    out.open_row();
    out.field("op", plan.order[step]);
    if (step < plan.reads.size() && !plan.reads[step].empty()) out.list("reads", plan.reads[step], &BlockId::value);
    if (step < plan.writes.size() && !plan.writes[step].empty()) {
      out.list("writes", plan.writes[step], &BlockId::value);
    }
    if (step < plan.workspaces.size() && plan.workspaces[step] != Bytes(0)) {
      out.field("workspace", plan.workspaces[step]);
    }
    out.close_row();
  }
  out.close_list();
  out.close();
}

}  // namespace lowtide
