#include <array>
#include <string>

#include "graph/words.h"
#include "lowtide/order.h"
#include "order/algorithms.h"
#include "order/bounds.h"

namespace lowtide {
namespace {

constexpr std::array kAlgorithms = {
    OrderAlgorithm{"program", "The order in which the program wrote them, as eager execution runs them.",
                   program_order},
    OrderAlgorithm{"model_program", "The integer program of MODeL, to compare with: small graphs only.",
                   model_program_order},
};

constexpr std::array kBounds = {
    PeakBound{{"operands", "The most bytes that one op touches, its workspace included."}, operands},
    PeakBound{{"must_be_alive", "The most bytes made by or before an op and used by or after it, in any order."},
              must_be_alive},
    PeakBound{{"min_cut", "The most, over all ops, of the least bytes that any order holds while the op runs."},
              min_cut},
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
