// form.h: is this a plan of that graph at all? What the symbolic execution takes for granted.
#pragma once

#include <string>

#include "lowtide/graph.h"
#include "lowtide/plan.h"

namespace lowtide {

// Every id is in range, every list matches its op's, every op runs, and again only if it may, every life is one, and
// blocks are where their buffer's residence says: E201 to E205.
Status check_form(const Graph& graph, const Plan& plan);

// "op 3 'aten::mul'", "buffer 7 'h'", "block 9 (buffer 7 'h')": how messages name things.
std::string describe_op(const Graph& graph, OpId op);
std::string describe_buffer(const Graph& graph, BufferId buffer);
std::string describe_block(const Graph& graph, const Plan& plan, BlockId block);

}  // namespace lowtide
