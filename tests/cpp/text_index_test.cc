#include "lowtide/text_index.h"

#include <string>

#include "base/words.h"
#include "gtest/gtest.h"

namespace lowtide {
namespace {

TEST(TextIndex, EachTextIsStoredOnce) {
  TextIndex index;
  Lists<char> texts;
  const auto text = [](std::size_t i) { return i == 0 ? std::string() : words("layers.", i, ".weight"); };
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 100'000; ++i) ASSERT_EQ(index.intern(text(i), texts), i);
  }
  ASSERT_EQ(texts.size(), 100'000);
  for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(std::string(texts[i].begin(), texts[i].end()), text(i));
}

}  // namespace
}  // namespace lowtide
