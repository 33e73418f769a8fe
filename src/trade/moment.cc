#include "trade/moment.h"

#include <algorithm>
#include <cmath>

namespace lowtide {
namespace {

constexpr std::size_t kMoments = 6;
constexpr double kScale = 16.0;  // costs and prices are whole numbers
constexpr std::size_t kNoArc = std::numeric_limits<std::size_t>::max();

enum When : std::uint8_t { kBefore, kAny, kBehind };

// By op, seen from `moment`.
std::vector<std::uint8_t> when_each_runs(const Graph& graph, const Dependencies& needs, OpId moment) {
  std::vector<std::uint8_t> when(graph.num_ops(), kAny);
  when[moment.index()] = kBehind;
  for (std::size_t op = moment.index(); op-- > 0;) {
    for (const OpId next : needs.successors[op]) {
      if (next == moment || when[next.index()] == kBefore) when[op] = kBefore;
    }
  }
  for (std::size_t op = moment.index() + 1; op < graph.num_ops(); ++op) {
    for (const OpId previous : needs.predecessors[op]) {
      if (when[previous.index()] == kBehind) when[op] = kBehind;
    }
  }
  return when;
}

// Contents of planned buffers that the op reads or changes.
template <typename Visit>
void for_each_needed(const Graph& graph, OpId id, const Visit& visit) {
  const Op op = graph.op(id);
  std::vector<VersionId> needed;
  for (const ValueId read : op.reads) needed.push_back(graph.value(read).version);
  for (const VersionId write : op.writes) {
    const Version version = graph.version(write);
    if (version.index > 0) needed.push_back(graph.buffer(version.buffer).versions[version.index - 1]);
  }
  std::ranges::sort(needed);
  const auto twice = std::ranges::unique(needed);
  needed.erase(twice.begin(), twice.end());
  for (const VersionId version : needed) {
    if (graph.buffer(graph.version(version).buffer).planned()) visit(version);
  }
}

// Never above the amount: what a cut of such arcs costs is a lower bound.
std::int64_t scaled(double amount) {
  return static_cast<std::int64_t>(std::floor(amount * kScale));
}

double count(Nanos time) {
  return static_cast<double>(time.count());
}

}  // namespace

double Mix::at(const Prices& prices) const {
  return prices.a_byte * bytes + prices.link_before * link_before + prices.link_behind * link_behind +
         (1 - prices.link_before) * compute_before + (1 - prices.link_behind) * compute_behind;
}

Moment::Moment(const Graph& graph, const Dependencies& needs, const Repeats& repeats,
               std::span<const std::int64_t> cost, const Leaving* leaving, OpId op)
    : when_(when_each_runs(graph, needs, op)), content_(graph.num_versions(), kNone) {
  source_ = network_.add_node();
  sink_ = network_.add_node();
  add_ops(graph, repeats, cost, leaving, op);
  add_contents(graph, leaving, op);
  if (leaving != nullptr) add_homes(graph, *leaving, op);
}

void Moment::add_ops(const Graph& graph, const Repeats& repeats, std::span<const std::int64_t> cost,
                     const Leaving* leaving, OpId moment) {
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) ops_.push_back(network_.add_node());
  const auto add_arc = [&](Network::Node from, Network::Node to, std::int64_t capacity) {
    network_.add_arc(from, to, capacity);
    return network_.arcs.size() - 1;
  };
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Network::Node node = ops_[id.index()];
    const auto own = static_cast<double>(cost[id.index()]);
    switch (when_[id.index()]) {
      case kBehind:
        add_arc(source_, node, Network::kUnlimited);
        always_.compute_behind += own;
        break;
      case kBefore:
        always_.compute_before += own;
        if (repeats.allowed(id)) {
          computes_.push_back({node, own, kNoArc, add_arc(node, sink_, 0)});
        } else {
          add_arc(node, sink_, Network::kUnlimited);
        }
        break;
      default:
        // Where nothing leaves, compute weighs the same on both sides.
        if (leaving == nullptr) {
          always_.compute_before += own;
        } else {
          computes_.push_back({node, own, add_arc(source_, node, 0), add_arc(node, sink_, 0)});
        }
    }
    for_each_needed(graph, id, [&](VersionId version) {
      network_.add_arc(node, node_of(version), Network::kUnlimited);
      if (id == moment) read_now_.push_back(version);
    });
  }
  // Loads of what is away begin once the op is over.
  if (leaving != nullptr) always_.link_behind += static_cast<double>(cost[moment.index()]);
}

void Moment::add_contents(const Graph& graph, const Leaving* leaving, OpId moment) {
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (!buffer.planned() || !buffer.kept) continue;
    network_.add_arc(source_, node_of(buffer.versions.back()), Network::kUnlimited);
  }
  const Op op = graph.op(moment);
  always_.bytes += static_cast<double>(op.workspace.count());
  for (const VersionId write : op.writes) {
    const Version version = graph.version(write);
    const Buffer buffer = graph.buffer(version.buffer);
    const bool over = std::ranges::find(op.reuses, version.buffer, &Reuse::to) != op.reuses.end();
    if (version.index == 0 && buffer.planned() && !over) always_.bytes += static_cast<double>(buffer.size.count());
  }
  for (VersionId id(0); id.index() < graph.num_versions(); id = id.next()) {
    const Network::Node node = content_[id.index()];
    if (node == kNone) continue;
    const Version version = graph.version(id);
    const Bytes size = graph.buffer(version.buffer).size;
    const bool now = std::ranges::find(read_now_, id) != read_now_.end();
    Content content{node,
                    now ? sink_ : ops_[version.writer->index()],
                    static_cast<double>(size.count()),
                    0,
                    0,
                    false,
                    network_.arcs.size()};
    if (leaving != nullptr && !now && leaving->may[version.buffer.index()]) {
      content.store = count(store_time(leaving->link, size));
      content.load = count(load_time(leaving->link, size));
      content.may_leave = true;
    }
    contents_.push_back(content);
    network_.add_arc(content.node, content.until, 0);
  }
}

void Moment::add_homes(const Graph& graph, const Leaving& leaving, OpId moment) {
  struct Uses {
    bool now = false, before = false, written_before = false, written_behind = false;
    std::vector<OpId> by;
  };
  std::vector<Uses> uses(graph.num_buffers());
  const auto use = [&](OpId id, BufferId buffer, bool needs_content, bool writes) {
    if (graph.buffer(buffer).planned() || !leaving.may[buffer.index()]) return;
    Uses& own = uses[buffer.index()];
    own.now |= id == moment;
    own.before |= needs_content && when_[id.index()] == kBefore;
    own.written_before |= writes && when_[id.index()] == kBefore;
    own.written_behind |= writes && when_[id.index()] == kBehind;
    if (needs_content && (own.by.empty() || own.by.back() != id)) own.by.push_back(id);
  };
  for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
    const Op op = graph.op(id);
    for (const ValueId read : op.reads) use(id, graph.version(graph.value(read).version).buffer, true, false);
    for (const VersionId write : op.writes) {
      const Version version = graph.version(write);
      use(id, version.buffer, version.index > 0, true);
    }
  }
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (buffer.planned() || !leaving.may[id.index()]) continue;
    const Uses& own = uses[id.index()];
    const auto bytes = static_cast<double>(buffer.size.count());
    if (own.now) {
      always_.bytes += bytes;
      continue;
    }
    const double store = count(store_time(leaving.link, buffer.size));
    const double load = count(load_time(leaving.link, buffer.size));
    const bool initial = !graph.version(buffer.versions.front()).writer;
    const bool one_clock = !leaving.link.duplex;
    Home home{bytes, 0, 0, load, kNone, kNoArc};
    if (own.written_before) home.link_before += store;
    if (initial && own.before && one_clock) home.link_before += load;
    if (own.written_behind && one_clock) home.link_behind += store;
    if ((initial || own.written_before) && !own.by.empty()) {
      home.node = network_.add_node();
      for (const OpId op : own.by) network_.add_arc(ops_[op.index()], home.node, Network::kUnlimited);
      home.arc = network_.arcs.size();
      network_.add_arc(home.node, sink_, 0);
    }
    homes_.push_back(home);
  }
}

Network::Node Moment::node_of(VersionId version) {
  Network::Node& node = content_[version.index()];
  if (node == kNone) node = network_.add_node();
  return node;
}

std::optional<LeastPaid> Moment::least_paid(const Prices& prices, Work& work) {
  const double before = 1 - prices.link_before;
  const double behind = 1 - prices.link_behind;
  const auto link = [&](const Content& content) {
    return prices.link_before * content.store + prices.link_behind * content.load;
  };
  const auto leaves = [&](const Content& content) {
    return content.may_leave && link(content) < prices.a_byte * content.bytes;
  };
  const auto away = [&](const Home& home) {
    return prices.link_before * home.link_before + prices.link_behind * home.link_behind;
  };
  for (const Compute& op : computes_) {
    if (op.if_before == kNoArc) {
      network_.arcs[op.if_behind].capacity = scaled(behind * op.cost);
    } else {  // what both sides pay is added below
      network_.arcs[op.if_before].capacity = scaled(std::max(0.0, before - behind) * op.cost);
      network_.arcs[op.if_behind].capacity = scaled(std::max(0.0, behind - before) * op.cost);
    }
  }
  for (const Content& content : contents_) {
    network_.arcs[content.arc].capacity = scaled(leaves(content) ? link(content) : prices.a_byte * content.bytes);
  }
  double amount = always_.at(prices);
  for (const Compute& op : computes_) {
    if (op.if_before != kNoArc) amount += std::min(before, behind) * op.cost;
  }
  for (const Home& home : homes_) {
    const double more = prices.a_byte * home.bytes - away(home);  // that staying costs
    amount += std::min(prices.a_byte * home.bytes, away(home));
    if (home.node == kNone) continue;
    network_.arcs[home.arc].capacity = scaled(std::clamp(more, 0.0, prices.link_behind * home.load));
  }
  const Flow flow = max_flow(network_, source_, sink_, work);
  if (!flow.most) return std::nullopt;
  amount += static_cast<double>(flow.amount) / kScale;

  Mix mix = always_;
  const auto is_behind = [&](Network::Node node) { return node != kNone && flow.near_source[node]; };
  for (const Compute& op : computes_) {
    if (is_behind(op.op)) {
      mix.compute_behind += op.cost;
    } else if (op.if_before != kNoArc) {
      mix.compute_before += op.cost;
    }
  }
  for (const Content& content : contents_) {
    if (!is_behind(content.node) || is_behind(content.until)) continue;
    if (leaves(content)) {
      mix.link_before += content.store;
      mix.link_behind += content.load;
    } else {
      mix.bytes += content.bytes;
    }
  }
  for (const Home& home : homes_) {
    const double load = is_behind(home.node) ? home.load : 0;
    if (away(home) + prices.link_behind * load < prices.a_byte * home.bytes) {
      mix.link_before += home.link_before;
      mix.link_behind += home.link_behind + load;
    } else {
      mix.bytes += home.bytes;
    }
  }
  return LeastPaid{amount, mix};
}

// Where the forward pass ends, and behind it.
std::vector<Position> fullest_moments(const Reruns& r) {
  std::vector<std::int64_t> held;
  Evaluation(r).of(each_once(r), held);
  std::vector<Position> moments;
  for (Position p = 0; p < r.num_ops(); ++p) moments.push_back(p);
  std::ranges::stable_sort(moments, std::ranges::greater{}, [&](Position p) { return held[p]; });
  if (moments.size() > kMoments) moments.resize(kMoments);
  for (Position p = r.turn > 0 ? r.turn - 1 : 0; p < std::min<std::size_t>(r.num_ops(), r.turn + 3); ++p) {
    if (std::ranges::find(moments, p) == moments.end()) moments.push_back(p);
  }
  return moments;
}

}  // namespace lowtide
