#include "published/model/model_joint.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/words.h"
#include "graph/reachability.h"
#include "lowtide/lifetimes.h"
#include "lowtide/verify.h"
#include "order/algorithms.h"
#include "plan/items.h"
#include "published/model/model_lifetimes.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostVariables = 5'000;
// The solver takes 10^-6 of a switch for nothing: with more units, that could be a whole one.
constexpr double kMostJointUnits = 1 << 19;

// A buffer, or the workspace of an op.
struct Piece {
  std::span<const Task> users;
  std::optional<Held> held;  // none: a workspace
  bool kept;
  StepRange useful;
  Bytes size;
};

class JointPieces {
 public:
  JointPieces(const Graph& graph, const Tasks& tasks, const StepSpans& spans) : precedes_(tasks.needs) {
    of_buffer_.resize(graph.num_buffers());
    for (Held held = 0; held < tasks.size.size(); ++held) {
      for (const BufferId buffer : tasks.parts[held]) {
        of_buffer_[buffer.index()] = pieces_.size();
        pieces_.push_back({tasks.users[held], held, tasks.kept[held], spans.useful[held], graph.buffer(buffer).size});
      }
    }
    all_tasks_.resize(tasks.count());
    std::iota(all_tasks_.begin(), all_tasks_.end(), Task{0});
    of_workspace_.resize(tasks.count());
    for (const Task task : all_tasks_) {
      if (tasks.workspace[task] == 0) continue;
      of_workspace_[task] = pieces_.size();
      pieces_.push_back({std::span(all_tasks_).subspan(task, 1), std::nullopt, false, spans.run[task],
                         graph.op(OpId(task)).workspace});
    }
  }

  std::span<const Piece> all() const { return pieces_; }
  std::size_t of_buffer(BufferId buffer) const { return of_buffer_[buffer.index()]; }  // one with bytes
  std::size_t of_workspace(OpId op) const { return of_workspace_[op.index()]; }

  // The largest unit that all offsets can be multiples of.
  Bytes unit() const {
    std::uint64_t common = 0;
    for (const Piece& piece : pieces_) common = std::gcd(common, align_up(piece.size).count());
    return common == 0 ? kAlignment : Bytes(common);
  }

  bool always_meet(const Piece& one, const Piece& other) const {
    if (one.kept && other.kept) return true;
    return std::ranges::find_first_of(one.users, other.users) != one.users.end();
  }
  bool may_meet(const Piece& one, const Piece& other) const {
    return one.useful.begin < other.useful.end && other.useful.begin < one.useful.end && !is_over(one, other) &&
           !is_over(other, one);
  }

 private:
  // Before the other is made.
  bool is_over(const Piece& one, const Piece& other) const {
    return !one.kept && std::ranges::all_of(one.users, [&](Task user) {
      return precedes_.precedes(OpId(user), OpId(other.users.front()));
    });
  }

  Reachability precedes_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> of_buffer_;
  std::vector<std::size_t> of_workspace_;
  std::vector<Task> all_tasks_;
};

struct Pair {
  std::size_t one;
  std::size_t other;
};

std::vector<Pair> pairs_of(const JointPieces& pieces) {
  std::vector<Pair> pairs;
  for (std::size_t one = 0; one < pieces.all().size(); ++one) {
    for (std::size_t other = 0; other < one; ++other) {
      if (pieces.may_meet(pieces.all()[one], pieces.all()[other])) pairs.push_back({one, other});
    }
  }
  return pairs;
}

class JointProgram {
 public:
  JointProgram(const JointPieces& pieces, const Tasks& tasks, const StepSpans& spans, StepWidth width, Bytes least,
               Bytes capacity)
      : pieces_(pieces),
        unit_(pieces.unit()),
        arena_(program_.add_variable(Kind::continuous, units(least), units(capacity), 1)),
        lifetimes_(tasks, spans, width, program_) {
    for (const Piece& piece : pieces.all()) {
      const double highest = std::floor(units(capacity - piece.size));
      offsets_.push_back(program_.add_variable(Kind::whole, 0, highest));
      program_.add_row({{arena_, 1}, {offsets_.back(), -1}}, units(piece.size), kUnlimited);
      slacks_.push_back(highest + units(align_up(piece.size)));
    }
  }

  void keep_apart(const Pair& pair) {
    const VariableId one_below = program_.add_switch();
    const VariableId other_below = program_.add_switch();
    switches_.push_back({pair, one_below, other_below});
    const Piece& one = pieces_.all()[pair.one];
    const Piece& other = pieces_.all()[pair.other];
    const bool always = pieces_.always_meet(one, other);
    program_.add_row({{one_below, 1}, {other_below, 1}}, always ? 1 : 0, 1);
    const std::size_t end = std::min(one.useful.end, other.useful.end);
    for (std::size_t step = std::max(one.useful.begin, other.useful.begin); step < end && !always; ++step) {
      std::vector<IntegerProgram::Term> terms = {{one_below, 1}, {other_below, 1}};
      add_live(terms, one, step);
      add_live(terms, other, step);
      program_.add_row(terms, -1, kUnlimited);
    }
    put_below_if(one_below, pair.one, pair.other);
    put_below_if(other_below, pair.other, pair.one);
  }

  // From this order, with these offsets of its pieces.
  Answer solve(const Tasks& tasks, const Order& order, const std::vector<Bytes>& offsets, Work& work) const {
    std::vector<double> start(program_.num_variables());
    lifetimes_.encode(tasks, order, start);
    for (std::size_t piece = 0; piece < offsets.size(); ++piece) {
      start[offsets_[piece].index()] = units(offsets[piece]);
      double& arena = start[arena_.index()];
      arena = std::max(arena, units(offsets[piece] + pieces_.all()[piece].size));
    }
    const auto is_below = [&](std::size_t low, std::size_t high) {
      return offsets[low] + pieces_.all()[low].size <= offsets[high];
    };
    for (const Switches& each : switches_) {
      start[each.one_below.index()] = is_below(each.pair.one, each.pair.other) ? 1 : 0;
      start[each.other_below.index()] = is_below(each.pair.other, each.pair.one) ? 1 : 0;
    }
    return minimize(program_, work, start);
  }

  Order order(std::span<const double> values) const { return lifetimes_.decode(values); }
  Bytes offset(std::size_t piece, std::span<const double> values) const {
    return Bytes(static_cast<std::uint64_t>(std::llround(values[offsets_[piece].index()])) * unit_.count());
  }
  Bytes bytes(double units) const {
    return Bytes(static_cast<std::uint64_t>(std::max(0.0, units * static_cast<double>(unit_.count()))));
  }

 private:
  using Kind = IntegerProgram::Kind;

  double units(Bytes bytes) const { return static_cast<double>(bytes.count()) / static_cast<double>(unit_.count()); }

  // Takes it off. No variable is in both of two pieces that do not always meet.
  void add_live(std::vector<IntegerProgram::Term>& terms, const Piece& piece, std::size_t step) const {
    if (const auto run = lifetimes_.run(piece.users.front(), step)) terms.push_back({*run, -1});
    const auto held = piece.held ? lifetimes_.held(*piece.held, step) : std::nullopt;
    if (held) terms.push_back({*held, -1});
  }

  void put_below_if(VariableId on, std::size_t low, std::size_t high) {
    program_.add_row({{offsets_[high], 1}, {offsets_[low], -1}, {on, -slacks_[low]}},
                     units(align_up(pieces_.all()[low].size)) - slacks_[low], kUnlimited);
  }

  struct Switches {
    Pair pair;
    VariableId one_below;
    VariableId other_below;
  };

  const JointPieces& pieces_;
  Bytes unit_;
  IntegerProgram program_;
  VariableId arena_;
  ModelLifetimes lifetimes_;
  std::vector<VariableId> offsets_;  // by piece, in units
  std::vector<double> slacks_;       // by piece: the highest end it can have
  std::vector<Switches> switches_;
};

// Where each of items_of() lies.
Layout layout_of(const Graph& graph, const Order& order, const JointPieces& pieces, const JointProgram& program,
                 std::span<const double> values) {
  Layout layout;
  const auto add = [&](Bytes size, std::size_t piece) {
    layout.offsets.push_back(program.offset(piece, values));
    layout.arena = std::max(layout.arena, layout.offsets.back() + size);
  };
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (!buffer.planned()) continue;
    if (buffer.size > Bytes(0)) {
      add(buffer.size, pieces.of_buffer(id));
    } else {
      layout.offsets.emplace_back(0);
    }
  }
  for (const OpId op : order) {
    const Bytes workspace = graph.op(op).workspace;
    if (workspace > Bytes(0)) add(workspace, pieces.of_workspace(op));
  }
  return layout;
}

Result<std::vector<LayoutItem>> items_in(const Graph& graph, const Order& order) {
  const Result<Lifetimes> lives = lifetimes(graph, order);
  if (!lives.ok()) return lives.error();
  return items_of(graph, order, *lives);
}

Result<Layout> layout_of_program_order(const Graph& graph) {
  const Result<std::vector<LayoutItem>> items = items_in(graph, first_to_last(graph.num_ops()));
  if (!items.ok()) return items.error();
  Result<NamedLayout> known = lay_out(*items, {.algorithm = "first_fit"});
  if (!known.ok()) return known.error();
  return std::move(known->layout);
}

// Of items_of() program order.
std::vector<Bytes> offsets_of(const Graph& graph, const JointPieces& pieces, const Layout& layout) {
  std::vector<Bytes> offsets(pieces.all().size());
  auto next = layout.offsets.begin();
  for (BufferId id(0); id.index() < graph.num_buffers(); id = id.next()) {
    const Buffer buffer = graph.buffer(id);
    if (!buffer.planned()) continue;
    if (buffer.size > Bytes(0)) offsets[pieces.of_buffer(id)] = *next;
    ++next;
  }
  for (OpId op(0); op.index() < graph.num_ops(); op = op.next()) {
    if (graph.op(op).workspace > Bytes(0)) offsets[pieces.of_workspace(op)] = *next++;
  }
  return offsets;
}

}  // namespace

Result<JointAnswer> model_joint(const Graph& given, StepWidth width, Work& work) {
  const Graph graph = given.without_reuses();  // the program gives every result bytes of its own
  const Result<Layout> known = layout_of_program_order(graph);
  if (!known.ok()) return known.error();
  const Bytes capacity = known->arena;
  const Tasks tasks = to_tasks(graph);
  const StepSpans spans = to_spans(tasks, width);
  const JointPieces pieces(graph, tasks, spans);
  const std::size_t num_lifetimes = ModelLifetimes::num_variables(spans);
  const std::vector<Pair> pairs = num_lifetimes > kMostVariables ? std::vector<Pair>() : pairs_of(pieces);
  const std::size_t variables = num_lifetimes + pieces.all().size() + 2 * pairs.size();
  const Bytes unit = pieces.unit();
  if (variables > kMostVariables || static_cast<double>(capacity.count() / unit.count()) > kMostJointUnits) {
    return Error{ErrorCode::work_limit,
                 words("model_joint takes graphs of at most ", kMostVariables, " variables and an arena of ",
                       static_cast<std::uint64_t>(kMostJointUnits), " units; this one, of ", tasks.count(),
                       " ops, has ", variables, " or more, and an arena of ", capacity, " bytes in units of ", unit)};
  }
  const Bytes least = operand_bound(graph);
  JointProgram program(pieces, tasks, spans, width, least, capacity);
  for (const Pair& pair : pairs) program.keep_apart(pair);
  const Answer answer = program.solve(tasks, first_to_last(graph.num_ops()), offsets_of(graph, pieces, *known), work);
  assert(answer.outcome != Answer::Outcome::infeasible);
  const Error nothing{ErrorCode::work_limit, words("model_joint found nothing for ", tasks.count(), " ops, in ",
                                                   variables, " variables, with the steps that are left")};
  if (!answer.has_values()) return nothing;
  JointAnswer made;
  made.order = program.order(answer.values);
  made.layout = layout_of(graph, made.order, pieces, program, answer.values);
  const Result<std::vector<LayoutItem>> items = items_in(graph, made.order);
  if (!items.ok()) return items.error();
  if (!verify_layout(*items, made.layout).ok()) return nothing;  // the solver was off by too much
  const Bytes proven = program.bytes(answer.bound - 1e-3);
  made.bound =
      answer.outcome == Answer::Outcome::optimal ? made.layout.arena : std::clamp(proven, least, made.layout.arena);
  return made;
}

}  // namespace lowtide
