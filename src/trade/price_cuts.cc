#include "trade/price_cuts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "order/max_flow.h"

namespace lowtide {
namespace {

constexpr double kLeans[] = {0.3, 0.0, 1.0, -0.2, 3.0};
constexpr int kPrices = 48;
constexpr double kLowest = 0.1;  // as a multiple of what an op pays on average for a byte that it touches
constexpr double kHighest = 60.0;

// By item: how late it is first needed, from 0 at the turn to 1 at the end.
std::vector<double> lateness(const Reruns& r) {
  std::vector<double> late(r.num_items(), 1.0);
  for (Position p = static_cast<Position>(r.num_ops()); p-- > r.turn;) {
    for (const Item item : r.takes[p]) {
      late[item] = static_cast<double>(p - r.turn) / static_cast<double>(r.num_ops() - r.turn);
    }
  }
  return late;
}

double average_price(const Reruns& r) {
  std::int64_t bytes = 0;
  for (Position p = 0; p < r.num_ops(); ++p) {
    for (const Item item : r.takes[p]) bytes += r.size[item];
    for (const Item item : r.makes[p]) bytes += r.size[item];
  }
  return bytes > 0 ? static_cast<double>(r.total_cost) / static_cast<double>(bytes) : 0.0;
}

class PriceCuts {
 public:
  explicit PriceCuts(const Reruns& reruns) : r_(reruns), late_(lateness(reruns)), average_(average_price(reruns)) {
    source_ = network_.add_node();
    sink_ = network_.add_node();
    item_node_.assign(r_.num_items(), kNone);
    unit_node_.assign(r_.num_units(), kNone);
    for (Unit unit = 0; unit < r_.num_units(); ++unit) {
      if (r_.members[unit].front() >= r_.turn) continue;
      unit_node_[unit] = network_.add_node();
      network_.add_arc(unit_node_[unit], sink_, r_.repeatable[unit] ? cost_of(unit) : Network::kUnlimited);
    }
    for (Item item = 0; item < r_.num_items(); ++item) {
      if (unit_node_[r_.made_by[item]] == kNone) continue;
      item_node_[item] = network_.add_node();
      if (r_.used_late[item] || r_.kept[item]) network_.add_arc(source_, item_node_[item], Network::kUnlimited);
    }
    for (Unit unit = 0; unit < r_.num_units(); ++unit) {
      if (unit_node_[unit] == kNone) continue;
      for (const Item item : r_.needs[unit]) {
        if (item_node_[item] != kNone) network_.add_arc(unit_node_[unit], item_node_[item], Network::kUnlimited);
      }
    }
    first_price_ = network_.arcs.size();
    for (Item item = 0; item < r_.num_items(); ++item) {
      if (item_node_[item] != kNone) network_.add_arc(item_node_[item], unit_node_[r_.made_by[item]], 0);
    }
  }

  double average() const { return average_; }

  Choice cheapest(Price price, Work& work) {
    std::size_t arc = first_price_;
    for (Item item = 0; item < r_.num_items(); ++item) {
      if (item_node_[item] == kNone) continue;
      const double leaning = 1.0 + price.lean * (late_[item] - (price.lean < 0 ? 0.5 : 0.0));
      const double bytes = static_cast<double>(r_.size[item]);
      network_.arcs[arc++].capacity = std::max<std::int64_t>(1, std::llround(price.a_byte * kScale * bytes * leaning));
    }
    Choice choice(r_.num_items(), Fate::stays);
    const Flow flow = max_flow(network_, source_, sink_, work);
    if (!flow.most) return keep_all(r_);
    for (const Item item : r_.candidates) {
      const bool needed = flow.near_source[item_node_[item]];
      const bool made_again = flow.near_source[unit_node_[r_.made_by[item]]];
      if (!needed || made_again) choice[item] = Fate::dropped;
    }
    return choice;
  }

 private:
  static constexpr Network::Node kNone = std::numeric_limits<Network::Node>::max();
  static constexpr double kScale = 16.0;  // costs and prices are whole numbers

  std::int64_t cost_of(Unit unit) const {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(kScale) * r_.unit_cost[unit]);
  }

  const Reruns& r_;
  std::vector<double> late_;
  double average_;
  Network network_;
  Network::Node source_ = 0;
  Network::Node sink_ = 0;
  std::vector<Network::Node> item_node_;
  std::vector<Network::Node> unit_node_;
  std::size_t first_price_ = 0;  // the arcs from items to their units
};

}  // namespace

std::vector<Choice> choices_by_price(const Reruns& reruns, Work& work) {
  std::vector<Choice> choices = {keep_all(reruns)};
  std::set<Choice> known = {choices.front()};
  PriceCuts cuts(reruns);
  for (const double lean : kLeans) {
    for (int i = 0; i < kPrices && work.left() > 0; ++i) {
      const double part = static_cast<double>(i) / (kPrices - 1);
      const double a_byte = cuts.average() * kLowest * std::pow(kHighest / kLowest, part);
      Choice choice = cuts.cheapest({a_byte, lean}, work);
      if (known.insert(choice).second) choices.push_back(std::move(choice));
    }
  }
  return choices;
}

}  // namespace lowtide
