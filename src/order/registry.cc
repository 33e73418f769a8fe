#include <array>
#include <string>
#include <utility>

#include "base/words.h"
#include "lowtide/order.h"
#include "order/algorithms.h"
#include "order/best.h"
#include "order/bounds.h"
#include "order/greedy.h"
#include "order/inductor.h"
#include "order/roam.h"
#include "order/update_branches.h"

namespace lowtide {
namespace {

constexpr std::uint64_t kBestOrderSteps = 2'000'000'000;  // about two seconds, where nothing is decided before

Result<BoundedOrder> program(const Graph& graph) {
  return BoundedOrder{first_to_last(graph.num_ops())};
}

template <Greed kGreed, Direction kDirection>
Result<BoundedOrder> greedy(const Graph& graph) {
  return BoundedOrder{greedy_order(to_tasks(graph), kGreed, kDirection)};
}

template <Order (*kRun)(const Tasks&)>
Result<BoundedOrder> of_tasks(const Graph& graph) {
  return BoundedOrder{kRun(to_tasks(graph))};
}

Result<BoundedOrder> early_updates(const Graph& graph) {
  return BoundedOrder{early_updates_order(graph, to_tasks(graph), first_to_last(graph.num_ops()))};
}

Result<BoundedOrder> roam(const Graph& graph) {
  Work work(kBestOrderSteps);
  return BoundedOrder{roam_order(graph, to_tasks(graph.without_reuses()), {}, work).order};
}

Result<BoundedOrder> best(const Graph& graph) {
  Work work(kBestOrderSteps);
  ProvenOrder found = best_order(to_tasks(graph), 1, work);
  return BoundedOrder{std::move(found.order), Bytes(static_cast<std::uint64_t>(found.bound))};
}

constexpr std::array kAlgorithms = {
    OrderAlgorithm{"program", "The order in which the program wrote them, as eager execution runs them.", program},
    OrderAlgorithm{"least_change", "Next what leaves the fewest bytes alive.",
                   greedy<Greed::change, Direction::forwards>},
    OrderAlgorithm{"least_needed", "Next what needs the fewest bytes while it runs.",
                   greedy<Greed::needed, Direction::forwards>},
    OrderAlgorithm{"climb_least", "Whatever leaves no more bytes alive, in program order; else what leaves the fewest.",
                   greedy<Greed::climb_least, Direction::forwards>},
    OrderAlgorithm{"climb_in_turn", "Whatever leaves no more bytes alive, in program order; else the next of that.",
                   greedy<Greed::climb_in_turn, Direction::forwards>},
    OrderAlgorithm{"least_change_backwards", "The same from the last op on, back in time.",
                   greedy<Greed::change, Direction::backwards>},
    OrderAlgorithm{"least_needed_backwards", "The same from the last op on, back in time.",
                   greedy<Greed::needed, Direction::backwards>},
    OrderAlgorithm{"climb_least_backwards", "The same from the last op on, back in time.",
                   greedy<Greed::climb_least, Direction::backwards>},
    OrderAlgorithm{"climb_in_turn_backwards", "The same from the last op on, back in time.",
                   greedy<Greed::climb_in_turn, Direction::backwards>},
    OrderAlgorithm{"latest_first", "As far from program order as can be: to see whether a dependency is missing.",
                   greedy<Greed::latest, Direction::forwards>},
    OrderAlgorithm{"best", "The best of these, then searches below it, up to a proof or a limit of work.", best},
    OrderAlgorithm{"lescea", "LESCEA, to compare with: next what leaves the fewest bytes alive, ties in program order.",
                   greedy<Greed::change_alone, Direction::forwards>},
    OrderAlgorithm{"dfs",
                   "Inductor's, to compare with: each op right after those it needs, the lightest of them first.",
                   of_tasks<dfs_order>},
    OrderAlgorithm{"bfs", "Inductor's, to compare with: of what is ready, that whose needs ran the earliest.",
                   of_tasks<bfs_order>},
    OrderAlgorithm{"lpmf",
                   "Inductor's, to compare with: what leaves the fewest bytes and raises no peak, if there is any.",
                   of_tasks<lpmf_order>},
    OrderAlgorithm{"early_updates", "Program order, with each weight update as soon as it can run.", early_updates},
    OrderAlgorithm{"roam", "ROAM: cut where the step of an op is fixed, updates assigned, each segment by itself.",
                   roam},
    OrderAlgorithm{"model_program", "The integer program of MODeL, to compare with: small graphs only.",
                   model_program_order},
};

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
  return kAlgorithms;
}

Result<OrderAlgorithm> find_order(std::string_view name) {
  std::string known;
  for (const OrderAlgorithm& algorithm : kAlgorithms) {
    if (algorithm.name == name) return algorithm;
    known += words(known.empty() ? "" : ", ", algorithm.name);
  }
  return Error{ErrorCode::unknown_algorithm, words("there is no order algorithm '", name, "'; there are: ", known)};
}

}  // namespace lowtide
