// explanation_json.h: an explanation for programs: docs/cli.md says what each field holds.
#pragma once

#include "io/json_object.h"
#include "lowtide/explain.h"

namespace lowtide {

void add_fields(JsonObject& json, const Explanation& explanation);

}  // namespace lowtide
