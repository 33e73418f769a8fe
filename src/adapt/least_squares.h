// least_squares.h: straight lines through data that come one by one: several values, each a weighted sum of the same
// terms.
//
// Rows of terms are turned into a triangle by Givens rotations as they come (a QR factorisation), which squares no
// condition number and takes memory for the terms, not for the rows. A little weight on "every factor is 0" lets terms
// that the data say nothing about stay 0.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lowtide {

class LeastSquares {
 public:
  // `weights` holds, for each term, how firmly its factor is held at 0.
  LeastSquares(std::span<const double> weights, std::size_t values);

  // One row: `terms` and what the `values` were there.
  void add(std::span<const double> terms, std::span<const double> values);

  // What the values are where the terms are these.
  void predict(std::span<const double> terms, std::span<double> values) const;

  // How much a prediction there depends on chance: 1 means as much as a single measurement does, far more means that
  // nothing like it was seen.
  double leverage(std::span<const double> terms) const;

  // How far measured values lie from the line: their standard deviation.
  double deviation(std::size_t value) const;

  std::size_t rows() const { return rows_; }

 private:
  void solve() const;

  std::size_t terms_;
  std::size_t values_;
  std::size_t rows_ = 0;
  std::vector<double> triangle_;         // terms x terms, row by row
  std::vector<double> right_;            // terms x values
  std::vector<double> residual_;         // squares that are left, by value
  mutable std::vector<double> factors_;  // terms x values, when `solved_`
  mutable bool solved_ = false;
};

}  // namespace lowtide
