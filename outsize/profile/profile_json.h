// The profile's JSON form: docs/formats/profile.md. Reading what `to_json` wrote gives an equal
// profile.
#pragma once

#include <string>
#include <string_view>

#include "outsize/base/json.h"
#include "outsize/base/result.h"
#include "outsize/profile/profile.h"

namespace outsize {

// One op per line.
std::string to_json(const Profile& profile);
// Strict about form; whether it fits a graph is check_profile's to say.
Result<Profile> profile_from_json(std::string_view text);
// The same from a document that is already open, e.g. the field "profile" of a graph.
Profile read_profile(const JsonNode& node);

}  // namespace outsize
