#include "order/min_cut.h"

#include <algorithm>
#include <map>

#include "order/max_flow.h"

namespace lowtide {
namespace {

using Node = Network::Node;

constexpr Node kSource = 0;
constexpr Node kSink = 1;
constexpr Node kUnrelated = 2;  // it and all above: neither has to run before the task nor after it

void mark(const Lists<OpId>& neighbours, Task start, Node as, std::vector<Node>& node_of) {
  std::vector<Task> waiting = {start};
  while (!waiting.empty()) {
    const Task task = waiting.back();
    waiting.pop_back();
    for (const OpId next : neighbours[task]) {
      const auto found = static_cast<Task>(next.index());
      if (node_of[found] == as) continue;
      node_of[found] = as;
      waiting.push_back(found);
    }
  }
}

// Which node each task is, and the network between those.
struct Cut {
  std::int64_t always = 0;  // held whatever has run
  std::vector<Node> node_of;
  Network network;
};

Cut to_cut(const Tasks& tasks, Task task) {
  Cut cut;
  cut.node_of.assign(tasks.count(), kUnrelated);
  mark(tasks.needs.predecessors, task, kSource, cut.node_of);
  mark(tasks.needs.successors, task, kSink, cut.node_of);
  cut.node_of[task] = kSink;

  Network& network = cut.network;
  network.nodes = kUnrelated;
  for (Node& node : cut.node_of) {
    if (node == kUnrelated) node = network.add_node();
  }
  for (Task from = 0; from < tasks.count(); ++from) {
    if (cut.node_of[from] < kUnrelated) continue;
    for (const OpId needed : tasks.needs.predecessors[from]) {
      const Node to = cut.node_of[needed.index()];
      if (to >= kUnrelated) network.add_arc(cut.node_of[from], to, Network::kUnlimited);
    }
  }

  cut.always = tasks.workspace[task];
  std::vector<bool> touched(tasks.size.size());
  for (const Held buffer : tasks.touched[task]) {
    touched[buffer] = true;
    cut.always += tasks.size[buffer];
  }
  const auto may_end = [&](Held buffer) {
    return !tasks.kept[buffer] && std::ranges::none_of(tasks.users[buffer], [&](Task user) {
      return user != task && cut.node_of[user] == kSink;
    });
  };
  std::map<Held, std::vector<Held>> made_over;  // by result: operands in whose bytes it may be made
  for (const TaskReuse& reuse : tasks.reuses[task]) {
    if (may_end(reuse.from)) made_over[reuse.to].push_back(reuse.from);
  }
  for (const auto& [result, operands] : made_over) {
    cut.always -= tasks.size[result];
    // The operand is held beside the result only if others still need it. Of several, one is enough, whichever that is.
    if (operands.size() == 1) touched[operands.front()] = false;
  }
  std::vector<Node> unrelated;  // users of a buffer
  for (Held buffer = 0; buffer < tasks.size.size(); ++buffer) {
    const std::span<const Task> users = tasks.users[buffer];
    const Node maker = cut.node_of[users.front()];
    if (touched[buffer] || maker == kSink) continue;
    bool used_after = tasks.kept[buffer];
    unrelated.clear();
    for (const Task user : users.subspan(1)) {
      const Node node = cut.node_of[user];
      if (user == task) continue;
      if (node == kSink) used_after = true;
      if (node >= kUnrelated) unrelated.push_back(node);
    }
    const std::int64_t size = tasks.size[buffer];
    if (used_after && maker == kSource) {
      cut.always += size;
    } else if (used_after) {
      network.add_arc(maker, kSink, size);
    } else if (unrelated.size() == 1) {
      network.add_arc(maker, unrelated.front(), size);
    } else if (!unrelated.empty()) {
      const Node held = network.add_node();
      network.add_arc(maker, held, size);
      for (const Node user : unrelated) network.add_arc(held, user, Network::kUnlimited);
    }
  }
  return cut;
}

// What runs before `task`, the task, and the rest, each as in `order`.
Order around(std::span<const OpId> order, Task task, const std::vector<bool>& before) {
  Order result;
  result.reserve(order.size());
  for (const OpId op : order) {
    if (before[op.index()]) result.push_back(op);
  }
  result.emplace_back(task);
  for (const OpId op : order) {
    if (!before[op.index()] && op.index() != task) result.push_back(op);
  }
  return result;
}

}  // namespace

LeastHeld min_cut_at(const Tasks& tasks, Task task, Work& work) {
  // To make the network takes some nanoseconds for each need and each use.
  if (!work.spend(8 * (tasks.needs.predecessors.num_items() + tasks.users.num_items() + tasks.count()))) return {};
  const Cut cut = to_cut(tasks, task);
  const Flow flow = max_flow(cut.network, kSource, kSink, work);
  LeastHeld least{.bytes = cut.always + flow.amount, .exact = flow.most};
  if (!flow.most) return least;
  for (const Node node : cut.node_of) least.before.push_back(flow.near_source[node]);
  return least;
}

std::int64_t min_cut_from(const Tasks& tasks, std::span<const OpId> order, Work& work) {
  std::int64_t proven = 0;
  std::vector<std::int64_t> at_most = held_while(tasks, order);  // by task: the least that a known order holds
  while (!at_most.empty()) {
    const auto highest = std::max_element(at_most.begin(), at_most.end());
    if (*highest <= proven) break;
    const auto task = static_cast<Task>(highest - at_most.begin());
    const LeastHeld least = min_cut_at(tasks, task, work);
    proven = std::max(proven, least.bytes);
    *highest = std::min(*highest, least.bytes);  // there is no more to say about this task
    if (!least.exact || !work.spend(4 * (tasks.users.num_items() + tasks.count()))) break;
    const std::vector<std::int64_t> held = held_while(tasks, around(order, task, least.before));
    for (std::size_t i = 0; i < held.size(); ++i) at_most[i] = std::min(at_most[i], held[i]);
  }
  return proven;
}

}  // namespace lowtide
