#include "outsize/share/policy.h"

#include <algorithm>
#include <numeric>

#include "outsize/base/check.h"

namespace outsize::share {

std::vector<double> contention_weights(std::span<const Contention> jobs, bool for_each_subtask) {
  std::vector<double> weights;
  for (const Contention& job : jobs) {
    OUTSIZE_CHECK(job.alone_ns > 0 && job.subtasks > 0, "a job of {} ns and {} sub-tasks",
                  job.alone_ns, job.subtasks);
    const double lengthened = static_cast<double>(job.together_ns - job.alone_ns);
    const double share = for_each_subtask ? static_cast<double>(job.subtasks) : 1.0;
    weights.push_back(lengthened / static_cast<double>(job.alone_ns) / share);
  }
  return weights;
}

std::vector<int> priority_ranks(std::span<const double> weights) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  std::vector<int> ranks(weights.size());
  for (size_t rank = 0; rank < order.size(); ++rank) ranks[order[rank]] = static_cast<int>(rank);
  return ranks;
}

std::vector<int> swap_percents(std::span<const int64_t> pages, std::span<const int> ranks,
                               int64_t memory_pages) {
  OUTSIZE_CHECK(pages.size() == ranks.size(), "{} jobs, {} ranks", pages.size(), ranks.size());
  std::vector<size_t> lowest_first(pages.size());
  std::iota(lowest_first.begin(), lowest_first.end(), size_t{0});
  std::sort(lowest_first.begin(), lowest_first.end(),
            [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
  int64_t wanted = std::accumulate(pages.begin(), pages.end(), int64_t{0}) - memory_pages;
  std::vector<int> percents(pages.size(), 0);
  for (const size_t job : lowest_first) {
    if (wanted <= 0) break;
    const int64_t percent =
        wanted >= pages[job] ? 100 : (wanted * 100 + pages[job] - 1) / pages[job];
    percents[job] = static_cast<int>(percent);
    wanted -= percent == 100 ? pages[job] : pages[job] * percent / 100;
  }
  return percents;
}

std::optional<size_t> next_command(Policy policy, const QueueView& queue) {
  if (queue.commands.empty()) return std::nullopt;
  if (ranks_commands(policy)) {
    const auto first = std::min_element(
        queue.commands.begin(), queue.commands.end(), [&](const Queued& a, const Queued& b) {
          return queue.ranks[static_cast<size_t>(a.job)] < queue.ranks[static_cast<size_t>(b.job)];
        });
    return static_cast<size_t>(first - queue.commands.begin());
  }
  if (policy != Policy::kMat || !queue.closed || !queue.others_unfinished) return 0;
  for (size_t i = 0; i < queue.commands.size(); ++i) {
    const Queued& command = queue.commands[i];
    if (command.job != *queue.closed || command.lacks_pages <= queue.free_pages) return i;
  }
  return std::nullopt;
}

std::optional<int64_t> turn_ends_ns(const TurnView& turn) {
  if (!turn.others_wait) return std::nullopt;
  // Grants that nobody contested were renewed at each end of a quantum.
  const int64_t renewals =
      std::max<int64_t>(0, turn.now_ns - turn.granted_ns - 1) / turn.quantum_ns;
  int64_t end = turn.granted_ns + (renewals + 1) * turn.quantum_ns;
  if (turn.idle_release_ns > 0 && turn.idle_since_ns)
    end = std::min(end, *turn.idle_since_ns + turn.idle_release_ns);
  return end;
}

size_t admitted(std::span<const int64_t> waiting_pages, int64_t used_pages, int64_t memory_pages) {
  size_t count = 0;
  for (const int64_t pages : waiting_pages) {
    if (used_pages > 0 && used_pages + pages > memory_pages) break;
    used_pages += pages;
    ++count;
  }
  return count;
}

namespace {

// Of the job's offers; 1 where it has none.
int64_t best_time_ns(const std::vector<Offer>& offers) {
  int64_t best_ns = offers.empty() ? 1 : offers.front().time_ns;
  for (const Offer& offer : offers) best_ns = std::min(best_ns, offer.time_ns);
  return best_ns;
}

// The choices made for the jobs so far, as a chain back through `partials`.
struct Partial {
  int64_t pages = 0, link_ppm = 0;
  double loss = 0;
  size_t offer = 0;
  int64_t before = -1;  // index of the choice for the jobs before this one
};

bool no_worse(const Partial& a, const Partial& b) {
  return a.pages <= b.pages && a.link_ppm <= b.link_ppm && a.loss <= b.loss;
}

// Those of `found` that no other beats, in the order in which they were found.
std::vector<Partial> undominated(std::vector<Partial> found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Partial& a, const Partial& b) { return a.loss < b.loss; });
  std::vector<Partial> kept;
  for (const Partial& candidate : found)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const Partial& other) { return no_worse(other, candidate); }))
      kept.push_back(candidate);
  return kept;
}

}  // namespace

std::optional<Choice> choose_offers(std::span<const std::vector<Offer>> jobs, int64_t memory_pages,
                                    int64_t link_ppm) {
  std::vector<std::vector<Partial>> layers{{Partial{}}};
  for (const std::vector<Offer>& offers : jobs) {
    const int64_t best_ns = best_time_ns(offers);
    OUTSIZE_CHECK(best_ns > 0, "an offer of {} ns", best_ns);
    std::vector<Partial> found;
    for (size_t b = 0; b < layers.back().size(); ++b) {
      const Partial& before = layers.back()[b];
      for (size_t o = 0; o < offers.size(); ++o) {
        Partial next;
        next.pages = before.pages + offers[o].pages;
        next.link_ppm = before.link_ppm + offers[o].link_ppm;
        if (next.pages > memory_pages || next.link_ppm > link_ppm) continue;
        next.loss = before.loss +
                    static_cast<double>(offers[o].time_ns - best_ns) / static_cast<double>(best_ns);
        next.offer = o;
        next.before = static_cast<int64_t>(b);
        found.push_back(next);
      }
    }
    if (found.empty()) return std::nullopt;
    layers.push_back(undominated(std::move(found)));
  }
  // The least loss comes first in a layer.
  Choice choice;
  choice.offers.resize(jobs.size());
  choice.loss = layers.back().front().loss;
  int64_t at = 0;
  for (size_t layer = jobs.size(); layer > 0; --layer) {
    const Partial& partial = layers[layer][static_cast<size_t>(at)];
    choice.offers[layer - 1] = partial.offer;
    at = partial.before;
  }
  return choice;
}

namespace {

// What those that go on waiting lose until `wait_ns` have passed.
double waiting_loss(std::span<const std::vector<Offer>> waiting, int64_t wait_ns) {
  double loss = 0;
  for (const std::vector<Offer>& offers : waiting)
    loss += static_cast<double>(wait_ns) / static_cast<double>(best_time_ns(offers));
  return loss;
}

}  // namespace

Choice start_jobs(std::span<const std::vector<Offer>> waiting, std::span<const Running> running,
                  int64_t memory_pages, int64_t link_ppm) {
  std::optional<int64_t> first_end_ns;
  for (const Running& job : running) {
    memory_pages -= job.pages;
    link_ppm -= job.link_ppm;
    first_end_ns = std::min(first_end_ns.value_or(job.ends_in_ns), job.ends_in_ns);
  }
  std::optional<Choice> best;
  for (size_t count = waiting.size() + 1; count-- > (running.empty() ? 1u : 0u);) {
    std::optional<Choice> choice = choose_offers(waiting.first(count), memory_pages, link_ppm);
    if (!choice) continue;
    std::optional<int64_t> wait_ns = first_end_ns;
    for (size_t j = 0; j < count; ++j) {
      const int64_t ends_ns = waiting[j][choice->offers[j]].time_ns;
      wait_ns = std::min(wait_ns.value_or(ends_ns), ends_ns);
    }
    if (count < waiting.size()) choice->loss += waiting_loss(waiting.subspan(count), *wait_ns);
    if (!best || choice->loss < best->loss) best = std::move(choice);
  }
  return best.value_or(Choice{});
}

}  // namespace outsize::share
