#include "trade/trade_bound.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/dependencies.h"
#include "lowtide/lifetimes.h"
#include "order/max_flow.h"
#include "rewrite/repeats.h"

namespace lowtide {
namespace {

constexpr std::size_t kMoments = 6;
constexpr int kPrices = 12;
constexpr double kShares[] = {0.01, 0.02, 0.05, 0.10, 0.15,
                              0.20, 0.25, 0.33, 0.50};  // costs for which prices are refined
constexpr int kRefinements = 6;
constexpr double kLowest = 0.01;
constexpr double kHighest = 20.0;
constexpr double kScale = 16.0;  // costs and prices are whole numbers

enum class When : std::uint8_t { before, any, after };

// By op, seen from `moment`.
std::vector<When> when_each_runs(const Graph& graph, const Dependencies& needs, OpId moment) {
  std::vector<When> when(graph.num_ops(), When::any);
  when[moment.index()] = When::after;
  for (std::size_t op = moment.index(); op-- > 0;) {
    for (const OpId next : needs.successors[op]) {
      if (next == moment || when[next.index()] == When::before) when[op] = When::before;
    }
  }
  for (std::size_t op = moment.index() + 1; op < graph.num_ops(); ++op) {
    for (const OpId previous : needs.predecessors[op]) {
      if (when[previous.index()] == When::after) when[op] = When::after;
    }
  }
  return when;
}

class Moment {
 public:
  Moment(const Graph& graph, const Dependencies& needs, const Repeats& repeats, const Reruns& reruns, OpId moment)
      : graph_(graph) {
    const std::vector<When> when = when_each_runs(graph, needs, moment);
    std::vector<std::int64_t> cost(graph.num_ops());
    for (Position p = 0; p < reruns.num_ops(); ++p) cost[reruns.order[p].index()] = reruns.cost[p];
    source_ = network_.add_node();
    sink_ = network_.add_node();
    content_.assign(graph.num_versions(), kNone);
    for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) ops_.push_back(network_.add_node());
    for (OpId id(0); id.index() < graph.num_ops(); id = id.next()) {
      const Network::Node node = ops_[id.index()];
      if (when[id.index()] == When::after) network_.add_arc(source_, node, Network::kUnlimited);
      if (when[id.index()] == When::before) {
        const auto price = static_cast<std::int64_t>(kScale) * cost[id.index()];
        network_.add_arc(node, sink_, repeats.allowed(id) ? price : Network::kUnlimited);
      }
      for_each_needed(id, [&](VersionId version) {
        network_.add_arc(node, node_of(version), Network::kUnlimited);
        if (id == moment) read_now_.push_back(version);
      });
    }
    for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
      const Buffer buffer = graph.buffer(id);
      if (!buffer.planned() || !buffer.kept) continue;
      network_.add_arc(source_, node_of(buffer.versions.back()), Network::kUnlimited);
    }
    const Op op = graph.op(moment);
    made_ = static_cast<std::int64_t>(op.workspace.count());
    for (const VersionId write : op.writes) {
      const Version version = graph.version(write);
      const Buffer buffer = graph.buffer(version.buffer);
      const bool over = std::ranges::find(op.reuses, version.buffer, &Reuse::to) != op.reuses.end();
      if (version.index == 0 && buffer.planned() && !over) made_ += static_cast<std::int64_t>(buffer.size.count());
    }
    first_price_ = network_.arcs.size();
    for (VersionId id(0); id.index() < graph.num_versions(); id = id.next()) {
      if (content_[id.index()] == kNone) continue;
      const bool now = std::ranges::find(read_now_, id) != read_now_.end();
      network_.add_arc(content_[id.index()], now ? sink_ : ops_[graph.version(id).writer->index()], 0);
    }
  }

  std::int64_t made() const { return made_; }

  // What any plan pays at least; nothing if the work is not enough.
  std::optional<double> least_paid(double a_byte, Work& work) {
    std::size_t arc = first_price_;
    for (VersionId id(0); id.index() < graph_.num_versions(); id = id.next()) {
      if (content_[id.index()] == kNone) continue;
      const auto bytes = static_cast<double>(graph_.buffer(graph_.version(id).buffer).size.count());
      network_.arcs[arc++].capacity = static_cast<std::int64_t>(std::floor(a_byte * kScale * bytes));
    }
    const Flow flow = max_flow(network_, source_, sink_, work);
    if (!flow.most) return std::nullopt;
    return static_cast<double>(flow.amount) / kScale;
  }

 private:
  static constexpr Network::Node kNone = std::numeric_limits<Network::Node>::max();

  Network::Node node_of(VersionId version) {
    Network::Node& node = content_[version.index()];
    if (node == kNone) node = network_.add_node();
    return node;
  }

  // Contents of planned buffers that the op reads or changes.
  template <typename Visit>
  void for_each_needed(OpId id, const Visit& visit) {
    const Op op = graph_.op(id);
    std::vector<VersionId> needed;
    for (const ValueId read : op.reads) needed.push_back(graph_.value(read).version);
    for (const VersionId write : op.writes) {
      const Version version = graph_.version(write);
      if (version.index > 0) needed.push_back(graph_.buffer(version.buffer).versions[version.index - 1]);
    }
    std::ranges::sort(needed);
    const auto twice = std::ranges::unique(needed);
    needed.erase(twice.begin(), twice.end());
    for (const VersionId version : needed) {
      if (graph_.buffer(graph_.version(version).buffer).planned()) visit(version);
    }
  }

  const Graph& graph_;
  Network network_;
  Network::Node source_ = 0;
  Network::Node sink_ = 0;
  std::vector<Network::Node> ops_;
  std::vector<Network::Node> content_;  // by version
  std::vector<VersionId> read_now_;
  std::int64_t made_ = 0;
  std::size_t first_price_ = 0;  // the arcs that have a price
};

// The late ops that hold the most by themselves and in the given order: where the forward pass ends, and behind it.
std::vector<Position> moments_of(const Reruns& r) {
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

}  // namespace

TradeBound::TradeBound(const Graph& graph, const Reruns& reruns, Work& work)
    : operands_(static_cast<std::int64_t>(operand_bound(graph).count())) {
  if (reruns.peak == 0 || reruns.total_cost == 0) return;
  const Dependencies needs = dependencies(graph);
  const Repeats repeats(graph);
  std::vector<Moment> moments;
  for (const Position at : moments_of(reruns)) moments.emplace_back(graph, needs, repeats, reruns, reruns.order[at]);
  const auto add = [&](std::size_t moment, double a_byte) {
    const std::optional<double> paid = moments[moment].least_paid(a_byte, work);
    if (!paid) return;
    lines_.push_back({*paid / a_byte + static_cast<double>(moments[moment].made()), 1.0 / a_byte, moment});
  };
  // A byte of the peak costs about what the step does, divided by its bytes: prices around that.
  const double middle = static_cast<double>(reruns.total_cost) / static_cast<double>(reruns.peak);
  for (std::size_t moment = 0; moment < moments.size(); ++moment) {
    for (int i = 0; i < kPrices; ++i) {
      add(moment, middle * kLowest * std::pow(kHighest / kLowest, static_cast<double>(i) / (kPrices - 1)));
    }
  }
  for (const double share : kShares) {
    const double cost = share * static_cast<double>(reruns.total_cost);
    double factor = std::pow(kHighest / kLowest, 0.5 / (kPrices - 1));
    for (int i = 0; i < kRefinements; ++i, factor = std::sqrt(factor)) {
      const auto best = std::ranges::max_element(lines_, {}, [&](const Line& line) { return line.at(cost); });
      if (best == lines_.end()) return;
      const Line from = *best;
      for (const double change : {factor, 1.0 / factor}) add(from.moment, change / from.slope);
    }
  }
}

std::int64_t TradeBound::least_peak(std::int64_t cost) const {
  double least = static_cast<double>(operands_);
  for (const Line& line : lines_) least = std::max(least, line.at(static_cast<double>(cost)));
  return static_cast<std::int64_t>(std::floor(least * (1 - 1e-12)));
}

}  // namespace lowtide
