// input_terms.h: the terms of a polynomial in the extents of a batch.
//
// A batch is known by a row of whole numbers: the extents of its tensors. Many of these never change, and many are
// always the same as another: of input_ids and attention_mask [8, 128] only the length 128 is of interest. Which are is
// learnt from the batches themselves, so the terms change when one comes that differs in a new way.
//
// Bytes are polynomials of a low order in lengths (attention: their square), times the batch size if that changes. The
// first extent is taken for that, unless it was once the only one to change: inputs may have the length in front.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lowtide {

class InputTerms {
 public:
  explicit InputTerms(std::size_t order) : order_(order) {}

  // Learns from a batch; whether the terms are others now. All batches have the same number of extents.
  bool learn(std::span<const std::uint64_t> extents);

  std::size_t count() const { return powers_.size(); }
  std::vector<double> row(std::span<const std::uint64_t> extents) const;

  // How firmly the factor of each term is held at 0: the firmer, the higher its order.
  std::vector<double> weights() const;

  // Whether an extent is larger than any that was learnt from, by more than this share.
  bool is_larger(std::span<const std::uint64_t> extents, double share) const;
  // Whether an extent changes that never has, or differs from another one for the first time: learn() would be true.
  bool is_new_kind(std::span<const std::uint64_t> extents) const;

 private:
  void choose();

  std::size_t order_;
  std::vector<std::uint64_t> first_;    // extents of the first batch, which all others are divided by
  std::vector<std::uint64_t> largest_;  // of all batches
  std::vector<std::size_t> same_as_;    // the first column that was always the same
  std::vector<bool> changes_;
  bool first_is_length_ = false;                   // it changed while no other did
  std::vector<std::size_t> columns_;               // of interest: those that change, once each
  std::vector<std::vector<std::uint8_t>> powers_;  // of each term, by column of interest
};

}  // namespace lowtide
