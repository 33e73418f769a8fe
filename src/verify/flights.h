// flights.h: the transfers under way, and which blocks they keep others from.
//
// From its issue until it has been waited for, a transfer reads one block and fills another, at moments that nobody
// knows:
//
//                      from       to
//   an op may          read it    do nothing with it
//   a transfer may     read it    do nothing with it
#pragma once

#include <vector>

#include "lowtide/plan.h"

namespace lowtide {

class Flights {
 public:
  explicit Flights(const Plan& plan);

  bool is_filled(BlockId block) const { return filled_[block.index()]; }
  bool is_read(BlockId block) const { return readers_[block.index()] > 0; }

  struct Flight {
    VersionId content;
    Nanos over;  // when it ends
  };
  // The transfer of that index begins, which fills a block that none reads or fills; and then it is waited for.
  void begin(std::size_t transfer, Flight flight);
  Flight end(std::size_t transfer);

 private:
  const Plan& plan_;
  std::vector<Flight> flights_;       // by transfer, once it has begun
  std::vector<std::size_t> readers_;  // by block: how many transfers read it
  std::vector<bool> filled_;          // by block: one fills it
};

}  // namespace lowtide
