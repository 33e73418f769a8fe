#include "plan/swapped.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "base/words.h"
#include "lowtide/layout.h"
#include "plan/arrange.h"
#include "swap/gathered.h"

namespace lowtide {
namespace {

constexpr std::uint32_t kTier = 1;
constexpr int kLayouts = 8;  // that are tried, each with less in memory than the one before

std::int64_t signed_count(Bytes bytes) {
  return static_cast<std::int64_t>(bytes.count());
}

// The blocks of a plan and the places that they share: a result that is made in an operand's bytes lies with it.
class Blocks {
 public:
  Blocks(const Graph& graph, const Lifetimes& lives, const std::vector<bool>& away)
      : graph_(graph), in_memory_(graph.num_buffers()), item_of_(graph.num_buffers()) {
    const StepIndex last(lives.live.size());
    for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
      const bool planned = graph.buffer(id).planned();
      const Life life = planned ? lives.lives[id.index()] : Life{StepIndex(0), last};
      made_.push_back({id, life.begin, life.end, std::nullopt, away[id.index()] ? kTier : 0});
      if (planned) in_memory_[id.index()].push_back(BlockId(id.index()));
    }
  }

  // Another block of `buffer`, behind those that it has in memory.
  BlockId add_in_memory(BufferId buffer, std::size_t begin, std::size_t end) {
    made_.push_back({buffer, StepIndex(begin), StepIndex(end), std::nullopt, 0});
    in_memory_[buffer.index()].push_back(BlockId(made_.size() - 1));
    return in_memory_[buffer.index()].back();
  }
  BlockId add_slot(BufferId buffer, std::size_t begin) {
    made_.push_back({buffer, StepIndex(begin), StepIndex(begin + 1), std::nullopt, kTier});
    return BlockId(made_.size() - 1);
  }
  Block& operator[](BlockId id) { return made_[id.index()]; }

  // The one that is in memory at `step`.
  BlockId at(BufferId buffer, StepIndex step) const {
    const std::vector<BlockId>& own = in_memory_[buffer.index()];
    if (own.empty()) return BlockId(buffer.index());
    const auto behind = std::ranges::upper_bound(own, step, {}, [&](BlockId id) { return made_[id.index()].begin; });
    return behind == own.begin() ? own.front() : *(behind - 1);
  }
  BlockId last_in_memory(BufferId buffer) const { return in_memory_[buffer.index()].back(); }

  // Blocks in memory that lie in one place are one item.
  std::vector<LayoutItem> items(const Lifetimes& lives, Bytes alignment) {
    std::map<BufferId, std::vector<BufferId>> sharing;  // by place
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      if (!in_memory_[id.index()].empty()) sharing[lives.places[id.index()]].push_back(id);
    }
    std::vector<LayoutItem> items;
    item_of_.assign(made_.size(), 0);
    for (auto& [place, buffers] : sharing) {
      std::ranges::stable_sort(buffers, {}, [&](BufferId id) { return made_[id.index()].begin; });
      bool goes_on = false;  // the next block takes over the place of the last
      for (const BufferId buffer : buffers) {
        for (const BlockId id : in_memory_[buffer.index()]) {
          const Block& block = made_[id.index()];
          if (goes_on) {
            items.back().end = std::max(items.back().end, block.end);
          } else {
            items.push_back({block.begin, block.end, graph_.buffer(buffer).size, alignment});
          }
          item_of_[id.index()] = items.size() - 1;
          goes_on = false;
        }
        goes_on = true;
      }
    }
    return items;
  }
  std::vector<LayoutItem> slot_items(Bytes alignment) {
    std::vector<LayoutItem> items;
    for (std::size_t i = graph_.num_buffers(); i < made_.size(); ++i) {
      if (made_[i].tier == 0) continue;
      item_of_[i] = items.size();
      items.push_back({made_[i].begin, made_[i].end, graph_.buffer(made_[i].buffer).size, alignment});
    }
    return items;
  }
  void place(std::span<const Bytes> in_memory, std::span<const Bytes> slots) {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const bool home = i < graph_.num_buffers() && !graph_.buffer(made_[i].buffer).planned();
      if (!home) made_[i].offset = made_[i].tier == 0 ? in_memory[item_of_[i]] : slots[item_of_[i]];
    }
  }
  std::vector<Block> take() && { return std::move(made_); }

 private:
  const Graph& graph_;
  std::vector<Block> made_;
  std::vector<std::vector<BlockId>> in_memory_;  // by buffer
  std::vector<std::size_t> item_of_;             // by block
};

// Bytes of items alive at each step, and the workspace of its op.
Bytes peak_of(const Graph& graph, std::span<const OpId> order, std::span<const LayoutItem> items) {
  std::vector<std::int64_t> change(order.size() + 1);
  for (const LayoutItem& item : items) {
    change[item.begin.index()] += signed_count(item.size);
    change[item.end.index()] -= signed_count(item.size);
  }
  std::int64_t live = 0;
  std::int64_t peak = 0;
  for (std::size_t step = 0; step < order.size(); ++step) {
    live += change[step];
    peak = std::max(peak, live + signed_count(graph.op(order[step]).workspace));
  }
  return Bytes(static_cast<std::uint64_t>(peak));
}

// Splits the blocks of those that leave, and says what is copied when.
std::vector<Transfer> move(const Tenants& tenants, std::span<const Absence> absences, const Timetable& table,
                           Blocks& blocks) {
  struct Ends {
    BlockId store_from, load_to, there;
  };
  std::vector<Ends> ends(table.trips.size());
  for (std::size_t i = 0; i < table.trips.size();) {
    const std::uint32_t tenant = absences[table.trips[i].absence].tenant;
    std::size_t next = i;
    while (next < table.trips.size() && absences[table.trips[next].absence].tenant == tenant) ++next;
    const BufferId buffer = tenants.buffer[tenant];
    const std::span<const TenantUse> uses = tenants.uses[tenant];
    const bool resident = tenants.resident[tenant];
    std::optional<BlockId> there;
    StepIndex last_end;
    if (resident) {  // the absence that wraps is the last: it brings the first block
      const Trip& wrap = table.trips[next - 1];
      const std::size_t begin = wrap.loads ? wrap.load.issue : uses.front().step;
      ends[next - 1].load_to = blocks.add_in_memory(buffer, begin, uses.back().step + 1);
      last_end = StepIndex(wrap.stores ? wrap.store.wait : uses.back().step + 1);
      there = BlockId(buffer.index());
    } else {
      last_end = blocks[BlockId(buffer.index())].end;
    }
    for (; i < next; ++i) {
      const Trip& trip = table.trips[i];
      const Absence& absence = absences[trip.absence];
      const BlockId from = blocks.last_in_memory(buffer);
      ends[i].store_from = from;
      if (absence.wraps()) {
        ends[i].there = *there;
        continue;
      }
      blocks[from].end = StepIndex(trip.stores ? trip.store.wait : absence.begin);
      if (!there) there = blocks.add_slot(buffer, trip.store.issue);
      ends[i].there = *there;
      if (!resident) blocks[*there].end = StepIndex(trip.load.wait + 1);
      ends[i].load_to = blocks.add_in_memory(buffer, trip.load.issue, last_end.index());
    }
    blocks[blocks.last_in_memory(buffer)].end = last_end;
  }
  std::vector<Transfer> transfers;
  for (const Issued& issued : table.issued) {
    const Trip& trip = table.trips[issued.trip];
    const Ends& own = ends[issued.trip];
    const Times& times = issued.load ? trip.load : trip.store;
    transfers.push_back({issued.load ? own.there : own.store_from, issued.load ? own.load_to : own.there,
                         StepIndex(times.issue), StepIndex(times.wait)});
  }
  return transfers;
}

}  // namespace

Bytes least_with_swaps(const Graph& graph, const Swap& swap) {
  std::vector<BufferId> away;
  Bytes resident = graph.resident_bytes();
  for (const BufferId id : swap.may_leave) {
    if (graph.buffer(id).size < swap.least) continue;
    away.push_back(id);
    resident -= graph.buffer(id).size;
  }
  return resident + operand_bound(graph, away);
}

Swapping::Swapping(const Graph& graph, Order order, const Swap& swap, Lifetimes lives)
    : graph_(graph),
      order_(std::move(order)),
      swap_(swap),
      lives_(std::move(lives)),
      tenants_(tenants_of(graph, order_, swap.may_leave, swap.least)),
      absences_(absences_of(tenants_)) {
  for (std::size_t step = 0; step < order_.size(); ++step) {
    total_.push_back(signed_count(graph.resident_bytes() + lives_.live[step]));
    costs_.push_back(graph.op(order_[step]).cost);
  }
}

Result<Swapping> Swapping::begin(const Graph& graph, Order order, const Swap& swap) {
  const Bytes none(0);
  if (swap.link.store_per_second == none || swap.link.load_per_second == none) {
    return Error{ErrorCode::invalid_setting, "the rates of a link must be above 0"};
  }
  for (const BufferId id : swap.may_leave) {
    if (id.index() < graph.num_buffers() && !graph.buffer(id).planned()) continue;
    return Error{ErrorCode::invalid_setting, words("buffer ", id, " may leave, but is not a resident buffer")};
  }
  order = gathered(graph, std::move(order), swap);
  Result<Lifetimes> lives = lifetimes(graph, order);
  if (!lives.ok()) return lives.error();
  return Swapping(graph, std::move(order), swap, *std::move(lives));
}

std::optional<Timetable> Swapping::timetable(Bytes memory) const {
  const std::int64_t limit = signed_count(std::min(memory, graph_.resident_bytes() + lives_.peak));
  std::vector<std::int64_t> excess = total_;
  for (std::int64_t& bytes : excess) bytes -= limit;
  const std::optional<std::vector<bool>> chosen =
      choose_absences(tenants_, absences_, swap_.link, std::move(excess), costs_);
  if (!chosen) return std::nullopt;
  std::vector<std::int64_t> need = total_;
  for (std::size_t i = 0; i < absences_.size(); ++i) {
    if (!(*chosen)[i]) continue;
    const Absence& absence = absences_[i];
    const auto leave = [&](std::size_t begin, std::size_t end) {
      for (std::size_t step = begin; step < end; ++step) need[step] -= tenants_.size[absence.tenant];
    };
    leave(absence.begin, absence.wraps() ? need.size() : absence.end);
    if (absence.wraps()) leave(0, absence.end);
  }
  return make_timetable(tenants_, absences_, *chosen, swap_.link, need, limit, costs_);
}

std::vector<bool> Swapping::away(const Timetable& table) const {
  std::vector<bool> found(graph_.num_buffers());
  for (const Trip& trip : table.trips) {
    const std::uint32_t tenant = absences_[trip.absence].tenant;
    if (tenants_.resident[tenant]) found[tenants_.buffer[tenant].index()] = true;
  }
  return found;
}

Result<std::optional<Plan>> Swapping::plan(std::string_view order_name, Bytes memory, const PlanOptions& options,
                                           const Limits& limits) const {
  Bytes limit = memory;
  for (int attempt = 0; attempt < kLayouts; ++attempt) {
    const std::optional<Timetable> table = timetable(limit);
    if (!table) return std::optional<Plan>();
    const std::vector<bool> leaving = away(*table);
    Plan made;
    made.order = order_;
    made.alignment = options.alignment;
    made.tiers = {{swap_.name, swap_.link}};
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      const Buffer buffer = graph_.buffer(id);
      if (buffer.planned()) continue;
      (leaving[id.index()] ? made.tiers.front().resident : made.resident) += buffer.size;
    }
    Blocks blocks(graph_, lives_, leaving);
    made.transfers = move(tenants_, absences_, *table, blocks);
    std::vector<LayoutItem> items = blocks.items(lives_, options.alignment);
    made.peak = peak_of(graph_, order_, items);
    const std::size_t in_blocks = items.size();
    for (StepIndex step(0); step.index() < order_.size(); step = step.next()) {
      const Bytes workspace = graph_.op(order_[step.index()]).workspace;
      if (workspace > Bytes(0)) items.push_back({step, step.next(), workspace, options.alignment});
    }
    const Bytes room = memory - std::min(memory, made.resident);
    const Result<NamedLayout> laid = lay_out_within(items, options, limits, room);
    if (!laid.ok()) return laid.error();
    made.arena = laid->layout.arena;
    if (made.resident + made.arena > memory) {
      // Less room may lie no better: each attempt asks for more than the one before.
      limit = limit - Bytes((made.resident + made.arena - memory).count() * static_cast<std::uint64_t>(1 + attempt));
      continue;
    }
    const Bytes any(std::numeric_limits<std::uint64_t>::max());
    const Result<NamedLayout> slots = lay_out_within(blocks.slot_items(options.alignment), options, limits, any);
    if (!slots.ok()) return slots.error();
    made.tiers.front().arena = slots->layout.arena;
    blocks.place(laid->layout.offsets, slots->layout.offsets);
    auto workspace = laid->layout.offsets.begin() + static_cast<std::ptrdiff_t>(in_blocks);
    for (StepIndex step(0); step.index() < order_.size(); step = step.next()) {
      const Op op = graph_.op(order_[step.index()]);
      made.workspaces.push_back(op.workspace > Bytes(0) ? *workspace++ : Bytes(0));
      for (const ValueId read : op.reads) {
        made.reads.push(blocks.at(graph_.version(graph_.value(read).version).buffer, step));
      }
      made.reads.close();
      for (const VersionId write : op.writes) made.writes.push(blocks.at(graph_.version(write).buffer, step));
      made.writes.close();
    }
    made.blocks = std::move(blocks).take();
    made.time = table->time;
    made.bound = std::min(operand_bound(graph_), made.arena);
    made.provenance = provenance_of(order_name, laid->algorithm);
    return std::optional(std::move(made));
  }
  return std::optional<Plan>();
}

}  // namespace lowtide
