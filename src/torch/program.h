// program.h: a planned step, ready to run.
//
// A program is a list of dispatcher calls over values. A value is a window (dtype, sizes, strides, offset) on a buffer,
// and a buffer is one of three things:
//
//   planned   lies in the arena at a fixed offset while it is alive; its tensors are built once and serve every step
//   bound     somebody else's memory: a parameter, optimizer state, a gradient, the batch; bound by the caller
//   made      made by the step and kept by the caller: a returned loss, a gradient left in .grad, new optimizer state
//             (what is planned can be an output too: then it stays in the arena, see loan.h)
//   slot      a place in a tier that planned buffers leave for, and come back from
//
// An operator may be called several times in a step, to make again what was let go; planned buffers stand for the
// blocks of a plan.
//
// A call may run one part of an operator. What it makes is delivered to a window of a buffer that is there already, or
// begins with it: where the operator's own request is served right in that window there is nothing to do, otherwise the
// result is copied in, or added where parts are summed.
//
// Views are not calls: a view is just another value of the same buffer. So a step costs one dispatcher call per
// operator that computes, with its arguments already on the shelf; only the numbers that changed since the last step
// are set again.
//
// A run may pause behind calls whose results the caller needs before it can say how, or whether, the step goes on:
//
//   run_to_pause       run_to_pause       run
//   |--- calls --- pause --- calls --- pause --- calls ---|
//                    |                   |
//                 a value             a value           outputs
//
// With a tier, buffers move between two calls: see swaps.h. What is bound or made may have its home there. Calls then
// use planned buffers that stand for it.
//
// While it is paused the program does not have the arena to itself. If another one has run there, or a tensor that was
// bound has moved, it cannot go on. It then has to be abandoned, like one that the caller has no more use for.
//
// A program of a region has two halves, for a forward and a backward pass. In between it keeps the bytes of the arena
// in which something lies that the second half needs, and whoever runs meanwhile runs elsewhere:
//
//   claim    run_to_turn                     run_from_turn
//            |--- calls --- turn             turn --- calls ---|
//                            |  outputs,      ^  bound:        |
//                            |  a token       |  tangents      outputs
//
// The token is a tensor without bytes. When it is freed, and the second half has not run, the run is given up.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "allocator.h"
#include "arena.h"
#include "arguments.h"
#include "call_times.h"
#include "caller_tensor.h"
#include "memory_guard.h"
#include "overlaps.h"
#include "random_state.h"
#include "swaps.h"

namespace lowtide::torch_runtime {

enum class BufferKind { planned, bound, made, slot };

// A result that goes to where its value already is.
struct Delivery {
  int result;  // among those of the call
  bool adds;
};

// An operator, or a hook into it, kept memory of the arena that the plan had freed.
struct Escape {
  int call;
  std::int64_t bytes;
};

class Program : public std::enable_shared_from_this<Program> {
 public:
  Program(Device& device, std::int64_t arena_bytes, GuardLevel guard);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // -- building
  // ---------------------------------------------------------------------------------------------------------

  // Planned buffers lie on the program's device, others may lie on the CPU instead.
  int add_buffer(BufferKind kind, std::int64_t bytes, std::int64_t offset, Device& device);

  // `offset` counts elements: from the storage's start, or for a bound buffer from the first element of the bound
  // tensor.
  int add_value(int buffer, at::ScalarType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
                std::int64_t offset);

  // `results` has one entry for each tensor the operator returns: the value it is, or -1 where nobody wants it.
  // `ends` are the buffers whose life ends with this call. `writes` are the buffers among its arguments that it writes.
  // `replaces`: a buffer whose life ends with this call, and the one that is made in its bytes.
  struct CallSpec {
    std::vector<Argument> arguments;
    std::vector<int> results;
    std::vector<Request> requests;
    std::vector<int> ends;
    std::vector<int> writes;
    std::vector<std::pair<int, int>> replaces;
    std::int64_t workspace_offset = 0;
    std::int64_t workspace_bytes = 0;
    bool grad_mode = false;         // runs with gradients enabled: some operators look
    bool leaves_unwritten = false;  // its results are memory as it was found, in whole or in part
    bool copies = false;            // its result is its argument: where it replaces that, there is nothing to do
    int draws_like = -1;            // the earlier call whose random numbers it draws again, if any
    std::vector<Delivery> delivers = {};
    // The buffers that calls deliver to from this one on: the first requests are for those that are made.
    std::vector<int> opens = {};
  };
  int add_call(const c10::OperatorHandle& op, CallSpec spec);

  void add_output(int value);

  // Before any buffer: slots lie in the first `slot_bytes` that are reserved there.
  void use_tier(std::shared_ptr<SlowTier> tier, std::int64_t slot_bytes);
  void add_transfer(SwapTransfer transfer);

  // The planned `buffer` stands for one that is bound or made, and has its home in the tier.
  void add_home(int buffer, int home);

  // The run can pause behind this call, whose first result must be one that is made for the caller.
  void add_pause(int call);

  // The first half ends with the calls and outputs so far. What the second needs lies in the first `kept_bytes`.
  void add_turn(std::int64_t kept_bytes);

  // After the last call: `numbers` are the first step's.
  void finish(std::vector<c10::IValue> numbers);

  // -- running
  // ----------------------------------------------------------------------------------------------------------

  // `transient`: let go of after each step (the batch). Wants the GIL.
  void bind(int buffer, CallerTensor tensor, bool transient);
  void set_numbers(const std::vector<c10::IValue>& numbers);

  // The first bound buffer whose tensor has changed its sizes, strides or dtype since it was bound, or -1. Wants the
  // GIL.
  int stale_binding() const;

  // Somebody else writes what is bound to it, after the program and before the step is over.
  void mark_written(int buffer);

  // Two bound buffers that share bytes which the step writes, as they are bound now. Wants the GIL.
  std::optional<std::pair<int, int>> overlap();

  // Right before each run, or part of one, with the GIL: looks at what is behind the bound objects now. `all`: nothing
  // may be unbound any more. A step up to a pause needs only what its calls use.
  void take_bound(bool all);

  // Runs the step on this thread, or what is left of one that has paused. Throws what the failing operator throws;
  // `failed_call()` then says where, and everything that is not the caller's is let go. `look`, if there is one, is
  // called between two calls, at most every 50 ms: what it throws stops the step before the call that `failed_call()`
  // then names.
  std::vector<at::Tensor> run(const std::function<void()>& look);

  // The same up to the next pause: gives the result of that call.
  at::Tensor run_to_pause(const std::function<void()>& look);

  // Whether it has paused, and all that it had then is where it was. Wants the GIL.
  bool can_go_on() const;

  // Lets go of a run that has paused. What it has written of the caller's stays written.
  void abandon();

  // Of a region: nobody has a run of it under way, or somebody runs a half of it, or the second half is to come.
  enum class Claim { idle, claimed, turned };
  Claim claimed() const;

  // Whether it was idle; then the caller has a run of it, until that is over.
  bool claim();

  // Ends a claim without a run.
  void unclaim();

  // Of what the last run made and gave at its end, the outputs that somebody still has.
  std::vector<int> held_outputs() const;

  // Bytes of the arena below the last run: somebody else's.
  std::int64_t bytes_below() const { return bytes_below_; }

  // The first half, or all if there is no second one: its outputs, and with a second half the run's token behind them.
  std::vector<at::Tensor> run_to_turn(const std::function<void()>& look);

  // The program whose run a token is for, if that has turned and is not over: it is claimed again.
  static std::shared_ptr<Program> claim_turned(const at::Tensor& token);

  // The first bound or handed out buffer that the second half needs, and that somebody has written or moved since the
  // turn, or -1.
  int changed_since_turn() const;

  // The second half, on this thread. `again`: it can run once more afterwards.
  std::vector<at::Tensor> run_from_turn(bool again, const std::function<void()>& look);

  // Bytes of ordinary memory that a run which is to run once more has put aside.
  std::int64_t bytes_put_aside() const { return aside_bytes_; }

  // Bytes that a run under way has beside the arena, which cannot grow now.
  std::int64_t annex_bytes() const { return lease_.annex_bytes(); }

  // From now on, until enough runs have gone as planned: takes the time of each call. Not with a memory guard, which
  // takes time itself.
  void time_calls();

  // Nanoseconds that each call takes; 0 where there was nothing to do. Empty until they are known.
  const std::vector<std::int64_t>& call_nanos() const { return times_.nanos(); }

  // Gives the arena memory back. The program cannot run again.
  void close();

  // How many references to a storage are those of programs.
  static std::size_t uses_of(const c10::StorageImpl* storage);

  int failed_call() const { return failed_call_; }

  // Whether the last run had begun a call that writes bound memory: if it failed before that, everything of the
  // caller's is as it was.
  bool wrote_bound() const { return wrote_bound_; }
  const std::optional<MemoryFault>& memory_fault() const { return memory_fault_; }
  const ReplayStats& stats() const { return stats_; }
  const std::vector<Escape>& escapes() const { return escapes_; }
  const std::vector<int>& missed_calls() const { return missed_calls_; }

 private:
  static constexpr int kNeverWritten = std::numeric_limits<int>::max();
  struct Buffer {
    BufferKind kind = BufferKind::planned;
    Device* device = nullptr;
    std::int64_t bytes = 0;
    std::int64_t offset = 0;
    std::vector<int> values;
    c10::Storage storage;  // what its values look at now
    CallerTensor caller;   // what was bound
    at::Tensor bound;      // what is behind that, while a step runs
    std::vector<std::int64_t> bound_sizes;
    std::vector<std::int64_t> bound_strides;
    at::ScalarType bound_dtype = at::ScalarType::Undefined;
    std::int64_t bound_offset = 0;
    bool transient = false;
    bool elsewhere = false;           // planned, but the last request for it was served by ordinary allocation
    int first_write = kNeverWritten;  // the first call that writes it
    bool written_later = false;
    int last_use = -1;             // the last call that uses it, or the number of calls if it is given after them
    bool at_turn = false;          // the second half needs what was bound or handed out by then
    std::uint32_t version = 0;     // of what was bound or handed out, at the turn
    at::Tensor handed = {};        // what the first half has handed out of it, as far as its version goes
    std::int64_t first_byte = 0;   // of what its values look at: offsets of windows count from there
    std::int64_t reach_begin = 0;  // of all its values, in bytes from there
    std::int64_t reach_end = 0;
  };
  struct Window {
    int buffer;
    at::ScalarType dtype;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int64_t offset;
  };
  struct Call {
    c10::OperatorHandle op;
    CallSpec spec;
    std::vector<c10::IValue> stack;         // the arguments, built
    bool writes_bound = false;              // one of its arguments at least
    bool drawn_again = false;               // a later call draws its random numbers again
    std::optional<RandomState> found = {};  // by this step's run of it, if they are
  };
  struct NumberUse {
    int call;
    int argument;
  };

  // Where the values of a buffer looked at the turn.
  struct AtTurn {
    int buffer;
    c10::Storage storage;
    std::int64_t first_byte;
    bool elsewhere;
  };
  c10::Storage home_storage(const Buffer& buffer) const;
  void take_lease();
  void lie_at(std::byte* base);
  void come_back();
  void put_aside();
  void note_last_uses();
  void let_go_at_turn();
  void let_go_after(int index);
  void let_go_of(int buffer);
  at::Tensor make_token();
  void give_up(std::uint64_t run);
  void give_up_after_failure();
  void unclaim_as(Claim state);
  at::Tensor make_window(const Window& window, const c10::Storage& storage) const;
  std::int64_t offset_in_storage(const Window& window) const;
  void point_at(int buffer, c10::Storage storage, std::int64_t first_byte);
  void point_at_new(int buffer, c10::DataPtr memory);
  static bool has_moved(const Buffer& buffer);
  void rebind_moved();
  void build_stack(Call& call);
  void guard_call(const Call& call);
  void point_home(int buffer);
  void renew(int buffer);
  void run_until(int end, const std::function<void()>& look);
  bool execute(int index, Replay& replay, torch::jit::Stack& stack);
  at::Tensor given(int value) const;
  std::vector<at::Tensor> hand_out(std::size_t first);
  bool lies_in_arena(const Buffer& buffer) const;
  void take_result(int index, const c10::IValue& result, std::size_t* position);
  void deliver(const Call& call, int value, const at::Tensor& tensor, bool adds);
  void open_planned(const Call& call, bool apart);
  void open_made(const Call& call);
  void give_memory(int buffer);
  bool is_held_outside(int buffer) const;
  bool has_held_value(const Buffer& buffer) const;  // somebody has one of its tensors itself, whatever its storage
  bool keep_apart(const Call& call);
  bool is_done_already(const Call& call, bool apart) const;
  void end_life(int index, int buffer);
  void let_go(int end);
  void note_use_counts();
  Reach reach_of(int buffer) const;

  static std::set<const Program*>& all();  // that exist
  static std::mutex& all_mutex();

  class Places;
  friend class Places;

  Arena& arena_;
  Lease lease_;                // while it runs, or a second half is to come
  std::byte* home_ = nullptr;  // the place of the arena that planned values look at
  std::int64_t bytes_below_ = 0;
  std::int64_t arena_bytes_;
  std::optional<MemoryGuard> guard_;
  bool open_ = true;
  bool finished_ = false;
  std::vector<Buffer> buffers_;
  std::vector<Window> windows_;
  std::vector<at::Tensor> values_;
  std::vector<std::size_t> own_uses_;  // how often each value's tensor is referred to by this program itself
  std::vector<Call> calls_;
  std::vector<int> outputs_;
  mutable std::mutex handed_out_mutex_;
  std::vector<std::pair<int, c10::weak_intrusive_ptr<c10::StorageImpl>>> handed_out_;  // outputs of the last run's end
  std::vector<int> pauses_;                                                            // calls, in their order
  std::vector<int> bound_;
  std::vector<c10::IValue> numbers_;
  std::vector<std::vector<NumberUse>> number_uses_;
  std::vector<Request> apart_;  // the requests of a call whose results cannot lie where they were planned
  CallTimes times_;
  Overlaps overlaps_;
  std::optional<Swaps> swaps_;

  struct Turn {
    int call;  // the first of the second half
    std::size_t outputs;
    std::int64_t kept_bytes;
  };
  std::optional<Turn> at_turn_;
  std::vector<std::vector<int>> uses_end_;  // by call of a region: bound and made buffers with their last use there
  mutable std::mutex claim_mutex_;
  Claim claim_ = Claim::idle;
  std::uint64_t run_ = 0;       // counts the runs of a region
  bool keeps_turn_ = false;     // the second half is to run once more
  std::vector<AtTurn> turned_;  // then
  c10::DataPtr aside_;          // and what lay in the arena
  std::int64_t aside_bytes_ = 0;

  int next_call_ = 0;       // where a run that has paused goes on; 0 if there is none
  std::uint64_t turn_ = 0;  // of the arena, which it then had
  int failed_call_ = -1;
  bool wrote_bound_ = false;
  std::optional<MemoryFault> memory_fault_;
  ReplayStats stats_;
  std::vector<Escape> escapes_;
  std::vector<int> missed_calls_;
};

}  // namespace lowtide::torch_runtime
