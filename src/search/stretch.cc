#include "search/stretch.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "graph/dependencies.h"
#include "order/algorithms.h"
#include "rewrite/repeats.h"

namespace lowtide {

Lists<Position> first_run_needs(const Graph& graph, const Reruns& reruns) {
  const Dependencies needs = dependencies(graph);
  const Repeats repeats(graph);
  std::vector<Position> position_of(reruns.num_ops());
  for (Position p = 0; p < reruns.num_ops(); ++p) position_of[reruns.order[p].index()] = p;
  std::vector<std::pair<std::size_t, Position>> before;
  for (Position p = 0; p < reruns.num_ops(); ++p) {
    const OpId id = reruns.order[p];
    for (const OpId need : needs.predecessors[id.index()]) before.emplace_back(p, position_of[need.index()]);
    const Unit unit = reruns.unit[p];
    if (!reruns.may_run_again[unit]) continue;
    const auto next = std::ranges::upper_bound(reruns.members[unit], p);
    if (next != reruns.members[unit].end()) before.emplace_back(*next, p);
    const Position until = reruns.until[unit];
    if (until == reruns.num_ops()) continue;
    for (const ValueId read : graph.op(id).reads) {
      const Version version = graph.version(graph.value(read).version);
      const Buffer buffer = graph.buffer(version.buffer);
      if (buffer.planned() || version.index + 1 == buffer.versions.size()) continue;
      const OpId writer = *graph.version(buffer.versions[version.index + 1]).writer;
      const Position changed = position_of[writer.index()];
      if (changed != until && !repeats.skips(id, version.buffer)) before.emplace_back(changed, until);
    }
  }
  return Lists<Position>::group(reruns.num_ops(), before);
}

bool continues_unit(const Reruns& reruns, const Runs& runs, std::uint32_t run) {
  return run > 0 && runs[run].again && runs[run - 1].again && runs[run - 1].op < runs[run].op &&
         reruns.unit[runs[run - 1].op] == reruns.unit[runs[run].op];
}

class StretchMaking {
 public:
  StretchMaking(StretchProblem& made, const Reruns& reruns, const Lists<Position>& needs,
                std::span<const std::int64_t> held)
      : made_(made),
        reruns_(reruns),
        needs_(needs),
        runs_(made.sequence_.runs),
        held_(held),
        newest_(reruns.num_items(), kNone),
        block_of_(reruns.num_ops(), kNone) {}

  void run() {
    cut();
    for (Task task = 1; task <= made_.blocks_.size(); ++task) follow(task);
    list_needs();
    list_buffers();
    find_workspaces();
  }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

  // What an item is from when it is made to when it is made again.
  struct Content {
    Held buffer = kNone;            // none until a task touches it
    Task writer = 0;                // the last so far
    Task user = kNone;              // the last that touches the buffer
    std::uint32_t readers = kNone;  // behind the writer: the last, from which the others are found
  };
  struct Reader {
    Task task;
    std::uint32_t next;
  };

  const StretchProblem::Block& block(Task task) const { return made_.blocks_[task - 1]; }
  bool is_single(Task task) const { return block(task).end - block(task).begin == 1; }
  std::int64_t held_most(Task task) const {
    return *std::max_element(held_.begin() + block(task).begin, held_.begin() + block(task).end);
  }

  void cut() {
    for (std::uint32_t i = made_.begin_; i < made_.end_;) {
      const PlacedRegion* placed = made_.sequence_.region_at(i);
      std::uint32_t end = placed != nullptr ? placed->end : i + 1;
      while (placed == nullptr && end < made_.end_ && continues_unit(reruns_, runs_, end)) ++end;
      made_.blocks_.push_back({i, end});
      i = end;
    }
  }

  void need(Task task, Task before) {
    if (before != task && before != 0) before_.emplace_back(task, before);
  }

  // Behind all that have used it.
  void need_users(Task task, const Content& content) {
    need(task, content.writer);
    for (std::uint32_t i = content.readers; i != kNone; i = readers_[i].next) need(task, readers_[i].task);
  }

  void touch(Content& content, Task task, Item item) {
    if (content.buffer == kNone) {
      content.buffer = static_cast<Held>(made_.problem_.size.size());
      made_.problem_.size.push_back(reruns_.size[item]);
    }
    if (std::exchange(content.user, task) == task) return;
    touched_.emplace_back(task, content.buffer);
    users_.emplace_back(content.buffer, task);
  }

  // As it is now. What was not made in the stretch was there before it.
  Content& content_of(Item item) {
    if (newest_[item] == kNone) {
      newest_[item] = static_cast<std::uint32_t>(contents_.size());
      contents_.push_back({});
      touch(contents_.back(), 0, item);
    }
    return contents_[newest_[item]];
  }

  void follow(Task task) {
    const auto [begin, end] = block(task);
    for (std::uint32_t i = begin; i < end; ++i) {
      const auto [op, again] = runs_[i];
      if (again) {
        follow_again(task, op);
      } else {
        follow_first(task, op);
      }
      follow_items(task, op, held_[i] >= 0);
    }
    const auto is_first = [](const Run& run) { return !run.again; };
    if (std::any_of(runs_.begin() + begin, runs_.begin() + end, is_first)) last_first_ = task;
  }

  void follow_first(Task task, Position op) {
    for (const Position other : needs_[op]) {
      if (block_of_[other] != kNone) need(task, block_of_[other]);
    }
    for (const auto& [until, before] : until_) {
      if (until == op) need(task, before);
    }
    block_of_[op] = task;
  }

  // It stays behind the first run before it, as in a graph that runs it again: earlier, it would be for nothing.
  void follow_again(Task task, Position op) {
    if (block_of_[op] != kNone) need(task, block_of_[op]);
    need(task, last_first_);
    const Position until = reruns_.until[reruns_.unit[op]];
    if (until < reruns_.num_ops()) until_.emplace_back(until, task);
  }

  // What is left out touches nothing, but keeps its place.
  void follow_items(Task task, Position op, bool is_needed) {
    for (const Item item : reruns_.takes[op]) {
      Content& content = content_of(item);
      need(task, content.writer);
      readers_.push_back({task, content.readers});
      content.readers = static_cast<std::uint32_t>(readers_.size() - 1);
      if (is_needed) touch(content, task, item);
    }
    for (const Item item : reruns_.changes[op]) {
      Content& content = content_of(item);
      need_users(task, content);
      content.writer = task;
      content.readers = kNone;
    }
    for (const Item item : reruns_.makes[op]) {
      if (newest_[item] != kNone) need_users(task, contents_[newest_[item]]);
      newest_[item] = static_cast<std::uint32_t>(contents_.size());
      contents_.push_back({.writer = task});
      if (is_needed) touch(contents_.back(), task, item);
    }
    if (!is_needed || !is_single(task)) return;
    for (const ItemReuse& reuse : reruns_.reuses[op]) {
      const TaskReuse same{contents_[newest_[reuse.from]].buffer, contents_[newest_[reuse.to]].buffer};
      reuses_.emplace_back(task, same);
    }
  }

  void list_needs() {
    const std::size_t count = made_.blocks_.size() + 1;
    std::ranges::sort(before_);
    before_.erase(std::unique(before_.begin(), before_.end()), before_.end());
    std::vector<std::pair<std::size_t, OpId>> before, behind;
    before.reserve(before_.size() + count);
    behind.reserve(before_.size() + count);
    const auto add = [&](Task task, Task need) {
      before.emplace_back(task, OpId(need));
      behind.emplace_back(need, OpId(task));
    };
    auto next = before_.begin();
    for (Task task = 1; task < count; ++task) {
      if (next == before_.end() || next->first != task) add(task, 0);
      for (; next != before_.end() && next->first == task; ++next) add(task, next->second);
    }
    made_.problem_.needs = {Lists<OpId>::group(count, before), Lists<OpId>::group(count, behind)};
  }

  void list_buffers() {
    Tasks& problem = made_.problem_;
    const std::size_t count = made_.blocks_.size() + 1;
    problem.touched = Lists<Held>::group(count, touched_);
    problem.users = Lists<Task>::group(problem.size.size(), users_);
    problem.reuses = Lists<TaskReuse>::group(count, reuses_);
    problem.kept.assign(problem.size.size(), false);
    std::vector<std::uint8_t> is_known(reruns_.num_items());
    const auto know = [&](Item item, bool is_needed) {
      if (std::exchange(is_known[item], std::uint8_t{1}) != 0 || newest_[item] == kNone) return;
      const Held buffer = contents_[newest_[item]].buffer;
      if (is_needed && buffer != kNone) problem.kept[buffer] = true;
    };
    for (std::uint32_t i = made_.end_; i < runs_.size(); ++i) {
      if (held_[i] < 0) continue;
      for (const Item item : reruns_.takes[runs_[i].op]) know(item, true);
      for (const Item item : reruns_.makes[runs_[i].op]) know(item, false);
    }
    for (Item item = 0; item < reruns_.num_items(); ++item) know(item, reruns_.kept[item]);
  }

  // A block of several runs holds as much above its operands as the sweep has found.
  void find_workspaces() {
    Tasks& problem = made_.problem_;
    problem.workspace.assign(made_.blocks_.size() + 1, 0);
    for (Task task = 1; task < problem.count(); ++task) {
      if (is_single(task) && held_most(task) >= 0) {
        problem.workspace[task] = reruns_.workspace[runs_[block(task).begin].op];
      }
    }
    const std::vector<std::int64_t> held = held_while(problem, first_to_last(problem.count()));
    for (Task task = 1; task < problem.count(); ++task) {
      if (is_single(task) && held_most(task) >= 0) made_.always_ = held_most(task) - held[task];
    }
    for (Task task = 1; task < problem.count(); ++task) {
      const std::int64_t most = held_most(task);
      if (!is_single(task) && most >= 0) problem.workspace[task] = most - made_.always_ - held[task];
      made_.peak_ = std::max(made_.peak_, most - made_.always_);
    }
  }

  StretchProblem& made_;
  const Reruns& reruns_;
  const Lists<Position>& needs_;
  const Runs& runs_;
  std::span<const std::int64_t> held_;
  std::vector<Content> contents_;
  std::vector<Reader> readers_;
  std::vector<std::uint32_t> newest_;             // by item: its content
  std::vector<Task> block_of_;                    // by position: that has its first run
  std::vector<std::pair<Position, Task>> until_;  // what runs again, and the op that it must come before
  Task last_first_ = 0;
  std::vector<std::pair<Task, Task>> before_;
  std::vector<std::pair<std::size_t, Held>> touched_;
  std::vector<std::pair<std::size_t, Task>> users_;
  std::vector<std::pair<std::size_t, TaskReuse>> reuses_;
};

StretchProblem::StretchProblem(const Reruns& reruns, const Lists<Position>& needs, const Sequence& sequence,
                               std::span<const std::int64_t> held, std::uint32_t begin, std::uint32_t end)
    : sequence_(sequence), begin_(begin), end_(end) {
  StretchMaking(*this, reruns, needs, held).run();
}

Sequence StretchProblem::in_order(const Order& order) const {
  Sequence made{{sequence_.runs.begin(), sequence_.runs.begin() + begin_}, sequence_.regions};
  made.runs.reserve(sequence_.runs.size());
  for (const OpId task : order) {
    if (task.index() == 0) continue;
    const auto [begin, end] = blocks_[task.index() - 1];
    const auto placed = std::ranges::find(sequence_.regions, begin, &PlacedRegion::begin);
    if (placed != sequence_.regions.end()) {
      PlacedRegion& moved = made.regions[static_cast<std::size_t>(placed - sequence_.regions.begin())];
      moved.begin = static_cast<std::uint32_t>(made.runs.size());
      moved.end = moved.begin + end - begin;
    }
    made.runs.insert(made.runs.end(), sequence_.runs.begin() + begin, sequence_.runs.begin() + end);
  }
  made.runs.insert(made.runs.end(), sequence_.runs.begin() + end_, sequence_.runs.end());
  std::ranges::sort(made.regions, {}, &PlacedRegion::begin);
  return made;
}

}  // namespace lowtide
