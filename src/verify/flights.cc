#include "verify/flights.h"

namespace lowtide {

Flights::Flights(const Plan& plan)
    : plan_(plan), flights_(plan.transfers.size()), readers_(plan.blocks.size()), filled_(plan.blocks.size()) {}

void Flights::begin(std::size_t transfer, Flight flight) {
  const Transfer& moved = plan_.transfers[transfer];
  flights_[transfer] = flight;
  ++readers_[moved.from.index()];
  filled_[moved.to.index()] = true;
}

Flights::Flight Flights::end(std::size_t transfer) {
  const Transfer& moved = plan_.transfers[transfer];
  --readers_[moved.from.index()];
  filled_[moved.to.index()] = false;
  return flights_[transfer];
}

}  // namespace lowtide
