// form.h: is this a plan of that graph at all? What the symbolic execution takes for granted.
#pragma once

#include <cstdint>
#include <string>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// Every id is in range, every list matches its op's, every op runs, and again only if it may, every life is one, and
// blocks are where their buffer's residence says: E201 to E205. A resident buffer has one block without an offset, its
// home, for the whole plan; if that is in a tier, it may have others in memory. Parts are as parts_form.h says, and
// transfers as transfers_form.h does.
Status check_form(const Graph& graph, const Plan& plan);

// "op 3 'aten::mul'", "buffer 7 'h'", "block 9 (buffer 7 'h')", "block 9 (part 0 of 2 of buffer 7 'h')",
// "tier 1 'disk'": how messages name things.
std::string describe_op(const Graph& graph, OpId op);
std::string describe_buffer(const Graph& graph, BufferId buffer);
std::string describe_block(const Graph& graph, const Plan& plan, BlockId block);
std::string describe_tier(const Plan& plan, std::uint32_t tier);

}  // namespace lowtide
