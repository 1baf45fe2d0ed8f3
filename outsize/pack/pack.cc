#include "outsize/pack/pack.h"

#include <algorithm>

#include "outsize/base/check.h"
#include "outsize/pack/exact.h"
#include "outsize/pack/orders.h"
#include "outsize/pack/place.h"
#include "outsize/pack/search.h"

namespace outsize {
namespace {

using packing::Found;
using packing::Instance;
using packing::Placer;
using packing::Rule;

// Two fixed buffers that share a byte while both hold it; the first such pair by position.
std::optional<std::pair<size_t, size_t>> conflict_of(const Instance& instance) {
  std::vector<size_t> fixed;
  for (size_t b = 0; b < instance.size(); ++b)
    if (!instance.free(b) && !instance.empty(b)) fixed.push_back(b);
  std::stable_sort(fixed.begin(), fixed.end(), [&](size_t a, size_t b) {
    return *instance.buffer(a).offset < *instance.buffer(b).offset;
  });
  std::optional<std::pair<size_t, size_t>> first;
  for (size_t i = 0; i < fixed.size(); ++i) {
    const Buffer& low = instance.buffer(fixed[i]);
    for (size_t j = i + 1; j < fixed.size(); ++j) {
      const Buffer& high = instance.buffer(fixed[j]);
      if (*high.offset >= *low.offset + low.size) break;
      if (!low.life.overlaps(high.life)) continue;
      for (const packing::Piece& p : instance.pieces(fixed[i]))
        for (const packing::Piece& q : instance.pieces(fixed[j]))
          if (p.life.overlaps(q.life) &&
              p.window.shifted(*low.offset).overlaps(q.window.shifted(*high.offset))) {
            const std::pair<size_t, size_t> pair = std::minmax(fixed[i], fixed[j]);
            if (!first || pair < *first) first = pair;
          }
    }
  }
  return first;
}

// No packing is lower: the most live at once, what is fixed, and for each free buffer the lowest
// place that the fixed ones leave it.
int64_t lower_bound_of(const Instance& instance) {
  int64_t bound = instance.most_live();
  Placer placer(instance);
  bound = std::max(bound, placer.height());
  if (placer.height() == 0) return bound;
  for (size_t b = 0; b < instance.size(); ++b)
    if (instance.free(b) && !instance.empty(b))
      bound = std::max(bound, placer.find(b, packing::Fit::kFirst) + instance.buffer(b).size);
  return bound;
}

// Completes an unfinished placement, so that there is always an answer.
void complete(const Instance& instance, const Rule& rule, Placer& placer) {
  for (uint32_t b : packing::order_of(instance, rule))
    if (placer.offsets()[b] == packing::kUnplaced) placer.put(b, placer.find(b, rule.fit));
}

// Work of the first turn of each search; turns get longer.
constexpr int64_t kFirstTurn = 20'000;

int64_t height_of(const Instance& instance, const std::vector<int64_t>& offsets) {
  int64_t height = 0;
  for (size_t b = 0; b < instance.size(); ++b)
    if (!instance.empty(b)) height = std::max(height, offsets[b] + instance.buffer(b).size);
  return height;
}

// Exact search and local search in turn. The first aims at the goal; where that is out of reach in
// its turn, at something between it and the best; where it is proved out of reach, the bound rises.
void search(const Instance& instance, const PackOptions& options, int64_t goal, Found& best,
            Packing& packing) {
  Deadline forever;
  Deadline& deadline = options.deadline != nullptr ? *options.deadline : forever;
  const int64_t work_before = deadline.work_done();
  const bool exact = packing::exact_applies(instance) && instance.listed();
  int64_t aim = goal, length = kFirstTurn;
  for (uint64_t turn = 0; best.height > goal && !deadline.reached(); ++turn, length *= 2) {
    if (exact) {
      packing::ExactResult result = packing::search_exact(instance, aim, length, deadline);
      if (result.offsets) {
        best.height = height_of(instance, *result.offsets);
        best.offsets = std::move(*result.offsets);
        packing.method = "exact";
        aim = goal;
      } else if (result.proved_infeasible) {
        packing.lower_bound = std::max(packing.lower_bound, aim + 1);
        goal = std::max(goal, aim + 1);
        if (options.capacity > 0) break;  // the question is answered
        aim = goal;
      } else if (options.capacity == 0) {
        aim = aim + (best.height - aim) / 2;
        if (aim + 1 >= best.height) aim = goal;
      }
      if (best.height <= goal) break;
    }
    const int64_t height = best.height;
    best = packing::improve_order(instance, std::move(best), goal, options.seed + turn, length,
                                  deadline);
    if (best.height < height) packing.method = "search";
    if (options.deadline == nullptr) break;
  }
  packing.work += deadline.work_done() - work_before;
}

}  // namespace

std::vector<std::string> pack_methods() {
  std::vector<std::string> names = {"fast", "search"};
  for (const Rule& rule : packing::rules()) names.push_back(rule.name);
  return names;
}

int64_t max_live(const std::vector<Buffer>& buffers) { return Instance(buffers).most_live(); }

Packing pack(const std::vector<Buffer>& buffers, const PackOptions& options) {
  const Instance instance(buffers);
  Packing packing;
  packing.conflict = conflict_of(instance);
  packing.lower_bound = lower_bound_of(instance);
  const bool limited = options.capacity > 0;
  packing.proved_infeasible =
      packing.conflict.has_value() || (limited && packing.lower_bound > options.capacity);
  const int64_t goal =
      limited ? std::max(options.capacity, packing.lower_bound) : packing.lower_bound;

  Placer placer(instance);
  Found best;
  best.height = packing::kNoLimit;
  const bool all = options.method == "fast" || options.method == "search";
  bool known = all;
  for (const Rule& rule : packing::rules()) {
    if (!all && rule.name != options.method) continue;
    known = true;
    // Only a strictly lower packing is of use.
    const int64_t limit = best.height == packing::kNoLimit ? best.height : best.height - 1;
    if (!packing::run_rule(instance, rule, limit, placer)) continue;
    complete(instance, rule, placer);
    best = {placer.offsets(), placer.height()};
    packing.method = rule.name;
    if (best.height <= goal) break;
    if (all && options.deadline != nullptr && options.deadline->reached()) break;
  }
  OUTSIZE_CHECK(known, "no packing method '{}'", options.method);
  packing.work = placer.work();
  if (options.deadline != nullptr) options.deadline->spend(packing.work);

  if (options.method == "search" && best.height > goal && !packing.conflict)
    search(instance, options, goal, best, packing);

  packing.offsets = std::move(best.offsets);
  packing.height = best.height;
  packing.optimal = !packing.conflict && packing.height == packing.lower_bound;
  packing.proved_infeasible |= limited && packing.lower_bound > options.capacity;
  if (limited)
    for (size_t b = 0; b < buffers.size(); ++b)
      if (!instance.empty(b) && packing.offsets[b] + buffers[b].size > options.capacity)
        packing.over.push_back(b);
  return packing;
}

}  // namespace outsize
