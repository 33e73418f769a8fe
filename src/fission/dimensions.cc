#include "fission/dimensions.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace lowtide {
namespace {

class Dimensions {
 public:
  Dimensions(const Operands& operands, bool exact)
      : operands_(operands),
        graph_(operands.graph()),
        exact_(exact),
        taken_(graph_.num_ops()),
        member_of_(graph_.num_ops()),
        uses_(graph_.num_buffers()) {
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) taken_[id.index()].resize(graph_.num_axes(id));
    for (const Edge& edge : graph_.edges()) {
      if (edge.reason != EdgeReason::given) continue;
      for (const OpId op : {edge.before, edge.after}) taken_[op.index()].assign(graph_.num_axes(op), true);
    }
  }

  std::vector<Dimension> all() && {
    std::vector<Dimension> found;
    for (const Seed& seed : seeds()) {
      if (taken_[seed.op.index()][seed.axis]) continue;
      Dimension grown = grow(seed.op, seed.axis);
      if (grown.size() > 1) found.push_back(std::move(grown));
    }
    return found;
  }

 private:
  struct Seed {
    Bytes size;
    OpId op;
    std::uint32_t axis;
  };

  // How the dimension that grows uses a buffer.
  struct Use {
    std::uint32_t dimension = 0;   // the uses are those of this one; older ones do not count
    std::optional<Bytes> written;  // in these parts; 0 for a sum
    std::optional<Bytes> read;     // in these parts
    bool is_read_in_many_ways = false;
  };

  // How one op uses a buffer.
  struct OwnUse {
    BufferId buffer;
    std::optional<Bytes> written;
    std::optional<Bytes> read;
    bool is_read_in_many_ways = false;
  };

  std::vector<Seed> seeds() const {
    std::vector<Seed> seeds;
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) {
      for (std::uint32_t axis = 0; axis < graph_.num_axes(id); ++axis) {
        Bytes largest;
        for (const OwnUse& use : uses_of(id, axis)) {
          if (is_cut(use)) largest = std::max(largest, graph_.buffer(use.buffer).size);
        }
        seeds.push_back({largest, id, axis});
      }
    }
    std::ranges::stable_sort(seeds, std::ranges::greater{}, &Seed::size);
    return seeds;
  }

  static bool is_cut(const OwnUse& use) {
    return use.written.value_or(Bytes(0)) > Bytes(0) || use.read.value_or(Bytes(0)) > Bytes(0);
  }

  std::vector<OwnUse> uses_of(OpId id, std::uint32_t index) const {
    std::vector<OwnUse> uses;
    for (const BufferId buffer : operands_.of(id)) uses.push_back({buffer, {}, {}});
    const auto use_of = [&](VersionId version) -> OwnUse& {
      return *std::ranges::find(uses, graph_.version(version).buffer, &OwnUse::buffer);
    };
    const Op op = graph_.op(id);
    const Axis axis = graph_.axis(id, index);
    for (std::size_t i = 0; i < op.reads.size(); ++i) {
      OwnUse& use = use_of(graph_.value(op.reads[i]).version);
      use.is_read_in_many_ways |= use.read && *use.read != axis.reads[i];
      use.read = axis.reads[i];
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) use_of(op.writes[i]).written = axis.writes[i];
    return uses;
  }

  // What one writes, all others use in the same parts; a sum nobody.
  bool agrees(const OwnUse& own) const {
    Use use = uses_[own.buffer.index()];
    if (use.dimension != dimension_) use = {};
    const auto same = [](Bytes written, std::optional<Bytes> other) {
      return !other || (written > Bytes(0) && written == *other);
    };
    if (own.written) {
      const bool others_agree =
          same(*own.written, use.written) && same(*own.written, use.read) && !use.is_read_in_many_ways;
      if (!others_agree || !same(*own.written, own.read) || own.is_read_in_many_ways) return false;
    }
    return !use.written || !own.read || (same(*use.written, own.read) && !own.is_read_in_many_ways);
  }

  bool has_counts(OpId op, std::uint32_t axis) const {
    return std::ranges::any_of(graph_.axis(op, axis).counts,
                               [&](const PartCount& parts) { return parts.exact || !exact_; });
  }

  bool join(OpId op, std::uint32_t axis) {
    if (taken_[op.index()][axis] || member_of_[op.index()] == dimension_ || !has_counts(op, axis)) return false;
    const std::vector<OwnUse> own = uses_of(op, axis);
    if (!std::ranges::all_of(own, [&](const OwnUse& use) { return agrees(use); })) return false;
    for (const OwnUse& one : own) {
      Use& use = uses_[one.buffer.index()];
      if (use.dimension != dimension_) use = {dimension_, {}, {}};
      if (one.written) use.written = one.written;
      use.is_read_in_many_ways |= one.is_read_in_many_ways || (one.read && use.read && *use.read != *one.read);
      if (one.read) use.read = one.read;
    }
    taken_[op.index()][axis] = true;
    member_of_[op.index()] = dimension_;
    return true;
  }

  // Along any axis that cuts the buffer so.
  void join_along(OpId op, BufferId buffer, Bytes period, bool as_writer, Dimension& grown) {
    for (std::uint32_t axis = 0; axis < graph_.num_axes(op); ++axis) {
      if (operands_.period(op, axis, buffer) != period || (as_writer && !operands_.writes(op, buffer))) continue;
      if (!join(op, axis)) continue;
      grown.push_back({op, axis});
      return;
    }
  }

  Dimension grow(OpId seed, std::uint32_t axis) {
    ++dimension_;
    Dimension grown;
    if (!join(seed, axis)) return grown;
    grown.push_back({seed, axis});
    for (std::size_t next = 0; next < grown.size(); ++next) {
      const CutOp one = grown[next];
      for (const OwnUse& use : uses_of(one.op, one.axis)) {
        if (!graph_.buffer(use.buffer).planned() || !is_cut(use)) continue;
        const bool writes = use.written.has_value();
        for (const OpId other : operands_.users(use.buffer)) {
          join_along(other, use.buffer, writes ? *use.written : *use.read, !writes, grown);
        }
      }
    }
    std::ranges::sort(grown, {}, &CutOp::op);
    return grown;
  }

  const Operands& operands_;
  const Graph& graph_;
  bool exact_;
  std::vector<std::vector<bool>> taken_;  // by op and axis
  std::uint32_t dimension_ = 0;           // the one that grows
  std::vector<std::uint32_t> member_of_;  // by op: the last that it joined
  std::vector<Use> uses_;                 // by buffer
};

}  // namespace

std::vector<Dimension> dimensions_of(const Operands& operands, bool exact) {
  return Dimensions(operands, exact).all();
}

}  // namespace lowtide
