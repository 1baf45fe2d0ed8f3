#include "outsize/profile/profile.h"

#include <algorithm>

#include "outsize/base/bytes.h"

namespace outsize {
namespace {

// Times are summed over ops and reruns; none may be so long that a sum overflows.
constexpr int64_t kMaxNs = int64_t{1} << 53;

Status check_cost(const Op& op, const OpCost& cost, const std::string& where) {
  if (cost.ns < 0 || cost.ns > kMaxNs)
    return bad_input("{} takes {} ns; wanted 0 to 2^53", where, cost.ns);
  if (cost.spread_ns < 0) return bad_input("{} has a spread of {} ns", where, cost.spread_ns);
  if (cost.workspace_bytes < 0 || cost.workspace_bytes > kMaxBytes)
    return bad_input("{} has a workspace of {} bytes; wanted 0 to 2^62", where,
                     cost.workspace_bytes);
  std::vector<bool> asked(op.makes.size(), false);
  for (size_t i = 0; i < cost.requests.size(); ++i) {
    const Request& request = cost.requests[i];
    if (request.bytes < 0 || request.bytes > kMaxBytes)
      return bad_input("request {} of {} is for {} bytes", i, where, request.bytes);
    if (request.output >= 0) {
      const auto output = static_cast<size_t>(request.output);
      if (output >= op.makes.size())
        return bad_input("request {} of {} is for output {}; the op makes {}", i, where, output,
                         op.makes.size());
      if (asked[output])
        return bad_input("request {} of {} is the second one for output {}", i, where, output);
      asked[output] = true;
    } else if (request.output != -1) {
      return bad_input("request {} of {} is for output {}; wanted -1 or more", i, where,
                       request.output);
    } else if (!cost.scratch && (request.offset < 0 || request.bytes > cost.workspace_bytes ||
                                 request.offset > cost.workspace_bytes - request.bytes)) {
      return bad_input("request {} of {} lies at [{}, {}+{}) of a workspace of {} bytes", i, where,
                       request.offset, request.offset, request.bytes, cost.workspace_bytes);
    }
  }
  return Done{};
}

}  // namespace

Status check_profile(const Graph& graph, const Profile& profile) {
  if (profile.how != "measured" && profile.how != "roofline" && profile.how != "stated")
    return bad_input("how: wanted measured, roofline or stated, had '{}'", profile.how);
  if (profile.threads < 0) return bad_input("threads: wanted 0 or more, had {}", profile.threads);
  if (profile.runtime_bytes < 0 || profile.runtime_bytes > kMaxBytes)
    return bad_input("runtime_bytes: wanted 0 to 2^62, had {}", profile.runtime_bytes);
  if (profile.ops.size() != graph.ops.size())
    return bad_input("the profile has {} ops, its graph {}", profile.ops.size(), graph.ops.size());
  int64_t total = 0;
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const std::string where = fmt::format("op {} ({})", t, graph.ops[t].name);
    if (Status s = check_cost(graph.ops[t], profile.ops[t], where); !s.ok()) return s;
    total += profile.ops[t].ns;
    if (total > kMaxNs) return bad_input("ops 0 to {} take more than 2^53 ns together", t);
  }
  return Done{};
}

std::vector<int64_t> workspaces_of(const Profile& profile) {
  std::vector<int64_t> bytes;
  bytes.reserve(profile.ops.size());
  for (const OpCost& cost : profile.ops) bytes.push_back(cost.workspace_bytes);
  return bytes;
}

int64_t compute_ns(const Profile& profile) {
  int64_t sum = 0;
  for (const OpCost& cost : profile.ops) sum += cost.ns;
  return sum;
}

}  // namespace outsize
