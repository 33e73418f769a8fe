// moment.h: what any plan pays at least at the moment at which an op runs for the first time, if memory, compute and a
// link have prices.
//
// Look at the moment at which op t begins for the first time. What must run before it has run, what must run after it
// has not. Every content that is needed afterwards is then in one of three places: in memory; or it is made again
// afterwards, by ops whose second run takes compute; or it is away, and then its store is over and its load has not
// begun. The least that any mix of these pays is one cheapest cut:
//
//   source --unlimited--> t and its descendants; what is kept
//   op --unlimited--> each content that it reads        op --compute--> sink, if it must run before t
//   content --memory, or link if that is less--> the op that writes it
//   what t reads: content --memory--> sink
//
// The clock shows m when t begins, and T when the plan ends. Before m lie all stores of what is away and what must run
// before t; behind m lie t, its descendants, what runs again for them and, once t is over, the loads of what is away.
// So the link takes at most m before and T - m behind, and so does compute. Weigh the link's time with a before and b
// behind the moment, and compute's with 1 - a and 1 - b: then m cancels out, and for all prices, a and b from 0 to 1
//
//   T + price * bytes >= a * link before + (1 - a) * compute before + b * link behind + (1 - b) * compute behind
//                        + price * bytes >= the cut
//
// Ops that may run on either side are paid for on the side on which the cut has them. A resident buffer that may leave
// has its home in memory, and is paid for there, or in the tier: then it is in memory only around its uses. If it is
// away at the moment, ops before have had it loaded, and what they wrote is stored; ops behind have it loaded, and what
// they write is stored. One that t uses is in memory.
//
// On a duplex link, stores and loads have clocks of their own. Stores before the moment and loads behind it count.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "graph/dependencies.h"
#include "lowtide/graph.h"
#include "lowtide/limit.h"
#include "lowtide/link.h"
#include "order/max_flow.h"
#include "rewrite/repeats.h"
#include "trade/reruns.h"

namespace lowtide {

// Which buffers may leave memory, and how.
struct Leaving {
  std::vector<bool> may;  // by buffer
  Link link;
};

struct Prices {
  double a_byte;           // in units of cost
  double link_before = 0;  // the weights a and b above
  double link_behind = 0;
};

// What a mix takes. With prices, a plane: no cut at any prices is above it.
struct Mix {
  double bytes = 0;
  double link_before = 0;
  double link_behind = 0;
  double compute_before = 0;
  double compute_behind = 0;

  double at(const Prices& prices) const;
};

// What any plan pays at least, and a mix that pays that.
struct LeastPaid {
  double amount;
  Mix mix;
};

class Moment {
 public:
  // `cost` is by op. Without `leaving`, nothing leaves, and link weights are 0.
  Moment(const Graph& graph, const Dependencies& needs, const Repeats& repeats, std::span<const std::int64_t> cost,
         const Leaving* leaving, OpId op);

  // For the bytes of planned buffers, workspace, and resident buffers that may leave. None if the work is not enough.
  std::optional<LeastPaid> least_paid(const Prices& prices, Work& work);

 private:
  static constexpr Network::Node kNone = std::numeric_limits<Network::Node>::max();

  struct Compute {
    Network::Node op;
    double cost;
    std::size_t if_before;  // the arc that is cut; none where it runs before in any case
    std::size_t if_behind;
  };
  struct Content {
    Network::Node node;
    Network::Node until;  // where its arc goes
    double bytes;
    double store;
    double load;
    bool may_leave;
    std::size_t arc;
  };
  struct Home {
    double bytes;
    double link_before;  // while it is away at the moment
    double link_behind;
    double load;         // more behind, if an op there uses it
    Network::Node node;  // kNone if no op can need a load
    std::size_t arc;
  };

  void add_ops(const Graph& graph, const Repeats& repeats, std::span<const std::int64_t> cost, const Leaving* leaving,
               OpId moment);
  void add_contents(const Graph& graph, const Leaving* leaving, OpId moment);
  void add_homes(const Graph& graph, const Leaving& leaving, OpId moment);
  Network::Node node_of(VersionId version);

  Network network_;
  Network::Node source_ = 0;
  Network::Node sink_ = 0;
  std::vector<std::uint8_t> when_;      // by op
  std::vector<Network::Node> ops_;      // by op
  std::vector<Network::Node> content_;  // by version
  std::vector<VersionId> read_now_;
  std::vector<Compute> computes_;
  std::vector<Content> contents_;
  std::vector<Home> homes_;
  Mix always_;  // that every plan takes
};

// The ops that hold the most in the given order, and those around the turn.
std::vector<Position> fullest_moments(const Reruns& reruns);

}  // namespace lowtide
