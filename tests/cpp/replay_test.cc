// The addresses that eager iterations are served: never one where something is alive, whatever is asked.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lowtide/layout.h"
#include "replay/script.h"
#include "replay/server.h"
#include "replay/trace.h"
#include "unwrap.h"

namespace lowtide::replay {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;

TracedRequest traced(std::int64_t bytes, std::uint32_t begin, std::uint32_t end) {
  return {bytes, begin, end, false};
}

TraceEvent asks(std::uintptr_t address, std::int64_t bytes) {
  return {reinterpret_cast<const void*>(address), bytes};
}
TraceEvent gives_back(std::uintptr_t address) {
  return {reinterpret_cast<const void*>(address), TraceEvent::kReleased};
}

TEST(Trace, CountsLivesInRequests) {
  const std::vector<TraceEvent> events = {asks(1, 100), asks(2, 200), gives_back(1), asks(1, 100), gives_back(1)};
  EXPECT_THAT(requests_in(events),
              ElementsAre(FieldsAre(100, 0u, 2u, false), FieldsAre(200, 1u, 3u, true), FieldsAre(100, 2u, 3u, false)));
}

TEST(Trace, PassesOverWhatWasAskedForEarlier) {
  const std::vector<TraceEvent> events = {gives_back(7), asks(1, 8), gives_back(7)};
  EXPECT_THAT(requests_in(events), ElementsAre(FieldsAre(8, 0u, 1u, true)));
}

TEST(Trace, AnAddressThatComesAgainWasReleasedUnseen) {
  const std::vector<TraceEvent> events = {asks(1, 8), asks(1, 16), gives_back(1)};
  EXPECT_THAT(requests_in(events), ElementsAre(FieldsAre(8, 0u, 2u, true), FieldsAre(16, 1u, 2u, false)));
}

std::vector<std::uint32_t> owners_of(const Script& script, std::size_t line) {
  std::vector<std::uint32_t> lines;
  for (const Script::Owner& owner : script.owners(script.line(line))) lines.push_back(owner.line);
  return lines;
}

TEST(Script, KnowsTheOwnersBefore) {
  const std::vector<Script::Request> requests = {{64, 0}, {64, 64}, {32, 0}, {64, 64}, {128, 0}, {64, 64}};
  const Script script(requests);
  EXPECT_THAT(owners_of(script, 0), IsEmpty());
  EXPECT_THAT(owners_of(script, 1), IsEmpty());
  EXPECT_THAT(owners_of(script, 2), ElementsAre(0));
  EXPECT_THAT(owners_of(script, 3), ElementsAre(1));
  EXPECT_THAT(owners_of(script, 4), ElementsAre(0, 2, 3));
  EXPECT_THAT(owners_of(script, 5), ElementsAre(4));
  EXPECT_EQ(script.arena_bytes(), 128);
}

TEST(Script, HandsAnOutsideLinesPlaceToTheOwnerBeforeIt) {
  const std::vector<Script::Request> requests = {{64, 0}, {64, 0}, {128, 0}};
  Script script(requests);
  const std::vector<std::uint32_t> second = {1};
  script.move_outside(second);
  EXPECT_EQ(script.line(1).slot, Script::kNoSlot);
  EXPECT_THAT(owners_of(script, 2), ElementsAre(0));
}

TEST(Script, ManyEqualRequestsHaveFewOwners) {
  std::vector<Script::Request> requests;
  for (std::int64_t i = 0; i < 10'000; ++i) requests.push_back({64, i % 100 * 64});
  requests.push_back({6400, 0});
  const Script script(requests);
  EXPECT_EQ(script.owners(script.line(500)).size(), 1u);
  EXPECT_EQ(script.owners(script.line(10'000)).size(), 100u);
}

TEST(Server, ServesTheScript) {
  const std::vector<Script::Request> requests = {{64, 0}, {100, 64}, {8, kOutside}, {128, 0}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  for (int iteration = 0; iteration < 3; ++iteration) {
    server.begin({&script, 1}, Suits::same_size);
    EXPECT_EQ(server.serve(64), 0);
    EXPECT_EQ(server.serve(100), 64);
    EXPECT_EQ(server.serve(8), kOutside);
    server.release(64);
    server.release(0);
    EXPECT_EQ(server.serve(128), 0);
    server.release(0);
    EXPECT_THAT(server.end(), IsEmpty());
    EXPECT_EQ(server.tally().hits, 3);
    EXPECT_EQ(server.tally().misses, 0);
    EXPECT_EQ(server.tally().departed_at, Tally::kNowhere);
    EXPECT_EQ(server.tally().highest_end, 164);
  }
}

TEST(Server, RefusesAPlaceWhoseOwnerIsThere) {
  const std::vector<Script::Request> requests = {{64, 0}, {64, 0}, {64, 64}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.serve(64), 64) << "0 is not released; another place is free";
  EXPECT_EQ(server.tally().departed_at, 1);
  EXPECT_EQ(server.serve(64), kMiss) << "now none is";
}

TEST(Server, DoesNotTrustAnOwnerThatMissed) {
  // The second line would cover the first one's place; it misses. The third has only the second as owner before.
  const std::vector<Script::Request> requests = {{64, 0}, {64, 0}, {64, 0}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.serve(64), kMiss);
  EXPECT_EQ(server.serve(64), kMiss);
  server.release(0);
}

TEST(Server, LooksForPlacesBetweenWhatIsAlive) {
  const std::vector<Script::Request> requests = {{64, 0}, {128, 64}, {64, 192}, {64, 0}, {128, 0}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.serve(128), 64);
  EXPECT_EQ(server.serve(64), 192);
  server.release(64);
  EXPECT_EQ(server.serve(64), 64) << "0 is not released";
  EXPECT_EQ(server.serve(128), kMiss) << "64 bytes are left between 128 and 192";
  server.release(64);
  server.release(0);
  server.release(192);
  EXPECT_THAT(server.end(), IsEmpty());
}

TEST(Server, GoesOnInTheVariantThatTheRequestsFollow) {
  const std::vector<Script::Request> a = {{64, 0}, {128, 64}, {32, 0}, {512, 192}};
  const std::vector<Script::Request> b = {{64, 0}, {128, 64}, {256, 192}, {32, 0}, {32, 448}};
  const std::vector<Script::Request> c = {{64, 0}, {128, 64}, {256, 192}, {32, 0}, {32, 448}, {16, 512}};
  const std::vector<std::shared_ptr<Script>> variants = {std::make_shared<Script>(a), std::make_shared<Script>(b),
                                                         std::make_shared<Script>(c)};
  Server server;
  server.begin(variants, Suits::same_size);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.serve(128), 64);
  server.release(0);
  EXPECT_EQ(server.serve(256), 192) << "as in b";
  EXPECT_EQ(server.serve(32), 0);
  EXPECT_EQ(server.serve(32), 448);
  EXPECT_EQ(server.serve(16), 512) << "as in c, which is longer";
  for (const std::int64_t offset : {64, 192, 0, 448, 512}) server.release(offset);
  EXPECT_EQ(server.tally().departed_at, Tally::kNowhere);
  EXPECT_EQ(server.tally().hits, 6);
  EXPECT_THAT(server.end(), IsEmpty());

  server.begin(variants, Suits::same_size);
  server.serve(64);
  server.serve(128);
  server.serve(256);
  EXPECT_THAT(server.end(),
              ElementsAre(FieldsAre(variants[1].get(), 0u, 0, 64), FieldsAre(variants[1].get(), 1u, 64, 128),
                          FieldsAre(variants[1].get(), 2u, 192, 256)));
}

TEST(Server, AVariantThatBeginsElsewhereIsNone) {
  const std::vector<Script::Request> a = {{64, 0}, {128, 64}};
  const std::vector<Script::Request> b = {{64, 128}, {256, 192}};
  const std::vector<std::shared_ptr<Script>> variants = {std::make_shared<Script>(a), std::make_shared<Script>(b)};
  Server server;
  server.begin(variants, Suits::same_size);
  server.serve(64);
  EXPECT_EQ(server.serve(256), kMiss);
  EXPECT_EQ(server.tally().departed_at, 1);
}

TEST(Server, FindsItsWayBackBehindARequestMore) {
  std::vector<Script::Request> requests;
  for (std::int64_t i = 0; i < 100; ++i) requests.push_back({64 * (1 + i % 7), i * 448});
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  for (std::size_t i = 0; i < 100; ++i) {
    if (i == 20) server.serve(9999);
    EXPECT_EQ(server.serve(requests[i].bytes), requests[i].offset) << i;
  }
  EXPECT_EQ(server.tally().hits, 100);
  EXPECT_EQ(server.tally().misses, 1);
  EXPECT_EQ(server.tally().departed_at, 20);
}

TEST(Server, AShorterLineOfTheSameSlotIsNotInTheWay) {
  const std::vector<Script::Request> requests = {{128, 0}, {64, 0}, {64, 64}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(128), 0);
  server.release(0);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.serve(64), 64);
  EXPECT_EQ(server.tally().departed_at, Tally::kNowhere);
}

TEST(Server, ServesSmallerOnesInPlace) {
  const std::vector<Script::Request> requests = {{128, 0}, {256, 128}, {128, 0}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::smaller);
  EXPECT_EQ(server.serve(100), 0);
  EXPECT_EQ(server.serve(200), 128);
  server.release(0);
  EXPECT_EQ(server.serve(64), 0);
  EXPECT_EQ(server.tally().misses, 0);
  EXPECT_EQ(server.tally().departed_at, Tally::kNowhere);
}

TEST(Server, KeepsWhatEscaped) {
  const std::vector<Script::Request> requests = {{64, 0}, {64, 64}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  server.serve(64);
  server.serve(64);
  server.release(64);
  EXPECT_THAT(server.end(), ElementsAre(FieldsAre(script.get(), 0u, 0, 64)));

  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), 64) << "0 is not free, but this is";
  EXPECT_EQ(server.serve(64), kMiss);
  server.release(64);
  server.release(0);  // now it is let go
  EXPECT_THAT(server.escaped(), IsEmpty());
  server.end();

  const std::vector<std::uint32_t> first = {0};
  script->move_outside(first);
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), kOutside);
  EXPECT_EQ(server.serve(64), 64);
  EXPECT_EQ(server.tally().misses, 0);
}

TEST(Server, KnowsWhatIsAliveAtAPlace) {
  const auto script = std::make_shared<Script>(std::vector<Script::Request>{{64, 0}, {32, 64}});
  Server server;
  EXPECT_EQ(server.bytes_at(0), 0);
  server.begin({&script, 1}, Suits::same_size);
  server.serve(64);
  server.serve(32);
  EXPECT_EQ(server.bytes_at(0), 64);
  EXPECT_EQ(server.bytes_at(64), 32);
  EXPECT_EQ(server.bytes_at(32), 0);
  server.release(64);
  EXPECT_EQ(server.bytes_at(64), 0);
  server.end();
  EXPECT_EQ(server.bytes_at(0), 64) << "it has escaped";
}

TEST(Server, ForgetsEscapedOnesToWhoeverAsks) {
  const std::vector<Script::Request> requests = {{64, 0}};
  const auto script = std::make_shared<Script>(requests);
  Server server;
  server.begin({&script, 1}, Suits::same_size);
  server.serve(64);
  server.end();
  EXPECT_THAT(server.forget_escaped(), ElementsAre(FieldsAre(script.get(), 0u, 0, 64)));
  server.begin({&script, 1}, Suits::same_size);
  EXPECT_EQ(server.serve(64), 0);
}

TEST(Server, AScriptIsUsedOnlyIfItServesWhatWasTraced) {
  const std::vector<TracedRequest> requests = {traced(64, 0, 2), traced(64, 1, 2)};
  const std::vector<Script::Request> apart = {{64, 0}, {64, 64}};
  const std::vector<Script::Request> together = {{64, 0}, {64, 0}};
  EXPECT_TRUE(serves(std::make_shared<Script>(apart), requests));
  EXPECT_FALSE(serves(std::make_shared<Script>(together), requests));
}

TEST(Server, ServesNothingBetweenIterations) {
  Server server;
  EXPECT_EQ(server.serve(64), kMiss);
  server.release(0);
  EXPECT_THAT(server.end(), IsEmpty());
}

// A random iteration, as code makes it: most blocks live shortly, some for long, some are kept.
std::vector<TraceEvent> random_events(std::mt19937_64& random, std::size_t requests) {
  std::vector<TraceEvent> events;
  std::vector<std::uintptr_t> alive;
  for (std::size_t i = 0; i < requests; ++i) {
    while (!alive.empty() && random() % 2 == 0) {
      const std::size_t which = random() % 3 == 0 ? random() % alive.size() : alive.size() - 1;
      events.push_back(gives_back(alive[which]));
      alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(which));
    }
    events.push_back(asks(i + 1, static_cast<std::int64_t>(1 + random() % 1000)));
    alive.push_back(i + 1);
  }
  while (alive.size() > random() % 4) {
    events.push_back(gives_back(alive.back()));
    alive.pop_back();
  }
  return events;
}

std::shared_ptr<Script> packed(const std::vector<TracedRequest>& requests) {
  std::vector<LayoutItem> items;
  for (const TracedRequest& request : requests) {
    const auto bytes = static_cast<std::uint64_t>(request.stays ? 0 : request.bytes);
    items.push_back({StepIndex(request.begin), StepIndex(request.end), Bytes(bytes)});
  }
  const NamedLayout named = unwrap(lay_out(items, {.algorithm = "greedy_by_size"}));
  std::vector<Script::Request> lines;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto offset = static_cast<std::int64_t>(named.layout.offsets[i].count());
    lines.push_back({requests[i].bytes, requests[i].stays ? kOutside : offset});
  }
  return std::make_shared<Script>(lines);
}

// Plays events to a server, and watches every byte that it gives away.
class Watched {
 public:
  explicit Watched(Server* server) : server_(server) {}

  void play(const TraceEvent& event) {
    const auto key = reinterpret_cast<std::uintptr_t>(event.address);
    if (event.bytes == TraceEvent::kReleased) {
      const auto found = where_.find(key);
      if (found == where_.end()) return;
      server_->release(found->second);
      alive_.erase(found->second);
      where_.erase(found);
      return;
    }
    const std::int64_t offset = server_->serve(event.bytes);
    if (offset < 0) return;
    for (const auto& [begin, bytes] : alive_) {
      ASSERT_TRUE(offset + event.bytes <= begin || begin + bytes <= offset) << "two tensors share bytes";
    }
    alive_[offset] = event.bytes;
    where_[key] = offset;
  }

  // What was not released keeps its place; its key is not used again.
  void next_iteration(std::uintptr_t shift) {
    std::map<std::uintptr_t, std::int64_t> renamed;
    for (const auto& [key, offset] : where_) renamed[key + shift] = offset;
    where_ = renamed;
  }

  void release_all() {
    for (const auto& [key, offset] : where_) server_->release(offset);
    where_.clear();
    alive_.clear();
  }

 private:
  Server* server_;
  std::map<std::int64_t, std::int64_t> alive_;  // offset, bytes
  std::map<std::uintptr_t, std::int64_t> where_;
};

TEST(Server, ServesEveryRequestOfTheIterationThatWasTraced) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<TraceEvent> events = random_events(random, 1 + random() % 200);
    const std::vector<TracedRequest> requests = requests_in(events);
    const std::shared_ptr<Script> script = packed(requests);
    EXPECT_TRUE(serves(script, requests));
    Server server;
    Watched watched(&server);
    for (int iteration = 0; iteration < 3; ++iteration) {
      server.begin({&script, 1}, Suits::same_size);
      for (const TraceEvent& event : events) watched.play(event);
      EXPECT_EQ(server.tally().misses, 0);
      EXPECT_THAT(server.end(), IsEmpty());
    }
  }
}

// Requests dropped, added, resized and swapped, releases late or never, other scripts in turn.
TEST(Server, NeverGivesAByteTwiceWhateverIsAsked) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const std::vector<TraceEvent> one = random_events(random, 1 + random() % 120);
    const std::vector<TraceEvent> other = random_events(random, 1 + random() % 120);
    std::vector<TraceEvent> parted(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(one.size() / 2));
    for (const TraceEvent& event : other) {
      parted.push_back(
          {reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(event.address) + 250), event.bytes});
    }
    const std::vector<std::shared_ptr<Script>> scripts = {packed(requests_in(one)), packed(requests_in(other)),
                                                          packed(requests_in(parted))};
    Server server;
    Watched watched(&server);
    std::uintptr_t shift = 1000;
    for (int iteration = 0; iteration < 8; ++iteration) {
      const std::size_t first = random() % scripts.size();
      server.begin(std::span(scripts).subspan(first), random() % 2 == 0 ? Suits::same_size : Suits::smaller);
      std::vector<TraceEvent> events = random() % 3 == 0 ? one : random() % 2 == 0 ? other : parted;
      for (std::size_t change = random() % 6; change > 0; --change) {
        const std::size_t at = random() % events.size();
        const std::size_t to = random() % events.size();
        switch (random() % 4) {
          case 0:
            events.erase(events.begin() + static_cast<std::ptrdiff_t>(at));
            break;
          case 1:
            events.insert(events.begin() + static_cast<std::ptrdiff_t>(at), asks(500 + change, 64));
            break;
          case 2:
            std::swap(events[at], events[to]);
            break;
          default:
            if (events[at].bytes != TraceEvent::kReleased) events[at].bytes = 1 + events[at].bytes * 3 / 2;
        }
        if (events.empty()) break;
      }
      for (const TraceEvent& event : events) {
        watched.play(event);
        if (HasFatalFailure()) return;
      }
      server.end();
      watched.next_iteration(shift);
      shift *= 2;
    }
    watched.release_all();
    EXPECT_THAT(server.escaped(), IsEmpty());
  }
}

}  // namespace
}  // namespace lowtide::replay
