#include "fission/made_again.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rewrite/repeats.h"

namespace lowtide {
namespace {

class MadeAgain {
 public:
  MadeAgain(const Operands& operands, Bytes most)
      : operands_(operands),
        graph_(operands.graph()),
        most_(most),
        repeats_(graph_),
        large_(graph_.num_buffers()),
        there_(graph_.num_buffers()) {
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      if (operands.needed(id) <= most) continue;
      for (const BufferId buffer : operands.of(id)) {
        if (const std::optional<OpId> use = use_behind_turn(buffer)) note(buffer, *use);
      }
    }
  }

  Steps steps() && {
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      if (graph_.op(id).flags.backward) {
        for (const BufferId buffer : operands_.of(id)) make_again(buffer);
      }
      steps_.push_back(id);
    }
    return std::move(steps_);
  }

 private:
  bool is_backward(OpId op) const { return graph_.op(op).flags.backward; }

  // Of what is made before the backward pass, the first use in it.
  std::optional<OpId> use_behind_turn(BufferId buffer) const {
    const std::span<const OpId> users = operands_.users(buffer);
    const auto use = std::ranges::find_if(users, [&](OpId op) { return is_backward(op); });
    if (use == users.begin() || use == users.end()) return std::nullopt;
    return *use;
  }

  // It is made again, if it is large and can be, and so is what that reads.
  void note(BufferId id, OpId use) {
    const Buffer buffer = graph_.buffer(id);
    if (large_[id.index()] || buffer.size.count() <= most_.count() / 8 || !can_be_made_again(id, use)) return;
    large_[id.index()] = true;
    for (const VersionId version : buffer.versions) {
      for (const BufferId operand : operands_.of(*graph_.version(version).writer)) note(operand, use);
    }
  }

  bool can_be_made_again(BufferId id, OpId use) const {
    const Buffer buffer = graph_.buffer(id);
    if (!buffer.planned() || buffer.kept) return false;
    return std::ranges::all_of(buffer.versions, [&](VersionId version) {
      const OpId writer = *graph_.version(version).writer;
      return repeats_.allowed(writer) && graph_.num_axes(writer) > 0 && !is_backward(writer) &&
             std::ranges::all_of(graph_.op(writer).reads,
                                 [&](ValueId read) { return lasts_until(graph_.value(read).version, id, use); });
    });
  }

  // Whether nothing has changed what a version shows before `step`; what it makes itself may have.
  bool lasts_until(VersionId id, BufferId made, OpId step) const {
    const Version version = graph_.version(id);
    const std::span<const VersionId> all = graph_.buffer(version.buffer).versions;
    return version.buffer == made || version.index + 1 == all.size() ||
           *graph_.version(all[version.index + 1]).writer >= step;
  }

  // Its writers once more, and before each what that reads, if it is large too.
  void make_again(BufferId buffer) {
    if (!large_[buffer.index()] || there_[buffer.index()]) return;
    there_[buffer.index()] = true;
    for (const VersionId version : graph_.buffer(buffer).versions) {
      const OpId writer = *graph_.version(version).writer;
      for (const BufferId operand : operands_.of(writer)) make_again(operand);
      if (std::ranges::find(again_, writer) != again_.end()) continue;
      again_.push_back(writer);
      steps_.push_back(writer);
    }
  }

  const Operands& operands_;
  const Graph& graph_;
  Bytes most_;
  Repeats repeats_;
  std::vector<bool> large_;  // by buffer: it is made again
  std::vector<bool> there_;  // by buffer: it has been
  std::vector<OpId> again_;
  Steps steps_;
};

}  // namespace

Steps steps_with_large_made_again(const Operands& operands, Bytes most) {
  return MadeAgain(operands, most).steps();
}

}  // namespace lowtide
