#include "published/magis/magis.h"

#include <limits>
#include <utility>

#include "lowtide/limit.h"
#include "order/algorithms.h"
#include "plan/given_parts.h"

namespace lowtide {

Result<MagisAnswer> magis(const Graph& graph, const MagisOptions& options) {
  StateSearchOptions search{
      .exact = false, .rules = options.rules, .reorders = options.reorders, .threads = options.threads};
  if (options.memory) {
    const Bytes resident = graph.resident_bytes();
    search.memory = *options.memory > resident ? static_cast<std::int64_t>((*options.memory - resident).count()) : 0;
  }
  if (options.latency) search.time = static_cast<std::int64_t>(options.latency->count());
  Work work(std::numeric_limits<std::uint64_t>::max(), Work::Clock::now() + options.time_limit);
  StateSearchResult found = search_best_first(graph, first_to_last(graph.num_ops()), search, work);
  // In the order that was found, with the layout that takes little time.
  Result<Plan> made = plan_given_parts(graph, found.splitting, {.order = "program", .recompute = "none"});
  if (!made.ok()) return made.error();
  made->provenance.recompute = "magis";
  return MagisAnswer{*std::move(made), found.figures, found.counts};
}

}  // namespace lowtide
