#include "verify/transfers_form.h"

#include <string_view>
#include <utility>

#include "base/shown_name.h"
#include "base/words.h"
#include "verify/form.h"

namespace lowtide {
namespace {

bool is_home(const Block& block) {
  return !block.offset;
}

class TransferCheck {
 public:
  TransferCheck(const Graph& graph, const Plan& plan, std::size_t index)
      : graph_(graph), plan_(plan), index_(index), transfer_(plan.transfers[index]) {}

  Status run() const {
    if (Status status = check_ends(); !status.ok()) return status;
    if (Status status = check_time(); !status.ok()) return status;
    const bool from_lives = is_store(transfer_) ? lives_for_store() : lives_for_load();
    if (!from_lives) return outside_life(transfer_.from, "from");
    if (!lives_to_be_filled()) return outside_life(transfer_.to, "to");
    return Done{};
  }

 private:
  template <typename... Parts>
  Error wrong(const Parts&... parts) const {
    return {ErrorCode::malformed_transfer, words("transfer ", index_, " ", parts...)};
  }
  Error outside_life(BlockId id, std::string_view preposition) const {
    const Block& block = plan_.blocks[id.index()];
    return {ErrorCode::use_outside_life,
            words("transfer ", index_, " goes ", preposition, " ", describe_block(graph_, plan_, id), " from step ",
                  transfer_.issue, " to step ", transfer_.wait, ", but it lives [", block.begin, ",", block.end, ")")};
  }

  bool is_store(const Transfer& transfer) const { return plan_.blocks[transfer.from.index()].tier == 0; }
  const Block& from() const { return plan_.blocks[transfer_.from.index()]; }
  const Block& to() const { return plan_.blocks[transfer_.to.index()]; }

  Status check_ends() const {
    for (const BlockId block : {transfer_.from, transfer_.to}) {
      if (block.index() >= plan_.blocks.size()) {
        return wrong("names block ", block, ", but the plan has ", plan_.blocks.size());
      }
    }
    const auto what = [&](BlockId id) { return describe_block(graph_, plan_, id); };
    const auto wrong_ends = [&](std::string_view why) {
      return wrong("goes from ", what(transfer_.from), " to ", what(transfer_.to), why);
    };
    if (from().buffer != to().buffer) return wrong_ends(", which stands in for another buffer");
    if (from().part != to().part || from().period != to().period) return wrong_ends(", which holds another part");
    if (from().tier == 0 && to().tier == 0) return wrong_ends(", but both are in memory");
    if (from().tier != 0 && to().tier != 0) return wrong_ends(", but neither is in memory");
    return Done{};
  }

  Status check_time() const {
    if (transfer_.issue > transfer_.wait || transfer_.wait.index() > plan_.order.size()) {
      return wrong("begins before step ", transfer_.issue, " and is waited for before step ", transfer_.wait,
                   " in a plan of ", plan_.order.size(), " steps");
    }
    if (index_ == 0) return Done{};
    const Transfer& previous = plan_.transfers[index_ - 1];
    const auto place = [&](const Transfer& transfer) { return std::pair(transfer.issue, !is_store(transfer)); };
    if (place(transfer_) < place(previous)) {
      return wrong("begins before step ", transfer_.issue, " as a ", is_store(transfer_) ? "store" : "load",
                   ", earlier than the one listed before it");
    }
    return Done{};
  }

  bool lives_for_store() const { return from().begin < transfer_.issue && from().end >= transfer_.wait; }
  bool lives_for_load() const {
    return is_home(from()) || (from().begin <= transfer_.issue && from().end > transfer_.wait);
  }
  bool lives_to_be_filled() const {
    if (is_home(to())) return true;
    const bool ends_with_plan = to().end.index() == plan_.order.size();
    return to().begin <= transfer_.issue && transfer_.issue < to().end && (transfer_.wait < to().end || ends_with_plan);
  }

  const Graph& graph_;
  const Plan& plan_;
  std::size_t index_;
  const Transfer& transfer_;
};

Status check_links(const Plan& plan) {
  for (std::size_t i = 0; i < plan.tiers.size(); ++i) {
    const Link& link = plan.tiers[i].link;
    if (link.store_per_second > Bytes(0) && link.load_per_second > Bytes(0)) continue;
    return Error{ErrorCode::malformed_plan,
                 words(describe_tier(plan, static_cast<std::uint32_t>(i + 1)), " stores ", link.store_per_second,
                       " and loads ", link.load_per_second, " bytes a second; both must be above 0")};
  }
  return Done{};
}

}  // namespace

Status check_transfers(const Graph& graph, const Plan& plan) {
  if (Status status = check_links(plan); !status.ok()) return status;
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    if (Status status = TransferCheck(graph, plan, i).run(); !status.ok()) return status;
  }
  return Done{};
}

}  // namespace lowtide
