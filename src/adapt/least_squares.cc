#include "adapt/least_squares.h"

#include <algorithm>
#include <cmath>

namespace lowtide {

LeastSquares::LeastSquares(std::span<const double> weights, std::size_t values)
    : terms_(weights.size()),
      values_(values),
      triangle_(terms_ * terms_, 0.0),
      right_(terms_ * values, 0.0),
      residual_(values, 0.0),
      factors_(terms_ * values, 0.0) {
  for (std::size_t i = 0; i < terms_; ++i) triangle_[i * terms_ + i] = weights[i];
}

void LeastSquares::add(std::span<const double> terms, std::span<const double> values) {
  std::vector<double> row(terms.begin(), terms.end());
  std::vector<double> right(values.begin(), values.end());
  for (std::size_t i = 0; i < terms_; ++i) {
    if (row[i] == 0.0) continue;
    double* held = &triangle_[i * terms_];
    const double length = std::hypot(held[i], row[i]);
    const double cosine = held[i] / length;
    const double sine = row[i] / length;
    for (std::size_t j = i; j < terms_; ++j) {
      const double above = held[j];
      held[j] = cosine * above + sine * row[j];
      row[j] = cosine * row[j] - sine * above;
    }
    double* held_right = &right_[i * values_];
    for (std::size_t v = 0; v < values_; ++v) {
      const double above = held_right[v];
      held_right[v] = cosine * above + sine * right[v];
      right[v] = cosine * right[v] - sine * above;
    }
  }
  for (std::size_t v = 0; v < values_; ++v) residual_[v] += right[v] * right[v];
  ++rows_;
  solved_ = false;
}

void LeastSquares::solve() const {
  for (std::size_t i = terms_; i-- > 0;) {
    const double* held = &triangle_[i * terms_];
    for (std::size_t v = 0; v < values_; ++v) {
      double sum = right_[i * values_ + v];
      for (std::size_t j = i + 1; j < terms_; ++j) sum -= held[j] * factors_[j * values_ + v];
      factors_[i * values_ + v] = sum / held[i];
    }
  }
  solved_ = true;
}

void LeastSquares::predict(std::span<const double> terms, std::span<double> values) const {
  if (!solved_) solve();
  std::fill(values.begin(), values.end(), 0.0);
  for (std::size_t i = 0; i < terms_; ++i) {
    for (std::size_t v = 0; v < values_; ++v) values[v] += terms[i] * factors_[i * values_ + v];
  }
}

double LeastSquares::leverage(std::span<const double> terms) const {
  // |z|^2 with triangle' z = terms.
  std::vector<double> z(terms.begin(), terms.end());
  double sum = 0.0;
  for (std::size_t i = 0; i < terms_; ++i) {
    z[i] /= triangle_[i * terms_ + i];
    for (std::size_t j = i + 1; j < terms_; ++j) z[j] -= triangle_[i * terms_ + j] * z[i];
    sum += z[i] * z[i];
  }
  return sum;
}

double LeastSquares::deviation(std::size_t value) const {
  const std::size_t free = rows_ > terms_ ? rows_ - terms_ : 1;
  return std::sqrt(residual_[value] / static_cast<double>(free));
}

}  // namespace lowtide
