#include "published/roam/roam.h"

#include <algorithm>
#include <utility>

#include "order/best.h"
#include "published/model/model_program.h"
#include "published/roam/segment.h"
#include "published/roam/side_by_side.h"

namespace lowtide {
namespace {

Order solve(const Segment& segment, const RoamOptions& options, Work& work) {
  if (options.solver == SegmentSolver::program) {
    const Result<ProvenOrder> made = model_order(segment.problem(), options.width, work);
    if (made.ok()) return segment.decode(made->order);
  }
  return segment.decode(best_order(segment.problem(), 1, work).order);
}

}  // namespace

RoamOrder roam_order(const Graph& graph, const Tasks& tasks, const RoamOptions& options, Work& work) {
  RoamOrder made;
  made.updates = update_branches(graph, tasks);
  if (options.cut_at_waists) {
    const UpdateBranches none{std::vector<bool>(tasks.count()), {}, {}};
    made.waists = find_waists(graph, tasks, options.set_updates_aside ? made.updates : none);
  } else {
    made.waists = no_waists(tasks);
  }
  made.turn = find_turn(tasks, made.updates, made.waists);
  made.segment = options.assign_updates
                     ? assign_updates(tasks, made.updates, made.waists, made.turn, options.assignment)
                     : made.waists.segment;

  std::vector<std::pair<std::size_t, Task>> pairs;
  for (Task task = 0; task < tasks.count(); ++task) pairs.emplace_back(made.segment[task], task);
  const Lists<Task> members = Lists<Task>::group(made.waists.num_segments(), pairs);
  std::vector<Order> orders(members.size());
  std::vector<std::uint64_t> spent(members.size());
  const std::uint64_t each = work.left() / std::max<std::size_t>(tasks.count(), 1);
  side_by_side(members.size(), options.threads, [&](std::size_t i) {
    if (members[i].empty()) return;
    const std::uint64_t share = each * members[i].size();
    Work part = work.part(share);
    orders[i] = solve(Segment(tasks, members[i], made.segment), options, part);
    spent[i] = share - part.left();
  });
  for (std::size_t i = 0; i < orders.size(); ++i) {
    made.order.insert(made.order.end(), orders[i].begin(), orders[i].end());
    work.spend(spent[i]);
  }
  return made;
}

}  // namespace lowtide
