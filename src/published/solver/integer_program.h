// integer_program.h: the least cost that whole numbers can have within linear rows. The one wall around HiGHS.
//
//   minimize -5 a - 4 b - 3 c                  IntegerProgram program;
//   with     2 a + 3 b + 1 c <= 5              const auto a = program.add_switch(-5);  // and so b and c
//   and      a, b, c either 0 or 1             program.add_row({{a, 2}, {b, 3}, {c, 1}}, 0, 5);
//                                              Work work(1'000'000'000);
//   a and b: 5 of 5, at a cost of -9           const Answer answer = minimize(program, work);
//
// Every variable has bounds, so that the cost has one too. HiGHS calculates in floating point and takes 10^-6 for
// nothing: a value that is to be whole is near a whole number, and may be off a row by as much as that makes. Whoever
// needs a solution to the bit makes it again from the values rounded.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "lowtide/limit.h"
#include "lowtide/units.h"

namespace lowtide {

using VariableId = Id<struct VariableTag>;

// As a bound of a row: there is none. To be had with either sign.
inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

class IntegerProgram {
 public:
  enum class Kind { continuous, whole };
  struct Term {
    VariableId variable;
    double factor;
  };

  // All bounds are finite.
  VariableId add_variable(Kind kind, double lower, double upper, double cost = 0);
  VariableId add_switch(double cost = 0) { return add_variable(Kind::whole, 0, 1, cost); }
  // lower <= the sum of the terms <= upper, of which one may be unlimited; no two terms are of the same variable.
  void add_row(std::span<const Term> terms, double lower, double upper);
  void add_row(std::initializer_list<Term> terms, double lower, double upper) {
    add_row(std::span(terms.begin(), terms.size()), lower, upper);
  }

  std::size_t num_variables() const { return lower_.size(); }
  std::size_t num_rows() const { return row_lower_.size(); }
  std::size_t num_terms() const { return term_factor_.size(); }

 private:
  friend class Highs;

  std::vector<double> cost_, lower_, upper_;  // by variable
  std::vector<std::int32_t> whole_;           // by variable: 1 or 0
  std::vector<double> row_lower_, row_upper_;
  std::vector<std::int32_t> row_begin_;  // by row: its first term
  std::vector<std::int32_t> term_variable_;
  std::vector<double> term_factor_;
};

struct Answer {
  enum class Outcome {
    optimal,        // the values cost the least that is possible
    infeasible,     // no values are within the rows
    found,          // the work was used up: the values are the best so far
    nothing_found,  // the work was used up before there were any
  };

  Outcome outcome;
  std::vector<double> values;  // by variable, if there are any
  double cost = 0;             // of these
  double bound;                // proven: nothing costs less; minus infinity if nothing is

  bool has_values() const { return outcome == Outcome::optimal || outcome == Outcome::found; }
};

// On one thread, the same on every machine. The work is looked at between two linear programs: one that is begun is
// brought to its end. `start`, if there is one, has values within the rows: what is found costs no more.
Answer minimize(const IntegerProgram& program, Work& work, std::span<const double> start = {});

}  // namespace lowtide
