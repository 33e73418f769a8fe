// roam.h: the order of ROAM (Shu et al.): cut at the ops that run at a fixed step, assign the weight updates, and order
// each segment by itself, side by side.
//
//   waists.h               where it is cut
//   turn.h                 where the forward pass ends
//   update_assignment.h    in which segment each weight update runs
//   segment.h              what is left to order
//
// Segments are solved to their least peak, by the paper's integer program (model_program.h) or by the search of best.h,
// which is exact too and takes segments of thousands of ops; a segment that is too large for the program goes to the
// search. The whole is as good as the cuts and the assignment: it may be worse than program order.
#pragma once

#include "lowtide/limit.h"
#include "published/model/spans.h"
#include "published/roam/update_assignment.h"

namespace lowtide {

enum class SegmentSolver : std::uint8_t { search, program };

struct RoamOptions {
  bool cut_at_waists = true;      // else all is one segment
  bool set_updates_aside = true;  // when waists are looked for; else an update counts as any other op
  bool assign_updates = true;     // else each runs in the segment in which it can run first
  UpdateAssignmentOptions assignment = {};
  SegmentSolver solver = SegmentSolver::search;
  StepWidth width = StepWidth::single;  // of the program
  std::size_t threads = 0;              // 0: as many as there are. They change how long it takes and nothing else
};

struct RoamOrder {
  Order order;
  UpdateBranches updates;
  Waists waists;
  Turn turn;
  std::vector<std::uint32_t> segment;  // by task, as it was solved
};

// Each segment has a share of the work, by how many tasks it has.
RoamOrder roam_order(const Graph& graph, const Tasks& tasks, const RoamOptions& options, Work& work);

}  // namespace lowtide
