#include <array>
#include <string>

#include "graph/words.h"
#include "lowtide/order.h"
#include "order/algorithms.h"

namespace lowtide {
namespace {

constexpr std::array kAlgorithms = {
    OrderAlgorithm{"program", "The order in which the program wrote them, as eager execution runs them.",
                   program_order},
};

}  // namespace

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
