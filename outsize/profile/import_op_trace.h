// Reads `op-trace` JSON: storages with sizes and roles, ops with times, and which storages each op
// reads, makes and mutates, whole. Gives a graph without values and a stated profile.
//
//   {"format": "op-trace", "version": 1, "title": "t", "source": "s",
//    "storages": [{"id": "w", "bytes": 8, "role": "persistent"}, {"id": 7, "bytes": 4, "role":
//    "output"}], "ops": [{"name": "mm", "ns": 10, "reads": ["w"], "makes": [7], "mutates": []}]}
//
// Ids are any integers or strings. Roles: persistent becomes a parameter with entry and exit
// content; input has entry content, output exit content. A storage that is read or mutated before
// any op makes it has entry content whatever its role; a make after that, or after another make,
// mutates it.
#pragma once

#include <string_view>

#include "outsize/base/result.h"
#include "outsize/profile/graph_file.h"

namespace outsize {

Result<GraphFile> import_op_trace(std::string_view text);

}  // namespace outsize
