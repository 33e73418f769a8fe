// lists.h: many short lists stored end to end.
//
// Graphs and plans hold a list for each op (what it reads, what it writes) or for each version (who reads it). A vector
// of vectors would cost three pointers and an allocation for each; Lists costs one index:
//
//   rows      [a b] [] [c]
//   items_     a b c
//   starts_    0 2 2 3        row r is items_[starts_[r] .. starts_[r + 1])
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lowtide {

template <typename T>
class Lists {
 public:
  std::size_t size() const { return starts_.size() - 1; }  // how many lists
  std::size_t num_items() const { return items_.size(); }  // how many items in all of them

  std::span<const T> operator[](std::size_t row) const {
    return {items_.data() + starts_[row], starts_[row + 1] - starts_[row]};
  }
  std::span<T> operator[](std::size_t row) { return {items_.data() + starts_[row], starts_[row + 1] - starts_[row]}; }

  // Items go to the end of the list being written; close() ends that list and starts the next.
  void push(const T& item) { items_.push_back(item); }
  void close() { starts_.push_back(items_.size()); }

  template <typename Range>
  void add(const Range& row) {
    items_.insert(items_.end(), row.begin(), row.end());
    close();
  }

  // Deals (row, item) pairs out to `rows` lists; within a list, items keep the order of the pairs. Linear.
  static Lists group(std::size_t rows, std::span<const std::pair<std::size_t, T>> pairs) {
    Lists lists;
    lists.starts_.assign(rows + 1, 0);
    for (const auto& pair : pairs) ++lists.starts_[pair.first + 1];
    for (std::size_t row = 0; row < rows; ++row) lists.starts_[row + 1] += lists.starts_[row];
    std::vector<std::size_t> next(lists.starts_.begin(), lists.starts_.end() - 1);
    lists.items_.resize(pairs.size());
    for (const auto& [row, item] : pairs) lists.items_[next[row]++] = item;
    return lists;
  }

  void reserve(std::size_t rows, std::size_t items) {
    starts_.reserve(rows + 1);
    items_.reserve(items);
  }

 private:
  std::vector<std::size_t> starts_ = {0};
  std::vector<T> items_;
};

}  // namespace lowtide
