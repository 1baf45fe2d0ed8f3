// The part of the plan checker that needs no happens-before: ids, sizes, budgets, alignment,
// streams, waits that point backwards, each op run once. The rest of the checker relies on it
// having passed.
//
//   Violation shape = check_shape(graph, workspace_bytes, plan, budgets, alignment);
//   if (!shape.ok()) return shape;
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "outsize/plan/check.h"

namespace outsize {

// An op's accesses as an instruction's operands count them: reads, then makes, then mutates.
struct AccessView {
  Access access;
  bool reads = false;  // needs earlier content
  bool writes = false;
};

inline size_t access_count(const Op& op) {
  return op.reads.size() + op.makes.size() + op.mutates.size();
}

inline AccessView access_at(const Op& op, size_t i) {
  if (i < op.reads.size()) return {op.reads[i], true, false};
  i -= op.reads.size();
  if (i < op.makes.size()) return {op.makes[i], false, true};
  return {op.mutates[i - op.makes.size()], true, true};
}

Violation check_shape(const Graph& graph, const std::vector<int64_t>& workspace_bytes,
                      const Plan& plan, const Budgets& budgets, int64_t alignment);

}  // namespace outsize
