#include "adapt/input_terms.h"

#include <algorithm>
#include <numeric>

namespace lowtide {
namespace {

constexpr std::size_t kMostTerms = 40;

// All ways to choose powers for `columns` whose sum is at most `order`, low orders first.
std::vector<std::vector<std::uint8_t>> monomials(std::size_t columns, std::size_t order) {
  std::vector<std::vector<std::uint8_t>> found = {std::vector<std::uint8_t>(columns, 0)};
  std::size_t begin = 0;
  for (std::size_t degree = 1; degree <= order; ++degree) {
    const std::size_t end = found.size();
    for (std::size_t i = begin; i < end; ++i) {
      // Only columns from the last one used on: each product once.
      std::size_t from = columns;
      while (from > 0 && found[i][from - 1] == 0) --from;
      for (std::size_t column = from == 0 ? 0 : from - 1; column < columns; ++column) {
        std::vector<std::uint8_t> next = found[i];
        ++next[column];
        found.push_back(std::move(next));
      }
    }
    begin = end;
  }
  return found;
}

// The terms times each power of one more column in front, up to the highest.
std::vector<std::vector<std::uint8_t>> times_first(const std::vector<std::vector<std::uint8_t>>& terms,
                                                   std::size_t highest) {
  std::vector<std::vector<std::uint8_t>> products;
  for (std::size_t power = 0; power <= highest; ++power) {
    for (const auto& powers : terms) {
      products.push_back({static_cast<std::uint8_t>(power)});
      products.back().insert(products.back().end(), powers.begin(), powers.end());
    }
  }
  return products;
}

}  // namespace

bool InputTerms::learn(std::span<const std::uint64_t> extents) {
  if (first_.empty() && powers_.empty()) {
    first_.assign(extents.begin(), extents.end());
    largest_ = first_;
    changes_.assign(extents.size(), false);
    same_as_.resize(extents.size());
    for (std::size_t i = 0; i < extents.size(); ++i) {
      same_as_[i] = static_cast<std::size_t>(std::find(first_.begin(), first_.end(), first_[i]) - first_.begin());
    }
    choose();
    return true;
  }
  bool differs = false;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    largest_[i] = std::max(largest_[i], extents[i]);
    if (extents[i] != first_[i] && !changes_[i]) {
      changes_[i] = true;
      differs = true;
    }
  }
  // A class of columns that is no longer of one mind falls apart into those that still agree.
  std::vector<std::size_t> same(extents.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    std::size_t j = same_as_[i];
    while (same_as_[j] != same_as_[i] || extents[j] != extents[i]) ++j;
    same[i] = j;
    differs = differs || j != same_as_[i];
  }
  same_as_ = std::move(same);
  if (differs) choose();
  return differs;
}

void InputTerms::choose() {
  columns_.clear();
  for (std::size_t i = 0; i < first_.size(); ++i) {
    if (changes_[i] && same_as_[i] == i) columns_.push_back(i);
  }
  const bool first_changes = !columns_.empty() && columns_.front() == 0;
  const std::size_t lengths = columns_.size() - (first_changes ? 1 : 0);
  first_is_length_ = first_is_length_ || (first_changes && lengths == 0);
  for (std::size_t order = order_;; --order) {
    powers_ = monomials(lengths, order);
    // As the size of the batch it is in products with whatever else there is, which may be once for each sample.
    if (first_changes) powers_ = times_first(powers_, first_is_length_ ? std::max<std::size_t>(order, 1) : 1);
    if (powers_.size() <= kMostTerms || order <= 1) return;
  }
}

std::vector<double> InputTerms::row(std::span<const std::uint64_t> extents) const {
  std::vector<double> row;
  row.reserve(powers_.size());
  for (const auto& powers : powers_) {
    double product = 1.0;
    for (std::size_t k = 0; k < powers.size(); ++k) {
      const std::size_t column = columns_[k];
      const double extent =
          static_cast<double>(extents[column]) / static_cast<double>(std::max<std::uint64_t>(first_[column], 1));
      for (std::uint8_t power = 0; power < powers[k]; ++power) product *= extent;
    }
    row.push_back(product);
  }
  return row;
}

std::vector<double> InputTerms::weights() const {
  std::vector<double> weights;
  for (const auto& powers : powers_) {
    const unsigned degree = std::accumulate(powers.begin(), powers.end(), 0U);
    weights.push_back(degree == 0 ? 1e-6 : degree == 1 ? 1e-5 : 1e-4);
  }
  return weights;
}

bool InputTerms::is_larger(std::span<const std::uint64_t> extents, double share) const {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (static_cast<double>(extents[i]) > static_cast<double>(largest_[i]) * (1.0 + share)) return true;
  }
  return false;
}

bool InputTerms::is_new_kind(std::span<const std::uint64_t> extents) const {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if ((!changes_[i] && extents[i] != first_[i]) || extents[i] != extents[same_as_[i]]) return true;
  }
  return false;
}

}  // namespace lowtide
