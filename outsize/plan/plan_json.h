// The plan's JSON form: docs/formats/plan.md. Reading what `to_json` wrote gives an equal plan.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/result.h"
#include "outsize/plan/plan.h"

namespace outsize {

// One residency, instruction or border item per line.
std::string to_json(const Plan& plan);
// Strict about form only: whether ids exist, waits point backwards and so on is check_plan's to
// say.
Result<Plan> plan_from_json(std::string_view text);

}  // namespace outsize
