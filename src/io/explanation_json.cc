#include "io/explanation_json.h"

#include <optional>

namespace lowtide {
namespace {

template <typename Held, typename Describe>
void add_if_there(JsonObject& json, std::string_view key, const std::optional<Held>& held, const Describe& describe) {
  if (held) {
    json.add(key, describe(*held));
  } else {
    json.add(key, nullptr);
  }
}

JsonObject place_json(const OpPlace& place) {
  return JsonObject()
      .add("step", place.step)
      .add("op", place.name)
      .add("source", place.source)
      .add("module", place.module);
}

JsonObject holder_json(const Holder& holder) {
  JsonObject json;
  json.add("kind", holder.kind)
      .add("name", holder.name)
      .add("count", holder.count)
      .add("bytes", holder.size)
      .add("largest_bytes", holder.largest)
      .add("dtype", holder.dtype)
      .add("shape", holder.shape)
      .add("modules", holder.modules)
      .add("in_use", holder.is_operand)
      .add("copy_of", holder.copy_of);
  add_if_there(json, "made_by", holder.made_by, place_json);
  add_if_there(json, "last_use", holder.last_use, place_json);
  add_if_there(json, "recompute", holder.recompute, [](const RecomputeGain& gain) {
    return JsonObject().add("count", gain.count).add("gain_bytes", gain.gain).add("time_ns", gain.time);
  });
  add_if_there(json, "swap", holder.swap, [](const SwapGain& gain) {
    return JsonObject().add("gain_bytes", gain.gain).add("transfer_ns", gain.transfer).add("idle_ns", gain.idle);
  });
  return json;
}

}  // namespace

void add_fields(JsonObject& json, const Explanation& explanation) {
  std::vector<JsonObject> holders, next;
  for (const Holder& holder : explanation.holders) holders.push_back(holder_json(holder));
  for (const Advice& advice : explanation.next) {
    next.push_back(
        JsonObject().add("gain_bytes", advice.gain).add("at_most", advice.is_bound).add("advice", advice.words));
  }
  json.add("order", explanation.order)
      .add("steps", explanation.steps)
      .add("total_bytes", explanation.total)
      .add("resident_bytes", explanation.resident)
      .add("away_bytes", explanation.away)
      .add("tensors", explanation.alive)
      .add("groups", explanation.groups)
      .add("has_times", explanation.has_times)
      .add("time_ns", explanation.time)
      .add("operand_bytes", explanation.operands)
      .add("without_operands_bytes", explanation.without_operands)
      .add("swap_bytes_per_second", explanation.swap_per_second);
  add_if_there(json, "planned_bytes", explanation.planned, [](Bytes bytes) { return bytes; });
  add_if_there(json, "peak_op", explanation.at, place_json);
  json.add("holders", holders).add("next", next);
}

}  // namespace lowtide
