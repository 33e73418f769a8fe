// Offsets by integer programs: for each two pieces that live together, a switch says which of them lies below.
//
//   offset(low) + size(low) <= offset(high) + (the switch says so ? 0 : slack)
//
// The slack is by how much they may be out of this order, up to the whole arena. It is what makes the linear relaxation
// weak: half a switch is half the slack, and everything may lie on everything.
//
// Offsets need not be declared whole. Once all switches are set only differences are left, and the lowest solution of
// those is whole; only multiples of an alignment have to be asked for.
#include "published/sekiyama/address_programs.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "published/solver/integer_program.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostPairs = 20'000;
// With more, one unit is within the solver's tolerance of the whole arena.
constexpr Units kMostUnits = Units{1} << 24;

struct Pair {
  std::uint32_t one;
  std::uint32_t other;
};

// Those who live together: up to one more than can be solved.
std::vector<Pair> colliding_pairs(const Pieces& problem) {
  std::vector<Pair> pairs;
  for (std::uint32_t i = 0; i < problem.pieces.size(); ++i) {
    for (std::uint32_t j = i + 1; j < problem.pieces.size(); ++j) {
      if (problem.pieces[j].begin >= problem.pieces[i].end) break;  // they come in the order of their first sections
      pairs.push_back({i, j});
      if (pairs.size() > kMostPairs) return pairs;
    }
  }
  return pairs;
}

double number(Units units) {
  return static_cast<double>(units);
}

class AddressProgram {
 public:
  // There is a packing below `capacity`, and none below `least`.
  AddressProgram(const Pieces& problem, Units least, Units capacity) : problem_(problem) {
    using Kind = IntegerProgram::Kind;
    const VariableId top = program_.add_variable(Kind::whole, number(least), number(capacity), 1);
    for (const Piece& piece : problem.pieces) {
      const Units most = (capacity - piece.size) / piece.alignment;
      Place place{{}, 0, most * piece.alignment};
      if (piece.fixed >= 0) place.lowest = place.highest = piece.fixed;
      place.multiples =
          program_.add_variable(piece.alignment == 1 ? Kind::continuous : Kind::whole,
                                number(place.lowest / piece.alignment), number(place.highest / piece.alignment));
      program_.add_row({{top, 1}, {place.multiples, -number(piece.alignment)}}, number(piece.size), kUnlimited);
      places_.push_back(place);
    }
  }

  VariableId add_switch() { return program_.add_switch(); }
  void set_one_of(VariableId one, VariableId other) { program_.add_row({{one, 1}, {other, 1}}, 1, 1); }

  bool can_lie_below(std::uint32_t low, std::uint32_t high) const {
    return places_[low].lowest + problem_.pieces[low].size <= places_[high].highest;
  }
  // By how much they can be out of order, their bounds being what they are.
  Units most_slack(std::uint32_t low, std::uint32_t high) const {
    return places_[low].highest + problem_.pieces[low].size - places_[high].lowest;
  }

  void put_below(std::uint32_t low, std::uint32_t high) {
    program_.add_row({offset(high, 1), offset(low, -1)}, number(problem_.pieces[low].size), kUnlimited);
  }
  void put_below_if(VariableId on, std::uint32_t low, std::uint32_t high, Units slack) {
    program_.add_row({offset(high, 1), offset(low, -1), {on, -number(slack)}},
                     number(problem_.pieces[low].size - slack), kUnlimited);
  }
  void put_below_unless(VariableId on, std::uint32_t low, std::uint32_t high, Units slack) {
    program_.add_row({offset(high, 1), offset(low, -1), {on, number(slack)}}, number(problem_.pieces[low].size),
                     kUnlimited);
  }

  Answer solve(Work& work) const { return minimize(program_, work); }

  // In the order that the solution has them in, each as low as it can lie on those before it: exact whatever the
  // solution was off by. Nothing if a fixed piece is in the way of another, because it was off by too much.
  std::optional<Offsets> stack(std::span<const double> values) const {
    std::vector<double> solved;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      solved.push_back(values[places_[p].multiples.index()] * number(problem_.pieces[p].alignment));
    }
    std::vector<std::uint32_t> order(places_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t p) { return solved[p]; });
    Offsets offsets(places_.size());
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Piece& piece = problem_.pieces[order[k]];
      Units floor = 0;
      for (const std::uint32_t below : std::span(order).first(k)) {
        const Piece& other = problem_.pieces[below];
        if (other.begin < piece.end && piece.begin < other.end) floor = std::max(floor, offsets[below] + other.size);
      }
      if (piece.fixed >= 0 && floor > piece.fixed) return std::nullopt;
      offsets[order[k]] = piece.fixed >= 0 ? piece.fixed : align_up(floor, piece.alignment);
    }
    return offsets;
  }

 private:
  struct Place {
    VariableId multiples;  // of the alignment, that make up the offset
    Units lowest;
    Units highest;
  };

  IntegerProgram::Term offset(std::uint32_t piece, double factor) const {
    return {places_[piece].multiples, factor * number(problem_.pieces[piece].alignment)};
  }

  const Pieces& problem_;
  IntegerProgram program_;
  std::vector<Place> places_;
};

// `least` is a bound that the program is told. keep_apart(program, pair, capacity) adds what keeps the two of a pair
// apart; all of it lies below `capacity`.
template <typename KeepApart>
Result<ProvenOffsets> solve(std::string_view name, const Pieces& problem, Units least, Work& work,
                            KeepApart keep_apart) {
  const Result<Offsets> known = first_fit(problem, work);
  if (!known.ok()) return known.error();
  const Units capacity = top_of(problem, *known);
  const std::vector<Pair> pairs = colliding_pairs(problem);
  if (pairs.size() > kMostPairs || capacity > kMostUnits) {
    return Error{ErrorCode::work_limit,
                 words(name, " takes problems of at most ", kMostPairs, " pairs that live together and an arena of ",
                       kMostUnits, " units; this one has ", problem.pieces.size(), " items and an arena of ", capacity,
                       " units of ", problem.unit, " bytes")};
  }
  AddressProgram program(problem, least, capacity);
  for (const Pair& pair : pairs) keep_apart(program, pair, capacity);
  const Answer answer = program.solve(work);
  assert(answer.outcome != Answer::Outcome::infeasible);
  std::optional<Offsets> offsets;
  if (answer.has_values()) offsets = program.stack(answer.values);
  if (!offsets) return out_of_work(name, problem);
  // The cost is whole, and what is proven of it a little off.
  const double bound = std::ceil(answer.bound - 1e-3);
  const Units top = top_of(problem, *offsets);
  return ProvenOffsets{*std::move(offsets), bound < number(top) ? static_cast<Units>(std::max(bound, 0.0)) : top};
}

}  // namespace

// One switch for each pair, the whole arena as slack, and nothing that the solver could find out on its own.
Result<ProvenOffsets> sekiyama_program(const Pieces& problem, Work& work) {
  return solve("sekiyama_program", problem, 0, work, [](AddressProgram& program, const Pair& pair, Units capacity) {
    const VariableId other_below = program.add_switch();
    program.put_below_unless(other_below, pair.one, pair.other, capacity);
    program.put_below_if(other_below, pair.other, pair.one, capacity);
  });
}

// Two switches for each pair, one for either order, of which exactly one is set because both pieces do live; none where
// bounds leave one order only. The slack is what the bounds of the two allow.
Result<ProvenOffsets> model_program(const Pieces& problem, Work& work) {
  return solve("model_program", problem, problem.highest_load(), work,
               [](AddressProgram& program, const Pair& pair, Units) {
                 if (!program.can_lie_below(pair.other, pair.one)) return program.put_below(pair.one, pair.other);
                 if (!program.can_lie_below(pair.one, pair.other)) return program.put_below(pair.other, pair.one);
                 const VariableId one_below = program.add_switch();
                 const VariableId other_below = program.add_switch();
                 program.set_one_of(one_below, other_below);
                 const auto put = [&](VariableId on, std::uint32_t low, std::uint32_t high) {
                   program.put_below_if(on, low, high, program.most_slack(low, high));
                 };
                 put(one_below, pair.one, pair.other);
                 put(other_below, pair.other, pair.one);
               });
}

Result<BoundedLayout> lay_out_by(AddressSolver solver, std::span<const LayoutItem> items, Work& work) {
  const Result<Pieces> problem = to_pieces(items);
  if (!problem.ok()) return problem.error();
  const Result<ProvenOffsets> made = solver(*problem, work);
  if (!made.ok()) return made.error();
  return BoundedLayout{problem->layout(made->offsets, items), problem->bound_in_bytes(made->bound)};
}

}  // namespace lowtide
