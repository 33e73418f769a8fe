// status.h: how a function of this library says that it could not do what was asked.
//
// The library never throws, prints, aborts or exits. What can fail returns a Result<T>: either a T or an Error.
//
//   Result<Graph> graph = std::move(builder).build();
//   if (!graph.ok()) return graph.error();   // errors travel up as they are
//   use(*graph);
//
// Every error has a stable code. The hundreds say whose fault it is:
//
//   E1xx  the graph is not a graph        (what was described cannot be)
//   E2xx  the plan is wrong               (one code for each way of being wrong; see verify.h)
//   E3xx  infeasible                      (the budget cannot be kept: bound, step and culprits are attached)
//   E4xx  a limit was reached             (the problem is fine, but larger than what was allowed)
//   E5xx  an option makes no sense        (unknown algorithm, text that is no amount)
//   E6xx  the file is not one             (of another format or version, damaged, not there)
#pragma once

#include <cassert>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lowtide/units.h"

namespace lowtide {

enum class ErrorCode : std::uint16_t {
  // The graph.
  unknown_id = 101,            // an id that no object of the graph has
  invalid_buffer = 102,        // a description that contradicts itself, such as a planned buffer with initial content
  read_of_nothing = 103,       // a value is made from a buffer that nobody has written yet
  stale_read = 104,            // an op reads content that an earlier op has overwritten
  duplicate_write = 105,       // an op writes one buffer twice
  invalid_shape = 106,         // a negative extent
  size_overflow = 107,         // the sizes of a graph do not add up within 63 bits
  edge_against_program = 108,  // an ordering edge that program order itself does not keep
  never_written = 109,         // a buffer without any content
  invalid_reuse = 110,         // an op cannot make this buffer in the bytes of that one
  invalid_axis = 111,          // an op cannot run in these parts

  // The plan.
  malformed_plan = 201,           // ids out of range, or lists that do not match the op's own
  op_missing = 202,               // an op of the graph is run by no step
  op_repeated = 203,              // an op is run again that must not be; in an order, any op
  malformed_life = 204,           // an empty life, or one that ends after the last step
  wrong_residence = 205,          // a resident buffer without home, with two or with an offset; a planned one without
  wrong_block = 206,              // an operand is given a block that stands in for another buffer
  use_outside_life = 207,         // a block is read or written when it is not alive
  read_before_write = 208,        // a block is read before anything was written there
  wrong_version = 209,            // a block holds another version of its buffer than the one read
  alias_dropped = 210,            // an op is given two blocks for one buffer, such as one to read and another to write
  final_content_lost = 211,       // content that must outlive the step is not there at its end
  misaligned = 212,               // an offset that is not a multiple of 64
  address_overflow = 213,         // offset + size does not fit 64 bits
  outside_arena = 214,            // a block or workspace ends above the arena's end
  block_overlap = 215,            // two blocks are alive together and share bytes
  workspace_overlap = 216,        // a workspace shares bytes with a live block
  random_out_of_order = 217,      // random ops do not draw in program order
  collective_out_of_order = 218,  // collectives are not in program order
  edge_violated = 219,            // an explicit ordering edge is not kept
  wrong_arena = 220,              // the next five: a figure that the plan states is not so
  wrong_peak = 221,
  wrong_resident = 222,
  wrong_bound = 223,
  wrong_time = 224,
  other_graph = 225,         // the plan was made for another graph
  block_made_twice = 226,    // content is made in a block that holds some already
  malformed_transfer = 227,  // not between memory and a tier, of two buffers, against time or out of order
  wrong_tier = 228,          // an operand is in a tier, where no op can use it
  in_flight = 229,           // a block is used while a transfer fills it, or changed while one reads it
  wrong_part = 230,          // a block holds another part of its buffer than the one needed, or not all that is needed

  // Budgets, limits and options.
  memory_infeasible = 301,   // more bytes are needed than the memory budget has
  latency_infeasible = 302,  // more time is needed than the latency budget has
  packing_infeasible = 303,  // items do not fit into the capacity together, whatever their offsets
  batch_infeasible = 304,    // a batch needs more bytes than the memory budget has, whatever is dropped
  too_many_objects = 401,    // more objects of a kind than 32-bit ids can name
  file_too_large = 402,      // a file holds more than what is read from a file of its size
  work_limit = 403,          // an algorithm would take more steps than it was allowed
  device_full = 404,         // a simulated device has no room for a request
  stopped = 405,             // somebody asked to stop before there was an answer
  unknown_algorithm = 501,   // no algorithm of that name is registered
  invalid_amount = 502,      // text that is not an amount of bytes or of time
  invalid_share = 503,       // a share that is not in (0, 1]
  invalid_item = 504,        // an alignment of 0, or a fixed offset that is misaligned or taken twice
  invalid_setting = 505,     // a setting of PyTorch's allocator that PyTorch refuses
  unknown_request = 506,     // a request that the simulated allocator has not served, or that is freed already

  // Files.
  wrong_format = 601,          // something else than what was asked for
  wrong_format_version = 602,  // a version of the format that this library does not read
  malformed_file = 603,        // damaged, or not as docs/formats.md has it
  file_error = 604,            // the system cannot read or write it
  unverified_plan = 605,       // a plan is to be written that verify() has not accepted
};

// "E209", as documented and as Python shows it.
std::string code_text(ErrorCode code);

// Somebody who holds memory at the step that a budget fails on.
struct Culprit {
  std::string name;  // of the buffer, or "workspace of <op>"
  Bytes size;
  std::string role;         // of the buffer, as role_name() has it, or "workspace"
  std::string source = {};  // of the op that made it, "train.py:12"; empty if that is not known
};

// Why a budget cannot be kept.
struct Infeasible {
  Bytes bound;                    // resident plus planned bytes: no order and layout needs less
  StepIndex step;                 // where the most bytes are alive
  std::vector<Culprit> culprits;  // who holds them, largest first
};

struct Error {
  ErrorCode code;
  std::string message;         // names the object, the amount asked and the amount available
  Infeasible infeasible = {};  // filled in for E3xx only
  int system_error = 0;        // errno, for E604 only
};

// A T or the reason why there is none. Look at ok() first: taking the half that is not there is a programming error.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that values and errors are returned plainly.
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return held_.index() == 0; }

  const T& operator*() const& { return assert(ok()), *std::get_if<0>(&held_); }
  T& operator*() & { return assert(ok()), *std::get_if<0>(&held_); }
  T&& operator*() && { return assert(ok()), std::move(*std::get_if<0>(&held_)); }
  const T* operator->() const { return &**this; }
  T* operator->() { return &**this; }

  const Error& error() const { return assert(!ok()), *std::get_if<1>(&held_); }

 private:
  std::variant<T, Error> held_;
};

// Success, or the reason why not: what a function returns that gives nothing else.
struct Done {};
using Status = Result<Done>;

}  // namespace lowtide
