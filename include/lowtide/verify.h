// verify.h: is this plan right? The one judge of every planner, sharing no code with any of them.
//
// verify() executes the plan symbolically. It walks the steps once and keeps three things: which bytes of each arena
// are taken by which block, which version of its buffer each block holds, and which transfers are under way. At every
// step:
//
//   1. blocks whose life ends here give their bytes back; blocks whose life begins here take theirs: aligned, inside
//      the arena, and not on bytes that another block still has, unless it is one that the op reads for the last time,
//      in the same place, and may reuse;
//   2. the op's workspace takes bytes that no block has;
//   3. each read finds its block alive and holding exactly the version that the op reads in the graph;
//   4. each write finds its block alive; the first content of a buffer is made in a block that holds nothing yet, and a
//      write in place finds the previous version there;
//   5. whatever the op reads and writes of one buffer is in one block, and that is in memory;
//   6. random ops, collectives and explicit edges keep the graph's order.
//
// An op may run again, to make content again that was let go: the same rules hold, but it draws the random numbers of
// its first run, which alone has a place in the order of random ops. It may not if it is a collective, must not be
// recomputed, is named in an edge, writes no planned buffer or makes a resident one. What it changes in resident
// buffers it must be able to leave out (OpFlags::may_skip_updates); it then neither reads nor writes these.
//
// A step may run one part of an op, along one of its axes (axis.h). It is judged by the bytes of that part:
//
//   - it reads a cut operand from a block that holds the right version of that part: of the whole buffer, of which this
//     part may be all that is written, or of this part alone; an operand without a period, and any read of a whole op,
//     is from a block that holds the whole version;
//   - it writes a cut result to a block of the whole buffer, whose other parts stay as they are, or to one of this part
//     alone; to a result without a period it adds, in a block of the whole buffer, which nobody reads before all parts
//     have been added. They are added in rising order, of one axis and count, so that the sum is always rounded alike;
//   - as long as the parts of a block are not all of one version, whoever uses them cuts them by one period and count.
//     One version in all parts is as good as if it had been made in whole;
//   - it makes a result in the bytes of an operand (Reuse) only if both have one period, which is not 0;
//   - transfers copy blocks that hold one version, to blocks of the same part; what must be there at the end is in a
//     block of the whole buffer;
//   - the first run of an op is that of the first step that names it: in whole, or in all parts of that axis and count,
//     each once, in any order; every further step of the op runs it again, or a part of it.
//
// A random op, a collective and an op that an edge names run in whole. Homes of resident buffers are whole. A part
// costs and needs what PartCount says.
//
// With tiers, five things happen before a step, and before the plan ends, in this order:
//
//   1. blocks in tiers give their bytes back, and others take theirs;
//   2. stores that are issued here begin, as listed, and those that are waited for here end;
//   3. blocks in memory come and go, as above;
//   4. loads that are issued here begin, and those that are waited for here end;
//   5. the op runs.
//
// A transfer goes between memory and a tier, from one block of a buffer to another, while both live. What its source
// holds when it begins is what arrives. Until it has been waited for, nothing writes the source, its target holds
// nothing, and neither ops nor other transfers touch the target. A resident buffer's content is in its home at first,
// and at the end; beside a home in a tier it may have blocks in memory. Time is that of the clocks of link.h.
//
// At the end every op has run, every resident or kept buffer holds its last version, a kept one in memory, and the
// figures that the plan states (arena, peak, resident, bound, time, and those of its tiers) are so. What has no bytes
// has no place: its offset is not looked at. Before anything else, a plan that names the graph it was made for, by
// fingerprint, must be given that graph.
//
// No pairs of blocks are compared: a sweep over an ordered set of live intervals makes it O(n log n), a million ops in
// seconds.
#pragma once

#include "lowtide/graph.h"
#include "lowtide/layout.h"
#include "lowtide/plan.h"
#include "lowtide/status.h"

namespace lowtide {

// Success, or the first thing found wrong: an E2xx code and a message that names the op, the block and the bytes
// concerned. Any plan may be given, however malformed.
Status verify(const Graph& graph, const Plan& plan);

// The same for a layout alone: every offset is aligned and as fixed, no two items that live together share a byte, and
// the arena ends where the highest item does. Blocks in messages are items.
Status verify_layout(std::span<const LayoutItem> items, const Layout& layout);

}  // namespace lowtide
