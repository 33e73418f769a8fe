// Any bytes as buffers to be packed, CSV or JSON: they may not crash, hang or take much memory. What is read must say
// the same when it is written as CSV and read again, and as JSON if its ids are UTF-8; and what is packed must be so
// that verify_layout() accepts it.
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "io/utf8.h"
#include "lowtide/buffers.h"
#include "lowtide/verify.h"

namespace lowtide {
namespace {

constexpr std::size_t kMostToPack = 100;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

void take(std::string_view bytes) {
  const Result<std::vector<BufferRow>> rows = parse_buffers(bytes);
  if (!rows.ok()) return;
  const std::string csv = buffers_text(*rows);
  const Result<std::vector<BufferRow>> again = parse_buffers(csv);
  expect(again.ok() && buffers_text(*again) == csv, "buffers are what was written of them as CSV");
  if (is_utf8(csv)) {
    const Result<std::vector<BufferRow>> other = parse_buffers(buffers_text(*rows, BufferFormat::json));
    expect(other.ok() && buffers_text(*other) == csv, "buffers are what was written of them as JSON");
  }
  if (rows->size() > kMostToPack) return;
  const std::vector<LayoutItem> items = to_items(*rows);
  const Result<NamedLayout> made = lay_out(items, {.steps = 10'000'000});
  expect(!made.ok() || verify_layout(items, made->layout).ok(), "verify_layout() accepts what lay_out() made");
}

}  // namespace
}  // namespace lowtide

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lowtide::take({reinterpret_cast<const char*>(data), size});
  return 0;
}
