#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "io/utf8.h"
#include "lowtide/budget.h"
#include "packing_pictures.h"

namespace lowtide::cli {
namespace {

constexpr std::size_t kMostRectangles = 20'000;  // browsers become slow beyond
constexpr unsigned kTicks = 4;                   // parts of an axis

// The picture in pixels, and in it the place of the arena.
constexpr double kWidth = 1100;
constexpr double kHeight = 640;
constexpr double kLeft = 100;
constexpr double kRight = 1080;
constexpr double kTop = 40;
constexpr double kBottom = 580;

std::string decimal(double number) {
  std::array<char, 48> digits{};
  std::snprintf(digits.data(), digits.size(), "%.2f", number);
  return digits.data();
}

// As the text of an XML element; what XML cannot hold is replaced.
std::string escaped(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string xml;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max(length, std::size_t{1}));
    if (character == "<") {
      xml += "&lt;";
    } else if (character == "&") {
      xml += "&amp;";
    } else if (character == ">") {
      xml += "&gt;";
    } else if (length == 0 || static_cast<unsigned char>(character[0]) < 0x20 || character == "\xEF\xBF\xBE" ||
               character == "\xEF\xBF\xBF") {
      xml += kReplacement;
    } else {
      xml += character;
    }
    text.remove_prefix(character.size());
  }
  return xml;
}

// From moments and addresses to pixels.
struct Scale {
  Window window;
  std::uint64_t highest;

  double x(std::uint64_t moment) const {
    return kLeft + (kRight - kLeft) * static_cast<double>(moment - window.first) / window.width();
  }
  double y(Bytes address) const {
    return kBottom - (kBottom - kTop) * static_cast<double>(address.count()) / static_cast<double>(highest);
  }
  double area(const BufferRow& row) const {
    return (x(row.upper) - x(row.lower)) * static_cast<double>(row.size.count());
  }
};

// The rows to draw: the largest, in the order of the table.
std::vector<std::size_t> largest(std::span<const BufferRow> rows, const Scale& scale) {
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (is_visible(rows[i])) drawn.push_back(i);
  }
  if (drawn.size() <= kMostRectangles) return drawn;
  std::ranges::stable_sort(drawn, std::greater<>{}, [&](std::size_t i) { return scale.area(rows[i]); });
  drawn.resize(kMostRectangles);
  std::ranges::sort(drawn);
  return drawn;
}

std::string label(double x, double y, std::string_view anchor, std::string_view text) {
  return words("<text x=\"", decimal(x), "\" y=\"", decimal(y), "\" text-anchor=\"", anchor, "\">", escaped(text),
               "</text>\n");
}

std::string rule(double x1, double y1, double x2, double y2, std::string_view style) {
  return words("<line x1=\"", decimal(x1), "\" y1=\"", decimal(y1), "\" x2=\"", decimal(x2), "\" y2=\"", decimal(y2),
               "\" ", style, "/>\n");
}

std::string rectangle(const BufferRow& row, std::size_t index, const Scale& scale) {
  const double top = scale.y(*row.offset + row.size);
  // Turning the hue by the golden angle keeps neighbours in the table apart.
  const std::uint64_t hue = index * 13751 / 100 % 360;
  return words("<rect x=\"", decimal(scale.x(row.lower)), "\" y=\"", decimal(top), "\" width=\"",
               decimal(scale.x(row.upper) - scale.x(row.lower)), "\" height=\"", decimal(scale.y(*row.offset) - top),
               "\" fill=\"hsl(", hue, ",60%,70%)\"><title>", escaped(row.id), ": ", row.size, " bytes, alive [",
               row.lower, ", ", row.upper, "), offset ", *row.offset, "</title></rect>\n");
}

// Where a tick is on an axis from 0 to `whole`, which may be all of 64 bits: no floating-point number holds that.
std::uint64_t at_tick(std::uint64_t whole, unsigned tick) {
  return whole / kTicks * tick + whole % kTicks * tick / kTicks;
}

std::string axes(const Scale& scale) {
  constexpr std::string_view kAxis = "stroke=\"#333\"";
  std::string svg = rule(kLeft, kTop, kLeft, kBottom, kAxis) + rule(kLeft, kBottom, kRight, kBottom, kAxis);
  for (unsigned tick = 0; tick <= kTicks; ++tick) {
    const Bytes address(at_tick(scale.highest, tick));
    const std::uint64_t moment = scale.window.first + at_tick(scale.window.last - scale.window.first, tick);
    svg += label(kLeft - 8, scale.y(address) + 4, "end", format_bytes(address));
    const std::string_view anchor = tick == 0 ? "start" : tick == kTicks ? "end" : "middle";
    svg += label(scale.x(moment), kBottom + 18, anchor, std::to_string(moment));
  }
  return svg + label((kLeft + kRight) / 2, kBottom + 40, "middle", "time") +
         label(kLeft - 8, kTop - 18, "end", "address");
}

}  // namespace

std::string packing_svg(const PackedBuffers& packed, const Mark& mark) {
  const std::uint64_t highest = std::max({packed.arena.count(), mark.height.count(), std::uint64_t{1}});
  const Scale scale{window_of(packed.rows), highest};
  const std::vector<std::size_t> drawn = largest(packed.rows, scale);
  std::string title = words(packed.rows.size(), " buffers in ", format_bytes(packed.arena));
  if (drawn.size() < packed.rows.size()) title += words(", the ", drawn.size(), " largest are drawn");

  std::string svg =
      words("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", decimal(kWidth), " ", decimal(kHeight),
            "\" width=\"", decimal(kWidth), "\" height=\"", decimal(kHeight),
            "\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  svg += label((kLeft + kRight) / 2, kTop - 18, "middle", title);
  svg += "<g stroke=\"#333\" stroke-width=\"0.3\">\n";
  for (const std::size_t i : drawn) svg += rectangle(packed.rows[i], i, scale);
  svg += "</g>\n" + axes(scale);
  const double height = scale.y(mark.height);
  svg += rule(kLeft, height, kRight, height, "stroke=\"#c00\" stroke-dasharray=\"6 4\"");
  svg += label(kRight, height - 5, "end", words(mark.name, " ", format_bytes(mark.height)));
  return svg + "</svg>\n";
}

}  // namespace lowtide::cli
