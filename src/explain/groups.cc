#include "explain/groups.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/words.h"

namespace lowtide {
namespace {

constexpr std::string_view kConversions[] = {"aten._to_copy", "aten::_to_copy"};

// The parts between the dots.
std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dot = path.find('.');
    parts.push_back(path.substr(0, dot));
    if (dot == path.npos) return parts;
    path.remove_prefix(dot + 1);
  }
}

bool is_number(std::string_view part) {
  return !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
}

// "h.3.attn" as "h.*.attn".
std::string pattern_of(std::string_view path) {
  std::string pattern;
  for (const std::string_view part : parts_of(path)) {
    pattern += words(pattern.empty() ? "" : ".", is_number(part) ? "*" : part);
  }
  return pattern;
}

// Paths of one pattern: "h.*.attn (0 to 11)"; numbers that are the same in all of them stay.
std::string common_path(const std::vector<std::string_view>& paths) {
  struct Range {
    unsigned low = std::numeric_limits<unsigned>::max();
    unsigned high = 0;
  };
  std::vector<Range> ranges(parts_of(paths.front()).size());
  for (const std::string_view path : paths) {
    const std::vector<std::string_view> parts = parts_of(path);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      unsigned number = 0;
      if (is_number(parts[i])) std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), number);
      ranges[i] = {std::min(ranges[i].low, number), std::max(ranges[i].high, number)};
    }
  }
  std::string pattern, spans;
  const std::vector<std::string_view> parts = parts_of(paths.front());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [low, high] = ranges[i];
    pattern += words(i == 0 ? "" : ".", low < high ? "*" : parts[i]);
    if (low < high) spans += words(spans.empty() ? " (" : ", ", low, " to ", high);
  }
  return spans.empty() ? pattern : words(pattern, spans, ")");
}

class Grouping {
 public:
  explicit Grouping(const Scene& scene) : scene_(scene), graph_(scene.graph) {
    for (OpId id(0); id.index() < graph_.num_ops(); id = id.next()) has_backward_ |= graph_.op(id).flags.backward;
  }

  std::vector<Group> made() {
    for (const BufferId id : alive_at(graph_, scene_.order, scene_.lives, scene_.peak)) {
      if (scene_.is_in_memory(id, scene_.peak)) add(id);
    }
    for (BufferId id(0); id.index() < graph_.num_buffers(); id = id.next()) {
      if (!graph_.buffer(id).planned() && scene_.is_in_memory(id, scene_.peak)) add(id);
    }
    std::vector<Group> groups;
    for (auto& [key, members] : members_) groups.push_back(group_of(std::get<0>(key), std::move(members)));
    const Op op = graph_.op(scene_.order[scene_.peak.index()]);
    if (op.workspace > Bytes(0)) groups.push_back({workspace_of(op), {}});
    std::ranges::stable_sort(groups, std::ranges::greater{}, [](const Group& group) { return group.holder.size; });
    return groups;
  }

 private:
  // What tensors that are alike have in common: kind, op, source, modules, name, bytes of one.
  using Key = std::tuple<std::string, std::string_view, std::string_view, std::string, std::string_view, Bytes>;

  std::optional<OpId> maker_of(BufferId id) const { return graph_.version(graph_.buffer(id).versions.front()).writer; }

  bool has_reader(BufferId id, bool backward) const {
    return std::ranges::any_of(graph_.buffer(id).versions, [&](VersionId version) {
      return std::ranges::any_of(graph_.version(version).readers,
                                 [&](OpId reader) { return graph_.op(reader).flags.backward == backward; });
    });
  }

  std::string kind_of(BufferId id) const {
    const Buffer buffer = graph_.buffer(id);
    std::string role(role_name(buffer.role));
    std::ranges::replace(role, '_', ' ');
    if (!buffer.planned()) return buffer.role == Role::gradient ? "kept gradient" : role;
    if (!has_backward_ || buffer.role != Role::activation) return role;
    if (!graph_.op(*maker_of(id)).flags.backward) return has_reader(id, true) ? "saved for backward" : "temporary";
    return has_reader(id, false) ? "gradient" : "temporary of backward";
  }

  void add(BufferId id) {
    const Buffer buffer = graph_.buffer(id);
    if (buffer.size == Bytes(0)) return;
    Key key{kind_of(id), {}, {}, {}, {}, {}};
    if (buffer.role == Role::input || buffer.role == Role::output) {
      std::get<4>(key) = buffer.name;
    } else if (buffer.planned() && std::get<0>(key) != "gradient") {
      const Op maker = graph_.op(*maker_of(id));
      key = {std::get<0>(key), maker.name, maker.source, pattern_of(maker.module), {}, buffer.size};
    }
    members_[key].push_back(id);
  }

  Group group_of(const std::string& kind, std::vector<BufferId> members) const {
    std::ranges::stable_sort(members, std::ranges::greater{}, [&](BufferId id) { return graph_.buffer(id).size; });
    const BufferId first = members.front();
    const Buffer buffer = graph_.buffer(first);
    Holder holder{};
    holder.kind = kind;
    holder.name = buffer.name;
    holder.count = members.size();
    holder.largest = buffer.size;
    show_value(first, holder);
    std::vector<std::string_view> modules;
    for (const BufferId id : members) {
      holder.size += graph_.buffer(id).size;
      holder.is_operand |= scene_.is_operand_at_peak(id);
      if (const auto maker = maker_of(id)) modules.push_back(graph_.op(*maker).module);
    }
    const auto same_pattern = [&](std::string_view path) { return pattern_of(path) == pattern_of(modules.front()); };
    if (modules.size() == members.size() && std::ranges::all_of(modules, same_pattern)) {
      holder.modules = common_path(modules);
    }
    const std::optional<OpId> maker = maker_of(first);
    if (maker && buffer.role != Role::optimizer_state) {  // once it is made, that is there for ever
      holder.made_by = place_of(scene_, scene_.step_of[maker->index()]);
    }
    if (buffer.planned() && !buffer.kept) describe_end(members, holder);
    describe_copy(first, holder);
    return {std::move(holder), std::move(members)};
  }

  // The largest view of its first content.
  void show_value(BufferId id, Holder& holder) const {
    const auto found = values().find(id);
    if (found == values_.end()) return;
    const Value value = graph_.value(found->second);
    holder.dtype = value.dtype;
    holder.shape.assign(value.shape.begin(), value.shape.end());
  }

  const std::map<BufferId, ValueId>& values() const {
    if (!values_.empty()) return values_;
    const auto elements = [&](ValueId id) {
      double count = 1;
      for (const std::int64_t size : graph_.value(id).shape) count *= static_cast<double>(size);
      return count;
    };
    for (ValueId id(0); id.index() < graph_.num_values(); id = id.next()) {
      const BufferId buffer = graph_.version(graph_.value(id).version).buffer;
      if (!scene_.is_in_memory(buffer, scene_.peak)) continue;
      const auto [place, is_new] = values_.try_emplace(buffer, id);
      if (!is_new && elements(id) > elements(place->second)) place->second = id;
    }
    return values_;
  }

  void describe_end(const std::vector<BufferId>& members, Holder& holder) const {
    const auto end_of = [&](BufferId id) { return scene_.lives.lives[id.index()].end; };
    const auto [first, last] = std::ranges::minmax_element(members, {}, end_of);
    holder.last_use = place_of(scene_, StepIndex(end_of(*last).index() - 1));
    if (end_of(*first) < end_of(*last)) holder.earlier = StepIndex(end_of(*first).index() - 1);
  }

  void describe_copy(BufferId id, Holder& holder) const {
    const std::optional<OpId> maker = maker_of(id);
    if (!maker) return;
    const Op op = graph_.op(*maker);
    const auto converts = [&](std::string_view name) { return op.name.starts_with(name); };
    if (op.reads.empty() || std::ranges::none_of(kConversions, converts)) return;
    const Value original = graph_.value(op.reads.front());
    const BufferId from = graph_.version(original.version).buffer;
    if (original.dtype == holder.dtype || !scene_.is_in_memory(from, scene_.peak)) return;
    holder.copy_of = words(original.dtype, " ", graph_.buffer(from).name);
  }

  Holder workspace_of(const Op& op) const {
    Holder holder{};
    holder.kind = "workspace";
    holder.name = words("workspace of ", op.name);
    holder.count = 1;
    holder.size = holder.largest = op.workspace;
    holder.modules = op.module;
    holder.made_by = holder.last_use = place_of(scene_, scene_.peak);
    holder.is_operand = true;
    return holder;
  }

  const Scene& scene_;
  const Graph& graph_;
  bool has_backward_ = false;
  std::map<Key, std::vector<BufferId>> members_;
  mutable std::map<BufferId, ValueId> values_;  // by buffer alive at the peak: its largest view
};

}  // namespace

OpPlace place_of(const Scene& scene, StepIndex step) {
  const Op op = scene.graph.op(scene.order[step.index()]);
  return {step, std::string(op.name), std::string(op.source), std::string(op.module)};
}

std::vector<Group> groups_at_peak(const Scene& scene) {
  return Grouping(scene).made();
}

}  // namespace lowtide
