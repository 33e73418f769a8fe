#include "swap/gathered.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "graph/dependencies.h"
#include "lowtide/lifetimes.h"
#include "swap/tenants.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostOps = 32;  // that a next use waits for

std::vector<std::size_t> steps_of(std::span<const OpId> order) {
  std::vector<std::size_t> step(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) step[order[i].index()] = i;
  return step;
}

template <typename Visit>
void each_buffer(const Graph& graph, const Op& op, const Visit& visit) {
  for (const ValueId read : op.reads) visit(graph.version(graph.value(read).version).buffer);
  for (const VersionId write : op.writes) visit(graph.version(write).buffer);
}

bool touches_planned(const Graph& graph, const Op& op) {
  bool touches = op.workspace > Bytes(0);
  each_buffer(graph, op, [&](BufferId id) { touches |= graph.buffer(id).planned(); });
  return touches;
}

// Each op that touches nothing planned, right before the first that waits for it.
Order sunk(const Graph& graph, const Dependencies& needs, const Order& order) {
  const std::vector<std::size_t> step = steps_of(order);
  std::vector<std::vector<OpId>> before(order.size());  // by step: ops that run right before its own, the last first
  std::vector<std::size_t> now(step);                   // by op: with whose step it runs
  std::vector<bool> moved(order.size());
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::span<const OpId> waiting = needs.successors[order[i].index()];
    if (waiting.empty() || touches_planned(graph, graph.op(order[i]))) continue;
    std::size_t first = order.size();
    for (const OpId op : waiting) first = std::min(first, now[op.index()]);
    now[order[i].index()] = first;
    before[first].push_back(order[i]);
    moved[i] = true;
  }
  Order result;
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.insert(result.end(), before[i].rbegin(), before[i].rend());
    if (!moved[i]) result.push_back(order[i]);
  }
  return result;
}

class Pulling {
 public:
  Pulling(const Graph& graph, const Dependencies& needs, const Order& order, const Lifetimes& lives)
      : graph_(graph), needs_(needs), order_(order), step_(steps_of(order)), limit_(lives.peak.count()) {
    std::vector<std::int64_t> change(order.size() + 1);
    for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
      const Life life = lives.lives[id.index()];
      if (!graph.buffer(id).planned() || life.begin.index() + 1 >= life.end.index()) continue;
      change[life.begin.index()] += size(id);
      change[life.end.index() - 1] -= size(id);
    }
    std::int64_t held = 0;
    for (std::size_t i = 0; i < order.size(); ++i) held_behind_.push_back(held += change[i]);
    moved_.resize(order.size());
    behind_.resize(order.size());
  }

  Order run(const Tenants& tenants) {
    for (std::uint32_t tenant = 0; tenant < tenants.count(); ++tenant) {
      if (!tenants.resident[tenant]) continue;
      const std::span<const TenantUse> uses = tenants.uses[tenant];
      for (std::size_t i = 0; i + 1 < uses.size(); ++i) {
        if (uses[i].step + 1 < uses[i + 1].step) pull(uses[i].step, uses[i + 1].step);
      }
    }
    Order result;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (!moved_[i]) result.push_back(order_[i]);
      for (const std::size_t step : behind_[i]) result.push_back(order_[step]);
    }
    return result;
  }

 private:
  std::int64_t size(BufferId id) const { return static_cast<std::int64_t>(graph_.buffer(id).size.count()); }

  // The ops that the one at `to` waits for and that run behind `from`, with itself; none if they are many, or one of
  // them has moved.
  std::optional<std::vector<std::size_t>> waited_for(std::size_t from, std::size_t to) const {
    std::vector<std::size_t> steps = {to};
    for (std::size_t next = 0; next < steps.size(); ++next) {
      if (moved_[steps[next]]) return std::nullopt;
      for (const OpId op : needs_.predecessors[order_[steps[next]].index()]) {
        const std::size_t step = step_[op.index()];
        if (step <= from || std::ranges::find(steps, step) != steps.end()) continue;
        if (steps.size() == kMostOps) return std::nullopt;
        steps.push_back(step);
      }
    }
    std::ranges::sort(steps);
    return steps;
  }

  // The last of `steps` that uses a buffer that they make; none if others use it too, or it is kept.
  std::optional<std::size_t> last_use(BufferId id, const std::vector<std::size_t>& steps) const {
    const Buffer buffer = graph_.buffer(id);
    if (buffer.kept) return std::nullopt;
    std::size_t last = 0;
    const auto use = [&](OpId op) {
      const std::size_t step = step_[op.index()];
      last = std::max(last, step);
      return std::ranges::binary_search(steps, step);
    };
    for (const VersionId id_of : buffer.versions) {
      const Version version = graph_.version(id_of);
      if (!use(*version.writer) || !std::ranges::all_of(version.readers, use)) return std::nullopt;
    }
    return last;
  }

  // The most that these ops hold of what they make; none if some of that outlives them.
  std::optional<std::int64_t> most_held(const std::vector<std::size_t>& steps) const {
    std::int64_t held = 0;
    std::int64_t most = 0;
    std::vector<std::pair<std::size_t, BufferId>> dying;  // with the step of the last use
    for (const std::size_t step : steps) {
      const Op op = graph_.op(order_[step]);
      const auto taken_over = [&](BufferId made) {
        return std::ranges::any_of(op.reuses, [&](const Reuse& reuse) {
          return reuse.to == made && std::ranges::find(dying, std::pair(step, reuse.from)) != dying.end();
        });
      };
      std::int64_t freed_before = 0;
      for (const VersionId write : op.writes) {
        const Version version = graph_.version(write);
        if (version.index > 0 || !graph_.buffer(version.buffer).planned()) continue;
        const std::optional<std::size_t> last = last_use(version.buffer, steps);
        if (!last) return std::nullopt;
        if (taken_over(version.buffer)) freed_before += size(version.buffer);
        held += size(version.buffer);
        dying.push_back({*last, version.buffer});
      }
      most = std::max(most, held - freed_before + static_cast<std::int64_t>(op.workspace.count()));
      for (const auto& [last, buffer] : dying) held -= last == step ? size(buffer) : 0;
    }
    return most;
  }

  void pull(std::size_t from, std::size_t to) {
    if (moved_[from]) return;
    const std::optional<std::vector<std::size_t>> steps = waited_for(from, to);
    if (!steps) return;
    const std::optional<std::int64_t> held = most_held(*steps);
    if (!held || held_behind_[from] + *held > static_cast<std::int64_t>(limit_)) return;
    for (const std::size_t step : *steps) moved_[step] = true;
    behind_[from].insert(behind_[from].end(), steps->begin(), steps->end());
  }

  const Graph& graph_;
  const Dependencies& needs_;
  const Order& order_;
  std::vector<std::size_t> step_;                 // by op
  std::uint64_t limit_;                           // bytes
  std::vector<std::int64_t> held_behind_;         // by step: planned bytes alive between it and the next
  std::vector<bool> moved_;                       // by step
  std::vector<std::vector<std::size_t>> behind_;  // by step: those that follow it at once
};

}  // namespace

Order gathered(const Graph& graph, Order order, const Swap& swap) {
  const Result<Lifetimes> before = lifetimes(graph, order);
  if (!before.ok()) return order;
  const Dependencies needs = dependencies(graph);
  const Order late = sunk(graph, needs, order);
  const Result<Lifetimes> lives = lifetimes(graph, late);
  if (!lives.ok()) return order;
  const Tenants tenants = tenants_of(graph, late, swap.may_leave, swap.least);
  Order result = Pulling(graph, needs, late, *lives).run(tenants);
  const Result<Lifetimes> after = lifetimes(graph, result);
  return after.ok() && after->peak <= before->peak ? result : order;
}

}  // namespace lowtide
