// fingerprint.h: 128 bits that tell graphs apart.
//
// Two graphs that differ only in names of buffers, in sources and modules, or in the order in which buffers, values and
// independent ops were added, have the same fingerprint. Whatever else differs gives another: operators, sizes, dtypes,
// shapes, roles, residence, what is kept, flags, workspaces, costs, streams, who reads and writes which version, edges,
// and the order of random ops and of collectives.
//
// Each op is hashed together with all it comes from, then with all that comes of it; the fingerprint is the sum over
// all ops, versions and values, and so does not depend on their order. This is what a graph looks like from each of its
// places, which in contrived cases is the same for two different graphs: equal fingerprints suggest that a plan fits,
// but only verify() says so.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lowtide/graph.h"

namespace lowtide {

struct Fingerprint {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  auto operator<=>(const Fingerprint&) const = default;
};

// Linear: a million ops in about a second.
Fingerprint fingerprint(const Graph& graph);

// 32 hexadecimal digits, and back.
std::string fingerprint_text(const Fingerprint& fingerprint);
std::optional<Fingerprint> parse_fingerprint(std::string_view text);

}  // namespace lowtide
