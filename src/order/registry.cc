#include <array>
#include <utility>
#include <vector>

#include "base/find_algorithm.h"
#include "lowtide/order.h"
#include "order/algorithms.h"
#include "order/best.h"
#include "order/bounds.h"
#include "order/greedy.h"
#include "order/update_branches.h"

namespace lowtide {
namespace {

Result<BoundedOrder> program(const Graph& graph, Work&) {
  return BoundedOrder{first_to_last(graph.num_ops())};
}

template <Greed kGreed, Direction kDirection>
Result<BoundedOrder> greedy(const Graph& graph, Work&) {
  return BoundedOrder{greedy_order(to_tasks(graph), kGreed, kDirection)};
}

Result<BoundedOrder> early_updates(const Graph& graph, Work&) {
  return BoundedOrder{early_updates_order(graph, to_tasks(graph), first_to_last(graph.num_ops()))};
}

Result<BoundedOrder> best(const Graph& graph, Work& work) {
  ProvenOrder found = best_order(to_tasks(graph), 1, work);
  return BoundedOrder{std::move(found.order), Bytes(static_cast<std::uint64_t>(found.bound))};
}

constexpr std::array kBounds = {
    PeakBound{{"operands", "The most bytes that one op touches, its workspace included."}, operands},
    PeakBound{{"must_be_alive", "The most bytes made by or before an op and used by or after it, in any order."},
              must_be_alive},
    PeakBound{{"min_cut", "The most, over all ops, of the least bytes that any order holds while the op runs."},
              min_cut},
    PeakBound{
        {"either_first", "Of two ops that make something for a third, what the later one holds, whichever it is."},
        either_first},
};

}  // namespace

std::span<const PeakBound> peak_bounds() {
  return kBounds;
}

std::span<const OrderBound> order_bounds() {
  static const std::vector<OrderBound> known = [] {
    std::vector<OrderBound> all;
    for (const PeakBound& bound : kBounds) all.push_back(bound.known_as);
    return all;
  }();
  return known;
}

std::span<const OrderAlgorithm> order_algorithms() {
  static const std::vector<OrderAlgorithm> all = {
      {"program", "The order in which the program wrote them, as eager execution runs them.", program},
      {"least_change", "Next what leaves the fewest bytes alive.", greedy<Greed::change, Direction::forwards>},
      {"least_needed", "Next what needs the fewest bytes while it runs.", greedy<Greed::needed, Direction::forwards>},
      {"climb_least", "Whatever leaves no more bytes alive, in program order; else what leaves the fewest.",
       greedy<Greed::climb_least, Direction::forwards>},
      {"climb_in_turn", "Whatever leaves no more bytes alive, in program order; else the next of that.",
       greedy<Greed::climb_in_turn, Direction::forwards>},
      {"least_change_backwards", "The same from the last op on, back in time.",
       greedy<Greed::change, Direction::backwards>},
      {"least_needed_backwards", "The same from the last op on, back in time.",
       greedy<Greed::needed, Direction::backwards>},
      {"climb_least_backwards", "The same from the last op on, back in time.",
       greedy<Greed::climb_least, Direction::backwards>},
      {"climb_in_turn_backwards", "The same from the last op on, back in time.",
       greedy<Greed::climb_in_turn, Direction::backwards>},
      {"latest_first", "As far from program order as can be: to see whether a dependency is missing.",
       greedy<Greed::latest, Direction::forwards>},
      {"best", "The best of these, then searches below it, up to a proof or a limit of work.", best},
      {"early_updates", "Program order, with each weight update as soon as it can run.", early_updates},
  };
  return all;
}

Result<OrderAlgorithm> find_order(std::string_view name, std::span<const OrderAlgorithm> others) {
  return find_algorithm("order", name, order_algorithms(), others);
}

}  // namespace lowtide
