// clocks.h: when transfers are over, and how long the plan takes. The judge's own count: see link.h for the picture.
#pragma once

#include <vector>

#include "lowtide/plan.h"

namespace lowtide {

class Clocks {
 public:
  explicit Clocks(const Plan& plan);

  // Compute is busy for so long, or waits until then.
  void run(Nanos cost) { now_ += cost; }
  void wait_until(Nanos time) { now_ = time > now_ ? time : now_; }
  Nanos now() const { return now_; }

  // Gives `tier`, from 1, the next transfer, and answers when that is over.
  Nanos begin_store(std::uint32_t tier, Bytes size);
  Nanos begin_load(std::uint32_t tier, Bytes size);

 private:
  // When a link is free again. One that is not duplex has one time for both directions.
  struct Free {
    Nanos to_store;
    Nanos to_load;
  };
  Nanos begin(Nanos& free, Nanos duration) const;

  const Plan& plan_;
  Nanos now_;
  std::vector<Free> free_;  // by tier, from 0
};

}  // namespace lowtide
