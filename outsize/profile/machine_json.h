// The machine's JSON form: docs/formats/machine.md. Reading what `to_json` wrote gives an equal
// machine.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/result.h"
#include "outsize/profile/machine.h"

namespace outsize {

std::string to_json(const Machine& machine);
// Strict; the machine that comes out has passed check_machine.
Result<Machine> machine_from_json(std::string_view text);

}  // namespace outsize
