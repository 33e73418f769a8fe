#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/words.h"
#include "commands.h"
#include "io/disk.h"
#include "io/formats.h"
#include "lowtide/budget.h"
#include "lowtide/buffers.h"
#include "lowtide/published.h"
#include "lowtide/verify.h"
#include "packing_pictures.h"
#include "search_limits.h"

namespace lowtide::cli {
namespace {

constexpr std::size_t kCulpritsNamed = 5;

using Rows = std::vector<BufferRow>;

// The most bytes alive at any moment.
Bytes most_alive(std::span<const LayoutItem> items) {
  std::size_t steps = 0;
  for (const LayoutItem& item : items) steps = std::max(steps, item.end.index() + 1);
  std::vector<Bytes> born(steps);
  std::vector<Bytes> gone(steps);
  for (const LayoutItem& item : items) {
    born[item.begin.index()] += item.size;
    gone[item.end.index()] += item.size;
  }
  Bytes alive;
  Bytes most;
  for (std::size_t step = 0; step < steps; ++step) {
    alive = alive + born[step] - gone[step];
    most = std::max(most, alive);
  }
  return most;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// Takes the number of a row off the front of `text`, and gives that row's id.
std::optional<std::string_view> take_id(std::string_view& text, const Rows& rows) {
  std::size_t item = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), item);
  if (failure != std::errc() || item >= rows.size()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return rows[item].id;
}

// The packer knows items by their number: "item 3" becomes "buffer 'x'", and "items 3 and 4" "buffers 'x' and 'y'".
std::string with_ids(std::string_view text, const Rows& rows) {
  std::string named;
  while (!text.empty()) {
    const bool several = take(text, "items ");
    if (!several && !take(text, "item ")) {
      named += text.front();
      text.remove_prefix(1);
      continue;
    }
    named += several ? "buffers " : "buffer ";
    if (const auto id = take_id(text, rows)) named += words("'", *id, "'");
    if (!several || !take(text, " and ")) continue;
    named += " and ";
    if (const auto id = take_id(text, rows)) named += words("'", *id, "'");
  }
  return named;
}

Error with_ids(Error error, const Rows& rows) {
  error.message = with_ids(error.message, rows);
  std::vector<Culprit>& culprits = error.infeasible.culprits;
  for (std::size_t i = 0; i < culprits.size(); ++i) {
    std::string_view number = culprits[i].name;
    take(number, "item ");
    culprits[i] = {std::string(take_id(number, rows).value_or(number)), culprits[i].size, "buffer"};
    if (i >= kCulpritsNamed) continue;
    error.message += words(i == 0 ? ": " : ", ", "'", culprits[i].name, "' ", format_bytes(culprits[i].size));
  }
  if (culprits.size() > kCulpritsNamed) {
    error.message += words(" and ", culprits.size() - kCulpritsNamed, " more");
  }
  return error;
}

// By how much the arena is above what is proven to be needed.
double gap(const NamedLayout& made) {
  if (made.bound == Bytes(0)) return 0;
  return static_cast<double>((made.layout.arena - made.bound).count()) / static_cast<double>(made.bound.count());
}

std::string amount(Bytes bytes) {
  return words(format_bytes(bytes), " (", bytes, " bytes)");
}

std::string summary(const Rows& rows, Bytes peak, const NamedLayout& made, std::optional<Bytes> capacity) {
  std::array<char, 48> percent{};
  std::snprintf(percent.data(), percent.size(), "%.2f %% above the bound", 100 * gap(made));
  const bool proven = made.layout.arena == made.bound;
  std::string text = words("packed    ", rows.size(), " buffers by ", made.algorithm, "\npeak      ", amount(peak),
                           " alive at once\narena     ", amount(made.layout.arena), ", ",
                           proven ? "proven smallest" : percent.data(), "\nbound     ", amount(made.bound));
  if (capacity) text += words("\ncapacity  ", amount(*capacity), ", kept");
  return text;
}

Status write(const std::string& path, const std::string& text) {
  const std::optional<Uninterrupted> until_written = uninterrupted_write(path);
  return write_text(path, [&](const Drain& drain) { drain(text); });
}

Status save(const Rows& rows, const std::string& path) {
  const std::optional<Uninterrupted> until_written = uninterrupted_write(path);
  return save_buffers(rows, path);
}

// Writes what is asked for; the report says so.
Status write_files(const PackArguments& arguments, const PackedBuffers& packed, const Rows& rows, const Mark& mark,
                   Report& report) {
  if (arguments.output) {
    if (const Status saved = save(rows, *arguments.output); !saved.ok()) return saved;
    report.text += "\nwritten   " + *arguments.output;
  }
  if (arguments.svg) {
    if (const Status saved = write(*arguments.svg, packing_svg(packed, mark)); !saved.ok()) return saved;
    report.text += "\ndrawn     " + *arguments.svg;
  }
  return Done{};
}

void add_path(JsonObject& json, std::string_view key, const std::optional<std::string>& path) {
  path ? json.add(key, *path) : json.add(key, nullptr);
}

}  // namespace

Result<Report> run(const PackArguments& arguments, Progress& progress) {
  LayoutOptions options{.algorithm = arguments.algorithm, .others = published().layouts, .steps = arguments.work};
  set_search_limits(arguments, options);
  if (arguments.capacity) {
    const Result<Bytes> capacity = parse_bytes(*arguments.capacity);
    if (!capacity.ok()) return about("--capacity", capacity.error());
    options.capacity = *capacity;
  }
  progress.stage("reading");
  Result<Rows> rows = load_buffers(arguments.buffers);
  if (!rows.ok()) return rows.error();
  progress.stage("packing");
  const std::vector<LayoutItem> items = to_items(*rows);
  const auto start = std::chrono::steady_clock::now();
  const Result<NamedLayout> made = lay_out(items, options);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (!made.ok()) return with_ids(made.error(), *rows);
  if (const Status right = verify_layout(items, made->layout); !right.ok()) return with_ids(right.error(), *rows);
  for (std::size_t i = 0; i < rows->size(); ++i) (*rows)[i].offset = made->layout.offsets[i];

  const Bytes peak = most_alive(items);
  Report report{summary(*rows, peak, *made, options.capacity), JsonObject()};
  if (arguments.output || arguments.svg) progress.stage("writing");
  const PackedBuffers packed{*rows, made->layout.arena};
  const Mark mark = options.capacity ? Mark{"capacity", *options.capacity} : Mark{"bound", made->bound};
  if (const Status done = write_files(arguments, packed, *rows, mark, report); !done.ok()) return done.error();
  if (arguments.map) report.text += "\n\n" + packing_map(packed);

  report.json.add("ok", true).add("file", arguments.buffers);
  add_path(report.json, "output", arguments.output);
  add_path(report.json, "svg", arguments.svg);
  report.json.add("buffers", rows->size())
      .add("arena_bytes", made->layout.arena)
      .add("peak_bytes", peak)
      .add("bound_bytes", made->bound)
      .add("gap", gap(*made))
      .add("proven", made->layout.arena == made->bound)
      .add("algorithm", made->algorithm)
      .add("seconds", taken.count());
  return report;
}

}  // namespace lowtide::cli
