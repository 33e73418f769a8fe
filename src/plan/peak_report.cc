#include "plan/peak_report.h"

namespace lowtide {
namespace {

constexpr std::size_t kCulprits = 8;

}  // namespace

Infeasible report_peak(const Graph& graph, const Lifetimes& lifetimes, const Plan& plan) {
  return {plan.resident + plan.bound, lifetimes.peak_step,
          largest_at(graph, plan.order, lifetimes, lifetimes.peak_step, kCulprits)};
}

}  // namespace lowtide
