// How the plan checker names things in its witnesses.
//
//   instruction 17 (run op 5 aten.mm.default)      instruction 12 (copy storage 3 "w" [0, 64)
//   device -> host)
//
// Pure functions; ids must be in range.
#pragma once

#include <string>

#include "outsize/graph/graph.h"
#include "outsize/plan/plan.h"

namespace outsize {

std::string text_of(Interval range);
// `op 5 (aten.mm.default)`
std::string text_of_op(const Graph& graph, OpId op);
// `storage 3 "w"`
std::string text_of_storage(const Graph& graph, StorageId storage);
// `instruction 17 (...)`
std::string text_of_instruction(const Graph& graph, const Plan& plan, InstructionId id);
// `residency 4 (storage 3 "w" [0, 64) at device [128, 192))`
std::string text_of_residency(const Graph& graph, const Plan& plan, ResidencyId id);
// `what op 5 (aten.mm.default) writes`, `entry content` or `nothing`
std::string text_of_version(const Graph& graph, int32_t version);
// `reads`, `makes` or `mutates`: the kind of an op's access, counted as its operands are.
const char* text_of_access(const Op& op, size_t access);

}  // namespace outsize
