#include "graph/reachability.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/parallel.h"

namespace lowtide {

// Fills one block after another, in ascending order, in the same memory.
class BlockSweep {
 public:
  BlockSweep(const Dependencies& dependencies, Side side) : dependencies_(dependencies), side_(side) {
    block_.rows_.resize(dependencies.predecessors.size());
  }

  const ReachabilityBlock& block() const { return block_; }

  void fill(std::size_t first) {
    using Row = ReachabilityBlock::Row;
    std::vector<Row>& rows = block_.rows_;
    const std::size_t end = std::min(first + ReachabilityBlock::kColumns, rows.size());
    // Ancestors of ops before the block are before it too. Of descendants, rows from `end` on were never written.
    if (side_ == Side::ancestors) std::fill(rows.begin() + block_.first_.value(), rows.begin() + first, Row{});
    block_.first_ = OpId(first);
    block_.columns_ = end - first;

    const auto gather = [&](std::size_t op, std::span<const OpId> neighbours) {
      Row row;
      for (const OpId neighbour : neighbours) {
        const std::size_t near = neighbour.index();
        if (side_ == Side::ancestors ? near < first : near >= end) continue;  // nothing known of it, no column
        for (std::size_t i = 0; i < row.words.size(); ++i) row.words[i] |= rows[near].words[i];
        if (near < first || near >= end) continue;
        row.words[(near - first) / 64] |= std::uint64_t{1} << (near - first) % 64;
      }
      rows[op] = row;
    };
    if (side_ == Side::ancestors) {
      for (std::size_t op = first; op < rows.size(); ++op) gather(op, dependencies_.predecessors[op]);
    } else {
      for (std::size_t op = end; op-- > 0;) gather(op, dependencies_.successors[op]);
    }
  }

 private:
  const Dependencies& dependencies_;
  Side side_;
  ReachabilityBlock block_;
};

void for_each_block(const Dependencies& dependencies, Side side, std::size_t threads,
                    const std::function<void(const ReachabilityBlock&)>& visit) {
  constexpr std::size_t kColumns = ReachabilityBlock::kColumns;
  const std::size_t blocks = (dependencies.predecessors.size() + kColumns - 1) / kColumns;
  std::vector<BlockSweep> sweeps(std::clamp<std::size_t>(threads, 1, std::max<std::size_t>(blocks, 1)),
                                 BlockSweep(dependencies, side));
  for (std::size_t begin = 0; begin < blocks; begin += sweeps.size()) {
    const std::size_t together = std::min(sweeps.size(), blocks - begin);
    in_parallel(together, [&](std::size_t i) { sweeps[i].fill((begin + i) * kColumns); });
    for (std::size_t i = 0; i < together; ++i) visit(sweeps[i].block());
  }
}

std::vector<std::uint32_t> count_relatives(const Dependencies& dependencies, Side side, std::size_t threads) {
  std::vector<std::uint32_t> counts(dependencies.predecessors.size());
  for_each_block(dependencies, side, threads, [&](const ReachabilityBlock& block) {
    for (std::size_t op = 0; op < counts.size(); ++op) counts[op] += static_cast<std::uint32_t>(block.count(OpId(op)));
  });
  return counts;
}

Reachability::Reachability(const Dependencies& dependencies)
    : dependencies_(&dependencies), marks_(dependencies.predecessors.size()) {
  walk();
  for (std::size_t op = 0; op < marks_.size(); ++op) {
    for (const OpId before : dependencies.predecessors[op]) {
      marks_[op].depth = std::max(marks_[op].depth, marks_[before.index()].depth + 1);
    }
  }
  for (std::size_t op = marks_.size(); op-- > 0;) {
    marks_[op].lowest = marks_[op].finish;
    for (const OpId after : dependencies.successors[op]) {
      marks_[op].height = std::max(marks_[op].height, marks_[after.index()].height + 1);
      marks_[op].lowest = std::min(marks_[op].lowest, marks_[after.index()].lowest);
    }
  }
}

// Depth first from each op that was not met yet, in program order, with a stack of its own: chains are long.
void Reachability::walk() {
  struct Visit {
    OpId op;
    std::size_t next;  // of its successors
  };
  std::vector<Visit> stack;
  std::vector<bool> met(marks_.size());
  std::uint32_t finished = 0;
  const auto enter = [&](OpId op) {
    met[op.index()] = true;
    marks_[op.index()].enter = finished;
    stack.push_back({op, 0});
  };
  for (OpId root(0); root.index() < marks_.size(); root = root.next()) {
    if (!met[root.index()]) enter(root);
    while (!stack.empty()) {
      Visit& visit = stack.back();
      const std::span<const OpId> successors = dependencies_->successors[visit.op.index()];
      if (visit.next == successors.size()) {
        marks_[visit.op.index()].finish = finished++;
        stack.pop_back();
      } else if (const OpId after = successors[visit.next++]; !met[after.index()]) {
        enter(after);
      }
    }
  }
}

Reachability::Answer Reachability::compare(OpId a, OpId b) const {
  const Marks& from = marks_[a.index()];
  const Marks& to = marks_[b.index()];
  if (a >= b || from.depth >= to.depth || from.height <= to.height) return Answer::no;
  // An op finishes after all its descendants.
  if (from.finish <= to.finish || from.lowest > to.lowest) return Answer::no;
  // What finished since the walk met `a` was reached from `a`.
  if (from.enter <= to.finish) return Answer::yes;
  return Answer::open;
}

bool Reachability::precedes(OpId a, OpId b) const {
  if (const Answer answer = compare(a, b); answer != Answer::open) return answer == Answer::yes;
  // Ops between them in program order that may be ancestors of b: those seen, and those whose turn is to come.
  std::vector<bool> seen(b.index() - a.index());
  std::vector<OpId> waiting = {b};
  while (!waiting.empty()) {
    const OpId op = waiting.back();
    waiting.pop_back();
    for (const OpId before : dependencies_->predecessors[op.index()]) {
      if (before == a) return true;
      const Answer answer = compare(a, before);
      if (answer == Answer::yes) return true;
      if (answer == Answer::no || seen[before.index() - a.index()]) continue;
      seen[before.index() - a.index()] = true;
      waiting.push_back(before);
    }
  }
  return false;
}

}  // namespace lowtide
