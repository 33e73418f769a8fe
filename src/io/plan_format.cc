#include <algorithm>
#include <utility>

#include "base/words.h"
#include "io/formats.h"
#include "io/json_rows.h"

namespace lowtide {
namespace {

class PlanReader {
 public:
  PlanReader(std::size_t version, const std::vector<JsonSection>& sections)
      : steps_(find_section(sections, "steps"), JsonShape::list, step_fields(version)),
        blocks_(find_section(sections, "blocks"), JsonShape::list, block_fields(version)),
        tiers_(find_section(sections, "tiers"), JsonShape::list,
               {{"name", &name_},
                {"store_per_second", &store_rate_, JsonField::required},
                {"load_per_second", &load_rate_, JsonField::required},
                {"latency_ns", &latency_},
                {"duplex", &duplex_},
                {"arena", &tier_arena_},
                {"resident", &tier_resident_}}),
        transfers_(find_section(sections, "transfers"), JsonShape::list,
                   {{"from", &id_, JsonField::required},
                    {"to", &to_, JsonField::required},
                    {"issue", &begin_, JsonField::required},
                    {"wait", &end_, JsonField::required}}),
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
    if (Status status = read_tiers(); !status.ok()) return status.error();
    if (Status status = read_transfers(); !status.ok()) return status.error();
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
  std::vector<JsonField> step_fields(std::size_t version) {
    std::vector<JsonField> fields = {
        {"op", &id_, JsonField::required}, {"reads", &reads_}, {"writes", &writes_}, {"workspace", &offset_}};
    if (version >= 3) {
      fields.insert(fields.end(), {{"axis", &step_.axis}, {"part", &step_.part.index}, {"parts", &step_.part.count}});
    }
    return fields;
  }

  std::vector<JsonField> block_fields(std::size_t version) {
    std::vector<JsonField> fields = {{"buffer", &id_, JsonField::required},
                                     {"begin", &begin_, JsonField::required},
                                     {"end", &end_, JsonField::required},
                                     {"offset", &offset_}};
    if (version >= 2) fields.push_back({"tier", &tier_});
    if (version >= 3) {
      fields.insert(fields.end(), {{"part", &part_.index}, {"parts", &part_.count}, {"period", &period_}});
    }
    return fields;
  }

  Status read_steps() {
    plan_.order.reserve(steps_.size());
    plan_.workspaces.reserve(steps_.size());
    while (true) {
      offset_.reset();
      reads_.clear();
      writes_.clear();
      step_ = {};
      const Result<bool> more = steps_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      if (plan_.parts.empty() && step_ != StepPart()) plan_.parts.resize(plan_.order.size());
      plan_.order.emplace_back(id_);
      if (!plan_.parts.empty() || step_ != StepPart()) plan_.parts.push_back(step_);
      plan_.reads.add(reads_);
      plan_.writes.add(writes_);
      plan_.workspaces.emplace_back(offset_.value_or(0));
    }
  }

  Status read_blocks() {
    plan_.blocks.reserve(blocks_.size());
    while (true) {
      offset_.reset();
      tier_ = 0;
      part_ = {};
      period_ = 0;
      const Result<bool> more = blocks_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      plan_.blocks.push_back({BufferId(id_), StepIndex(begin_), StepIndex(end_),
                              offset_ ? std::optional(Bytes(*offset_)) : std::nullopt, tier_, part_, Bytes(period_)});
    }
  }

  Status read_tiers() {
    while (true) {
      name_ = {};
      latency_ = tier_arena_ = tier_resident_ = 0;
      duplex_ = false;
      const Result<bool> more = tiers_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      const Link link{Bytes(store_rate_), Bytes(load_rate_), Nanos(latency_), duplex_};
      plan_.tiers.push_back({std::string(name_), link, Bytes(tier_arena_), Bytes(tier_resident_)});
    }
  }

  Status read_transfers() {
    plan_.transfers.reserve(transfers_.size());
    while (true) {
      const Result<bool> more = transfers_.next();
      if (!more.ok()) return more.error();
      if (!*more) return Done{};
      plan_.transfers.push_back({BlockId(id_), BlockId(to_), StepIndex(begin_), StepIndex(end_)});
    }
  }

  // What the rows are read into.
  std::uint32_t id_ = 0;
  std::uint32_t begin_ = 0;
  std::uint32_t end_ = 0;
  std::uint32_t tier_ = 0;
  StepPart step_;
  Part part_;
  std::uint64_t period_ = 0;
  std::uint32_t to_ = 0;
  std::optional<std::uint64_t> offset_;
  std::vector<BlockId> reads_;
  std::vector<BlockId> writes_;
  std::uint64_t alignment_ = kAlignment.count();
  std::uint64_t arena_ = 0;
  std::uint64_t peak_ = 0;
  std::uint64_t bound_ = 0;
  std::uint64_t resident_ = 0;
  std::uint64_t time_ = 0;
  std::uint64_t store_rate_ = 0;
  std::uint64_t load_rate_ = 0;
  std::uint64_t latency_ = 0;
  std::uint64_t tier_arena_ = 0;
  std::uint64_t tier_resident_ = 0;
  bool duplex_ = false;
  std::string_view name_;
  std::string_view order_;
  std::string_view layout_;
  std::string_view version_;
  std::string_view recompute_;
  std::string_view graph_;

  JsonRows steps_;
  JsonRows blocks_;
  JsonRows tiers_;
  JsonRows transfers_;
  JsonRows figures_;
  JsonRows provenance_;
  Plan plan_;
};

bool is_of_a_part(const Block& block) {
  return block.part != Part() || block.period != Bytes(0);
}

// Plans that run ops in parts need version 3.
bool has_parts(const Plan& plan) {
  return std::ranges::any_of(plan.parts, [](const StepPart& step) { return step != StepPart(); }) ||
         std::ranges::any_of(plan.blocks, is_of_a_part);
}

// Plans in memory alone are written as version 1; those with tiers need version 2.
bool has_tiers(const Plan& plan) {
  return !plan.tiers.empty() || !plan.transfers.empty() ||
         std::ranges::any_of(plan.blocks, [](const Block& block) { return block.tier != 0; });
}

void write_tiers(const Plan& plan, JsonWriter& out) {
  out.open_list("tiers");
  for (const Tier& tier : plan.tiers) {
    out.open_row();
    if (!tier.name.empty()) out.field("name", tier.name);
    out.field("store_per_second", tier.link.store_per_second);
    out.field("load_per_second", tier.link.load_per_second);
    if (tier.link.latency != Nanos(0)) out.field("latency_ns", tier.link.latency);
    if (tier.link.duplex) out.field("duplex", true);
    out.field("arena", tier.arena);
    out.field("resident", tier.resident);
    out.close_row();
  }
  out.close_list();
}

void write_transfers(const Plan& plan, JsonWriter& out) {
  out.open_list("transfers");
  for (const Transfer& transfer : plan.transfers) {
    out.open_row();
    out.field("from", transfer.from);
    out.field("to", transfer.to);
    out.field("issue", transfer.issue);
    out.field("wait", transfer.wait);
    out.close_row();
  }
  out.close_list();
}

void write_part(const StepPart& step, JsonWriter& out) {
  if (step.axis != 0) out.field("axis", std::uint64_t{step.axis});
  if (step.part.index != 0) out.field("part", std::uint64_t{step.part.index});
  if (step.part.count != 1) out.field("parts", std::uint64_t{step.part.count});
}

}  // namespace

Result<Plan> read_plan(Text text, const std::string& subject) {
  const Result<FormatText> opened = open_format(text, kPlanFormat,
                                                {{"provenance", "figures", "blocks", "steps"},
                                                 {"provenance", "figures", "tiers", "blocks", "transfers", "steps"},
                                                 {"provenance", "figures", "tiers", "blocks", "transfers", "steps"}},
                                                subject);
  if (!opened.ok()) return opened.error();
  Result<Plan> plan = PlanReader(opened->version, opened->sections).run();
  if (!plan.ok()) return about(subject, plan.error());
  return plan;
}

void write_plan(const Plan& plan, JsonWriter& out) {
  const bool tiers = has_tiers(plan);
  out.open(kPlanFormat, has_parts(plan) ? 3 : tiers ? 2 : 1);
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

  if (tiers) write_tiers(plan, out);

  out.open_list("blocks");
  for (const Block& block : plan.blocks) {
    out.open_row();
    out.field("buffer", block.buffer);
    out.field("begin", block.begin);
    out.field("end", block.end);
    if (block.offset) out.field("offset", *block.offset);
    if (block.tier != 0) out.field("tier", std::uint64_t{block.tier});
    if (block.part.index != 0) out.field("part", std::uint64_t{block.part.index});
    if (block.part.count != 1) out.field("parts", std::uint64_t{block.part.count});
    if (block.period != Bytes(0)) out.field("period", block.period);
    out.close_row();
  }
  out.close_list();

  if (tiers) write_transfers(plan, out);

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
    if (step < plan.parts.size()) write_part(plan.parts[step], out);
    out.close_row();
  }
  out.close_list();
  out.close();
}

}  // namespace lowtide
