// text_index.h: finds a text among many, so that each distinct one is stored once.
//
// A graph of a million ops has millions of names. A map of strings would allocate each of them once more; this is one
// table of (hash, number) with half of its slots free, and looks for a text from its hash's slot on:
//
//   texts     0 "w"   1 "relu"   2 "x"
//   slots     [ relu's hash, 1 ]  [ - ]  [ w's hash, 0 ]  [ x's hash, 2 ]  [ - ] ...
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lowtide/lists.h"

namespace lowtide {

class TextIndex {
 public:
  // The number of `text` in `texts`, to which it is added if it is new. Nobody else may add to `texts`.
  std::uint32_t intern(std::string_view text, Lists<char>& texts);

 private:
  static constexpr std::uint32_t kFree = 0xFFFFFFFF;

  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t number = kFree;
  };

  void grow();

  std::vector<Slot> slots_;  // as many as a power of two
};

}  // namespace lowtide
