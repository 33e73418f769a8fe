#include "lowtide/published.h"

#include <utility>

#include "order/greedy.h"
#include "published/checkmate/checkmate.h"
#include "published/inductor/inductor.h"
#include "published/model/model_program.h"
#include "published/roam/roam.h"
#include "published/sekiyama/address_programs.h"
#include "trade/step_trades.h"
#include "trade/turnless.h"

namespace lowtide {
namespace {

Result<BoundedOrder> lescea(const Graph& graph, Work&) {
  return BoundedOrder{greedy_order(to_tasks(graph), Greed::change_alone, Direction::forwards)};
}

template <Order (*kRun)(const Tasks&)>
Result<BoundedOrder> of_tasks(const Graph& graph, Work&) {
  return BoundedOrder{kRun(to_tasks(graph))};
}

Result<BoundedOrder> roam(const Graph& graph, Work& work) {
  return BoundedOrder{roam_order(graph, to_tasks(graph.without_reuses()), {}, work).order};
}

// The program gives every result bytes of its own, so what it proves says nothing about plans that reuse some.
Result<BoundedOrder> model_program_order(const Graph& graph, Work& work) {
  Result<ProvenOrder> made = model_order(to_tasks(graph.without_reuses()), StepWidth::single, work);
  if (!made.ok()) return made.error();
  return BoundedOrder{std::move(made->order)};
}

template <AddressSolver kSolver>
Result<BoundedLayout> addresses(std::span<const LayoutItem> items, Work& work) {
  return lay_out_by(kSolver, items, work);
}

Result<std::vector<Steps>> checkmate(const Graph& graph, std::span<const OpId> order, Work& work) {
  const Reruns step = to_reruns(graph, order);
  if (is_exact(step)) return steps_found(without_turn(step), false, checkmate_trades, work);
  return steps_found(step, has_several_turns(graph), checkmate_trades, work);
}

}  // namespace

const Algorithms& published() {
  static const Algorithms all = {
      .orders =
          {
              {"lescea", "LESCEA: next what leaves the fewest bytes alive, ties in program order.", lescea},
              {"dfs", "Inductor's: each op right after those it needs, the lightest of them first.",
               of_tasks<dfs_order>},
              {"bfs", "Inductor's: of what is ready, that whose needs ran the earliest.", of_tasks<bfs_order>},
              {"lpmf", "Inductor's: what leaves the fewest bytes and raises no peak, if there is any.",
               of_tasks<lpmf_order>},
              {"roam", "ROAM: cut where the step of an op is fixed, updates assigned, each segment by itself.", roam},
              {"model_program", "The integer program of MODeL: small graphs only.", model_program_order},
          },
      .layouts =
          {
              {"sekiyama_program", "The integer program of Sekiyama et al., as they write it, solved by HiGHS.",
               addresses<sekiyama_program>},
              {"model_program", "The address constraints of MODeL, with bounds as tight as can be, solved by HiGHS.",
               addresses<model_program>},
          },
      .recomputes =
          {
              {"checkmate", "The integer program of Checkmate (Jain et al., 2020), on few stretches of ops.",
               checkmate},
          },
  };
  return all;
}

}  // namespace lowtide
