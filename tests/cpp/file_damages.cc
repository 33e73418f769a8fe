#include "file_damages.h"

#include <zstd.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/words.h"

namespace lowtide {
namespace {

using Random = std::mt19937_64;

std::size_t below(std::size_t limit, Random& random) {
  return random() % std::max<std::size_t>(limit, 1);
}

std::size_t place(const std::string& text, Random& random) {
  return below(text.size(), random);
}

// Where one of `wanted` stands, from a random place on; the end of the text if there is none.
std::size_t find(const std::string& text, const char* wanted, Random& random) {
  return std::min(text.find_first_of(wanted, place(text, random)), text.size());
}

// The number at or after a random place: its begin and end.
std::pair<std::size_t, std::size_t> number(const std::string& text, Random& random) {
  const std::size_t begin = find(text, "0123456789", random);
  return {begin, std::min(text.find_first_not_of("0123456789", begin), text.size())};
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

// Puts `piece` many times where a list begins, so that the list is huge.
void fill_list(std::string& text, const std::string& piece, std::size_t bytes, Random& random) {
  const std::size_t open = find(text, "[", random);
  if (open == text.size()) return;
  text.insert(open + 1, repeated(piece, bytes));
}

struct Damage {
  const char* name;
  void (*apply)(std::string& text, Random& random);
};

// To the text, before it is compressed.
const Damage kTextDamages[] = {
    {"truncated", [](std::string& t, Random& r) { t.resize(place(t, r)); }},
    {"truncated_at_structure", [](std::string& t, Random& r) { t.resize(find(t, "[]{},:\"\n", r)); }},
    {"truncated_after_structure",
     [](std::string& t, Random& r) { t.resize(std::min(t.size(), find(t, "[]{},:\"\\", r) + 1)); }},
    {"bit_flipped",
     [](std::string& t, Random& r) {
       for (std::size_t i = 1 + below(3, r); i > 0 && !t.empty(); --i) {
         t[place(t, r)] ^= static_cast<char>(1U << below(8, r));
       }
     }},
    {"deleted", [](std::string& t, Random& r) { t.erase(place(t, r), 1 + below(20, r)); }},
    {"duplicated",
     [](std::string& t, Random& r) {
       const std::string piece = t.substr(place(t, r), 1 + below(100, r));
       t.insert(place(t, r), piece);
     }},
    {"swapped", [](std::string& t, Random& r) { std::swap(t[place(t, r)], t[place(t, r)]); }},
    {"line_duplicated",
     [](std::string& t, Random& r) {
       const std::size_t line = find(t, "\n", r);
       t.insert(line, t.substr(line, t.find('\n', line + 1) - line));
     }},
    {"line_deleted",
     [](std::string& t, Random& r) {
       const std::size_t line = find(t, "\n", r);
       t.erase(line, t.find('\n', line + 1) - line);
     }},
    {"structure_replaced",
     [](std::string& t, Random& r) {
       const std::size_t at = find(t, "[]{},:\"", r);
       if (at < t.size()) t[at] = "[]{},:\" \\0"[below(10, r)];
     }},
    {"number_replaced",
     [](std::string& t, Random& r) {
       static constexpr const char* kExtremes[] = {"-1",
                                                   "0",
                                                   "2147483647",
                                                   "2147483648",
                                                   "4294967294",
                                                   "4294967295",
                                                   "4294967296",
                                                   "1e308",
                                                   "1.5",
                                                   "-0",
                                                   "01",
                                                   "+1",
                                                   "9223372036854775807",
                                                   "9223372036854775808",
                                                   "\"x\"",
                                                   "null",
                                                   "true",
                                                   "[]",
                                                   "{}",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "1e999",
                                                   "0x10",
                                                   "-9223372036854775808",
                                                   "99999999999999999999999999",
                                                   "NaN"};
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, kExtremes[below(std::size(kExtremes), r)]);
     }},
    {"number_changed",
     [](std::string& t, Random& r) {
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, std::to_string(below(20, r)));
     }},
    {"key_duplicated",
     [](std::string& t, Random& r) {
       const std::size_t open = find(t, "{", r);
       const std::size_t end = t.find_first_of(",}", open);
       if (end < t.size()) t.insert(end, words(",", t.substr(open + 1, end - open - 1)));
     }},
    {"field_deleted",
     [](std::string& t, Random& r) {
       const std::size_t begin = t.find_first_of("{,", place(t, r));
       if (begin >= t.size()) return;
       const std::size_t end = std::min(t.find_first_of(",}", begin + 1), t.size());
       t.erase(begin + 1, end - begin - (t[begin] == '{' && t[end] == ',' ? 0 : 1));
     }},
    {"value_replaced",
     [](std::string& t, Random& r) {
       static constexpr const char* kValues[] = {"\"x\"", "7",       "-7.5", "true",      "null",
                                                 "[]",    "[0,[1]]", "{}",   "{\"a\":1}", ""};
       const std::size_t colon = t.find("\":", place(t, r));
       if (colon >= t.size()) return;
       const std::size_t end = std::min(t.find_first_of(",}]", colon), t.size());
       t.replace(colon + 2, end - colon - 2, kValues[below(std::size(kValues), r)]);
     }},
    {"key_misspelt",
     [](std::string& t, Random& r) {
       const std::size_t colon = t.find("\":", place(t, r));
       if (colon < t.size()) t.insert(colon, "s");
     }},
    {"not_utf8",
     [](std::string& t, Random& r) { t.insert(place(t, r), 1 + below(3, r), static_cast<char>(128 + below(128, r))); }},
    {"control_characters",
     [](std::string& t, Random& r) { t.insert(place(t, r), 1, static_cast<char>(below(32, r))); }},
    {"escapes", [](std::string& t, Random& r) { t.insert(find(t, "\"", r), "\\ud800"); }},
    {"nested",
     [](std::string& t, Random& r) { fill_list(t, below(2, r) != 0 ? "[" : "{\"a\":", 1 + below(100'000, r), r); }},
    {"nested_and_closed",
     [](std::string& t, Random& r) {
       const std::size_t depth = 1 + below(2'000, r);
       const auto [begin, end] = number(t, r);
       t.replace(begin, end - begin, std::string(depth, '[') + std::string(depth, ']'));
     }},
    {"huge_list",
     [](std::string& t, Random& r) {
       static constexpr const char* kRows[] = {"0,",
                                               "{\"size\":1},",
                                               "{\"name\":\"\"},",
                                               "{\"op\":0},",
                                               "[],",
                                               "{\"buffer\":0,\"begin\":0,\"end\":1},",
                                               "{\"buffer\":0},",
                                               "{\"from\":0,\"to\":1,\"issue\":0,\"wait\":0},",
                                               "{\"store_per_second\":1,\"load_per_second\":1},",
                                               ","};
       fill_list(t, kRows[below(std::size(kRows), r)], 1 + below(500'000, r), r);
     }},
    {"huge_text", [](std::string& t,
                     Random& r) { t.insert(find(t, "\"", r), words("\"", std::string(1 + below(500'000, r), 'x'))); }},
    {"huge_number",
     [](std::string& t, Random& r) { t.insert(number(t, r).first, std::string(1 + below(100'000, r), '9')); }},
    {"spaces", [](std::string& t, Random& r) { t.insert(place(t, r), std::string(1 + below(500'000, r), ' ')); }},
    {"other_version",
     [](std::string& t, Random& r) {
       const std::size_t version = t.find("\"version\":");
       if (version < t.size()) t.replace(version + 10, 1, std::to_string(below(2, r) != 0 ? r() : below(4, r)));
     }},
    {"nothing", [](std::string&, Random&) {}},
};

// To compressed bytes.
const Damage kByteDamages[] = {
    {"bytes_truncated", [](std::string& t, Random& r) { t.resize(place(t, r)); }},
    {"bytes_flipped", [](std::string& t, Random& r) { t[place(t, r)] ^= static_cast<char>(1U << below(8, r)); }},
    {"header_changed", [](std::string& t, Random& r) { t[below(12, r)] = static_cast<char>(below(256, r)); }},
    {"bytes_deleted", [](std::string& t, Random& r) { t.erase(place(t, r), 1 + below(8, r)); }},
    {"frame_repeated", [](std::string& t, Random&) { t += t; }},
    {"bytes_appended",
     [](std::string& t, Random& r) { t.append(1 + below(100, r), static_cast<char>(below(256, r))); }},
};

// Texts that compress to a few kilobytes: more than is read of such a file, or just not.
std::string bomb(std::string text, Random& random) {
  static constexpr const char* kRows[] = {
      " ", "[", "0,", ",", "{\"size\":1},", "{\"name\":\"a\"},", "{\"op\":0},", "x", "\\\"", "{\"buffer\":0},"};
  const std::size_t bytes = (random() % 2 == 0 ? 20 : 30) << 20;
  const std::string filling(1 + below(800, random), "x \\"[below(3, random)]);
  switch (random() % 4) {
    case 0:  // a list of many elements
      fill_list(text, kRows[below(std::size(kRows), random)], bytes, random);
      break;
    case 1:  // a list of many long elements
      fill_list(text, words("{\"size\":1,\"name\":\"", filling, "\"},"), bytes, random);
      break;
    case 2:  // a list of many elements far apart
      fill_list(text, words("{\"size\":1}", std::string(filling.size(), ' '), ","), bytes, random);
      break;
    default:  // anything, anywhere
      text.insert(find(text, "[]{}:,\"", random) + random() % 2, repeated(filling, bytes));
  }
  return text;
}

void apply_one(std::span<const Damage> damages, SpoiledFile& file, Random& random) {
  if (file.bytes.empty()) return;
  const Damage& damage = damages[below(damages.size(), random)];
  damage.apply(file.bytes, random);
  file.damage += words(" ", damage.name);
}

void compress(SpoiledFile& file, Random& random) {
  file.bytes = compressed(file.bytes, random() % 2 == 0);
  file.damage += " compressed";
  if (random() % 2 == 0) apply_one(kByteDamages, file, random);
}

}  // namespace

SpoiledFile spoiled(std::string text, Random& random) {
  SpoiledFile file{std::move(text), {}};
  for (std::size_t i = 1 + below(2, random); i > 0; --i) apply_one(kTextDamages, file, random);
  if (random() % 3 == 0) compress(file, random);
  return file;
}

SpoiledFile spoiled_to_bomb(std::string text, Random& random) {
  SpoiledFile file{bomb(std::move(text), random), " bomb"};
  compress(file, random);
  return file;
}

std::string compressed(const std::string& text, bool with_checksum) {
  ZSTD_CCtx* const context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, with_checksum ? 1 : 0);
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  bytes.resize(ZSTD_compress2(context, bytes.data(), bytes.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return bytes;
}

}  // namespace lowtide
