#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

#include "base/words.h"
#include "lowtide/budget.h"
#include "lowtide/explain.h"

namespace lowtide {
namespace {

constexpr std::string_view kIndent = "\n             ";
constexpr std::size_t kWidth = 110;

std::string decimal(const char* format, double number) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}

std::string percent(double part, double whole) {
  return decimal("%.1f %%", whole == 0 ? 0 : 100 * part / whole);
}

std::string share(Bytes part, Bytes whole) {
  return percent(static_cast<double>(part.count()), static_cast<double>(whole.count()));
}

std::string milliseconds(Nanos time) {
  return decimal("%.3f ms", static_cast<double>(time.count()) / 1e6);
}

std::string right_aligned(std::string text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// Overloads of that name go without saying.
std::string_view op_name(std::string_view name) {
  constexpr std::string_view kUsual = ".default";
  if (name.ends_with(kUsual)) name.remove_suffix(kUsual.size());
  return name;
}

std::string place(const OpPlace& place, std::string_view modules) {
  if (place.source.empty() && modules.empty()) return std::string(op_name(place.name));
  const std::string_view separator = place.source.empty() || modules.empty() ? "" : ", ";
  return words(op_name(place.name), " (", place.source, separator, modules.empty() ? "" : "in ", modules, ")");
}

std::string tensor(const Holder& holder) {
  std::string text = holder.count == 1 ? "" : words(holder.count, " tensors of up to ", format_bytes(holder.largest));
  if (holder.count > 1 && holder.size.count() == holder.largest.count() * holder.count) {
    text = words(holder.count, " x ", format_bytes(holder.largest));
  }
  const bool has_name = !holder.made_by || holder.kind == "output" || holder.kind == "kept gradient";
  if (has_name) text += words(text.empty() ? "" : ": ", holder.name);
  if (holder.dtype.empty()) return text;
  text += words(text.empty() ? "" : ", ", holder.dtype, " [");
  for (std::size_t i = 0; i < holder.shape.size(); ++i) text += words(i == 0 ? "" : ", ", holder.shape[i]);
  return text + "]";
}

std::string why_alive(const Holder& holder) {
  if (holder.kind == "workspace") return "";
  if (!holder.last_use) {
    if (holder.kind == "kept gradient") return words(kIndent, "alive     until zero_grad() in the next step");
    if (holder.kind == "output") return words(kIndent, "alive     as long as the caller keeps it");
    return "";
  }
  std::string steps = words("step ", holder.last_use->step);
  if (holder.earlier) steps = words("steps ", *holder.earlier, " to ", holder.last_use->step);
  return words(kIndent, "alive     until ", place(*holder.last_use, holder.last_use->module), " at ", steps);
}

std::string gains(const Explanation& told, const Holder& holder) {
  std::string text;
  if (holder.recompute) {
    const auto time = static_cast<double>(holder.recompute->time.count());
    text += words(kIndent, "recompute ", format_bytes(holder.recompute->gain), " less");
    if (holder.recompute->count < holder.count) text += words(" with ", holder.recompute->count, " of them");
    text += told.has_times ? words(", for ", milliseconds(holder.recompute->time), " more (",
                                   percent(time, static_cast<double>(told.time.count())), " of the operators' time)")
                           : ", in a time that is not known";
  }
  if (holder.swap) {
    const double rate = static_cast<double>(told.swap_per_second.count()) / 1e9;
    text += words(kIndent, "swap      ", format_bytes(holder.swap->gain),
                  " less: ", milliseconds(holder.swap->transfer), " of transfers at ", decimal("%.1f", rate), " GB/s, ",
                  told.has_times ? words("unused for ", milliseconds(holder.swap->idle), " or more")
                                 : "unused for an unknown time");
  }
  return text;
}

// In lines of about `width`, those after the first indented.
std::string wrapped(std::string_view text, std::size_t first, std::size_t width) {
  std::string lines;
  std::size_t column = first;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (column + end + 1 > width && column > kIndent.size()) {
      lines += kIndent;
      column = kIndent.size() - 1;
    } else if (!lines.empty()) {
      lines += ' ';
      ++column;
    }
    lines += text.substr(0, end);
    column += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string describe(const Explanation& told, const Holder& holder) {
  std::string text =
      words("\n", right_aligned(format_bytes(holder.size), 10), "  ", right_aligned(share(holder.size, told.total), 6),
            "  ", holder.kind, holder.is_operand ? ", in use at the peak" : "");
  if (const std::string what = tensor(holder); !what.empty()) text += words(kIndent, what);
  if (holder.made_by) text += words(kIndent, "made by   ", place(*holder.made_by, holder.modules));
  if (!holder.copy_of.empty()) text += words(kIndent, "copy of   ", holder.copy_of, ", which is alive too");
  return text + why_alive(holder) + gains(told, holder);
}

}  // namespace

std::string summary(const Explanation& told) {
  if (!told.at) return words("peak      ", format_bytes(told.total), " resident; no operator runs");
  std::string text =
      words("peak      ", format_bytes(told.total), " = ", format_bytes(told.resident), " resident + ",
            format_bytes(told.total - told.resident), " of the step\nat        ", place(*told.at, told.at->module),
            ", step ", told.at->step, " of ", told.steps, "\norder     ", told.order,
            told.is_plan ? ", as planned"
                         : ", each tensor until its last use: eager PyTorch, if no variable holds one for longer",
            "\nalive     ", told.alive, " tensors");
  if (told.away > Bytes(0)) text += words(" in memory, and ", format_bytes(told.away), " swapped out");
  for (const Holder& holder : told.holders) text += words("\n", describe(told, holder));
  if (told.groups > told.holders.size()) {
    Bytes shown;
    for (const Holder& holder : told.holders) shown += holder.size;
    text += words("\n\n", right_aligned(format_bytes(told.total - shown), 10), "  ",
                  right_aligned(share(told.total - shown, told.total), 6), "  ", told.groups - told.holders.size(),
                  " smaller groups");
  }
  text += "\n\nnext      each alone; gains do not add up";
  for (const Advice& advice : told.next) {
    const std::string gain = advice.gain == Bytes(0) ? "" : words("-", format_bytes(advice.gain));
    const std::string text_of = advice.is_bound && !gain.empty() ? words("at most: ", advice.words) : advice.words;
    text += words("\n", right_aligned(gain, 11), "  ", wrapped(text_of, kIndent.size() - 1, kWidth));
  }
  return text;
}

}  // namespace lowtide
