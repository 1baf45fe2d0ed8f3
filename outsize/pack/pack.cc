#include "outsize/pack/pack.h"

#include <algorithm>
#include <memory>

#include "outsize/base/check.h"
#include "outsize/pack/core.h"
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
// More buffers than this get a first answer from a sweep over time.
constexpr size_t kMany = 10'000;

int64_t height_of(const Instance& instance, const std::vector<int64_t>& offsets) {
  int64_t height = 0;
  for (size_t b = 0; b < instance.size(); ++b)
    if (!instance.empty(b)) height = std::max(height, offsets[b] + instance.buffer(b).size);
  return height;
}

// The portfolio: exact search of the core, and where that does not apply exact search of the whole;
// local search between. Each aims at the goal; where that is out of reach in its turn, at something
// between it and the best as well; where it is proved out of reach, the bound rises.
class Portfolio {
 public:
  Portfolio(const Instance& instance, const PackOptions& options, Deadline& deadline, int64_t goal,
            Found& best, Packing& packing)
      : instance_(instance),
        options_(options),
        deadline_(deadline),
        goal_(goal),
        best_(best),
        packing_(packing),
        core_applies_(packing::CoreSearch::applies(instance)),
        exact_applies_(!core_applies_ && packing::exact_applies(instance)) {}

  bool done() const { return settled_ || best_.height <= goal_ || deadline_.reached(); }

  void search_goal(int64_t work) {
    if (core_applies_) {
      if (!at_goal_ || at_goal_->capacity() != goal_)
        at_goal_ = std::make_unique<packing::CoreSearch>(instance_, goal_, options_.seed);
      take_core(*at_goal_, work);
    } else if (exact_applies_) {
      take_exact(goal_, work);
    }
  }

  // Halfway between the goal and the best: above what has failed there in its turn.
  void search_between(int64_t work) {
    if (options_.capacity > 0 || !(core_applies_ || exact_applies_)) return;
    low_ = std::max(low_, goal_);
    const int64_t aim = low_ + (best_.height - low_) / 2;
    if (aim <= goal_ || aim >= best_.height) {
      low_ = goal_;
      return;
    }
    const int64_t height = best_.height;
    if (core_applies_) {
      packing::CoreSearch between(instance_, aim, options_.seed);
      take_core(between, work);
    } else {
      take_exact(aim, work);
    }
    if (best_.height == height) low_ = aim;
  }

  void improve(uint64_t turn, int64_t work) {
    const int64_t height = best_.height;
    best_ = packing::improve_order(instance_, std::move(best_), goal_, options_.seed + turn, work,
                                   deadline_);
    if (best_.height < height) packing_.method = "search";
  }

 private:
  void take_core(packing::CoreSearch& core, int64_t work) {
    switch (core.turn(work, deadline_)) {
      case packing::CoreSearch::Outcome::kFound:
        take(core.offsets());
        break;
      case packing::CoreSearch::Outcome::kNone:
        if (core.proves()) take_proof(core.capacity());
        break;
      case packing::CoreSearch::Outcome::kStopped:
        break;
    }
  }

  void take_exact(int64_t aim, int64_t work) {
    packing::ExactResult result = packing::search_exact(instance_, aim, work, deadline_);
    if (result.offsets) take(*result.offsets);
    if (result.proved_infeasible) take_proof(aim);
  }

  void take(const std::vector<int64_t>& offsets) {
    const int64_t height = height_of(instance_, offsets);
    if (height >= best_.height) return;
    best_ = {offsets, height};
    packing_.method = "exact";
  }

  void take_proof(int64_t aim) {
    packing_.lower_bound = std::max(packing_.lower_bound, aim + 1);
    goal_ = std::max(goal_, aim + 1);
    settled_ = options_.capacity > 0;  // the question is answered
  }

  const Instance& instance_;
  const PackOptions& options_;
  Deadline& deadline_;
  int64_t goal_;
  Found& best_;
  Packing& packing_;
  const bool core_applies_, exact_applies_;
  std::unique_ptr<packing::CoreSearch> at_goal_;
  int64_t low_ = 0;
  bool settled_ = false;
};

// Every rule once, the best taken. Where there is a deadline one answer is made whatever it says.
void try_rules(const Instance& instance, const PackOptions& options, int64_t goal, size_t first,
               size_t last, Placer& placer, Found& best, Packing& packing) {
  for (size_t r = first; r < last && best.height > goal; ++r) {
    const bool answered = best.height != packing::kNoLimit;
    if (answered && options.deadline != nullptr && options.deadline->reached()) return;
    placer.stop_at(answered ? options.deadline : nullptr);
    const Rule& rule = packing::rules()[r];
    const int64_t before = placer.work();
    // Only a strictly lower packing is of use.
    const bool placed =
        packing::run_rule(instance, rule, answered ? best.height - 1 : best.height, placer);
    if (placed) {
      complete(instance, rule, placer);
      best = {placer.offsets(), placer.height()};
      packing.method = rule.name;
    }
    if (options.deadline != nullptr) options.deadline->spend(placer.work() - before);
  }
}

void search(const Instance& instance, const PackOptions& options, int64_t goal, Placer& placer,
            Found& best, Packing& packing) {
  Deadline forever;
  Deadline& deadline = options.deadline != nullptr ? *options.deadline : forever;
  const int64_t work_before = deadline.work_done();
  Portfolio portfolio(instance, options, deadline, goal, best, packing);
  // An answer at once; then the search that most often settles it; then what is left of the rules.
  portfolio.search_goal(kFirstTurn);
  if (!portfolio.done())
    try_rules(instance, options, goal, 1, packing::rules().size(), placer, best, packing);
  int64_t length = kFirstTurn;
  for (uint64_t turn = 0; !portfolio.done(); ++turn, length *= 2) {
    portfolio.search_goal(length);
    if (!portfolio.done()) portfolio.search_between(length);
    if (!portfolio.done()) portfolio.improve(turn, length);
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
  const std::vector<Rule>& rules = packing::rules();
  const auto named = std::find_if(rules.begin(), rules.end(),
                                  [&](const Rule& rule) { return rule.name == options.method; });
  const bool all = options.method == "fast" || options.method == "search";
  OUTSIZE_CHECK(all || named != rules.end(), "no packing method '{}'", options.method);
  const auto alone = static_cast<size_t>(named - rules.begin());
  // Placing so many by any rule takes seconds.
  if (options.method == "search" && buffers.size() > kMany &&
      packing::CoreSearch::applies(instance)) {
    best.offsets = packing::offsets_by_sweep(instance);
    best.height = height_of(instance, best.offsets);
    packing.method = "sweep";
  }
  // "search" comes back to the other rules once the core has had its turn.
  const size_t first = all ? 0 : alone;
  const size_t last = options.method == "fast" ? rules.size() : first + 1;
  try_rules(instance, options, goal, first, last, placer, best, packing);
  packing.work = placer.work();

  if (options.method == "search" && best.height > goal && !packing.conflict)
    search(instance, options, goal, placer, best, packing);

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
