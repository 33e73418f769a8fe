#include <array>

#include "lowtide/graph.h"

namespace lowtide {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"parameter",       "buffer", "input",    "activation", "gradient",
                                                    "optimizer_state", "output", "constant", "temporary"};

}  // namespace

std::string_view role_name(Role role) {
  return kNames[static_cast<std::size_t>(role)];
}

std::optional<Role> find_role(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

}  // namespace lowtide
