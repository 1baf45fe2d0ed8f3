#include "outsize/planners/home/swarm.h"

#include <algorithm>

#include "outsize/base/parallel.h"

namespace outsize::planning::home {
namespace {

constexpr size_t kChunk = 16;  // particles moved between two looks at the deadline

}  // namespace

Policy updated(const Stages& stages, const Particle& particle, const Policy& leader,
               int64_t capacity, const Rules& rules) {
  Policy policy = particle.policy;
  for (size_t t = 0; t < policy.size(); ++t) {
    const Action first = rules.global ? leader[t] : particle.best[t];
    const Action second = rules.historical ? particle.best[t] : leader[t];
    policy[t] = second;
    if (first == second) continue;
    const Score with_second = evaluate(stages, policy, capacity, rules);
    policy[t] = first;
    if (!(evaluate(stages, policy, capacity, rules, with_second) < with_second)) policy[t] = second;
  }
  return policy;
}

Swarm::Swarm(const Stages& stages, int64_t capacity, const Rules& rules, const Allowed& allowed,
             uint64_t seed)
    : stages_(stages), capacity_(capacity), rules_(rules) {
  Random random(seed);
  const size_t n = stages.tensors.size();
  const auto fitting = [&](size_t t, Action action) {
    const bool remakable = allowed.recompute && stages.tensors[t].remakable;
    if (action == Action::kRecompute && !remakable)
      return allowed.swap ? Action::kSwap : Action::kKeep;
    if (action == Action::kSwap && !allowed.swap)
      return remakable ? Action::kRecompute : Action::kKeep;
    return action;
  };
  for (int64_t p = 0; p < rules.particles; ++p) {
    Particle particle;
    for (size_t t = 0; t < n; ++t) {
      const bool seed_particle = rules.seeds && p < 3;
      const auto action = static_cast<Action>(seed_particle ? p : random.below(3));
      particle.policy.push_back(fitting(t, action));
    }
    particle.score = evaluate(stages, particle.policy, capacity, rules);
    particle.best = particle.policy;
    particle.best_score = particle.score;
    if (p == 0) best_ = particle.policy, best_score_ = particle.score;
    look(particle);
    particles_.push_back(std::move(particle));
  }
}

void Swarm::look(const Particle& particle) {
  if (!(particle.score < best_score_)) return;
  best_score_ = particle.score;
  best_ = particle.policy;
}

void Swarm::move(size_t begin, size_t end, const Policy& leader, size_t threads) {
  for_each_index(threads, begin, end, [&](size_t, size_t i) {
    Particle& particle = particles_[i];
    particle.policy = updated(stages_, particle, leader, capacity_, rules_);
    particle.score = evaluate(stages_, particle.policy, capacity_, rules_);
    if (!(particle.score < particle.best_score)) return;
    particle.best_score = particle.score;
    particle.best = particle.policy;
  });
}

void Swarm::run(Deadline& deadline, int threads, const std::function<void()>& on_better) {
  for (int64_t iteration = 1; iteration < rules_.iterations; ++iteration) {
    const auto leads =
        std::min_element(particles_.begin(), particles_.end(),
                         [](const Particle& a, const Particle& b) { return a.score < b.score; });
    const Policy leader = leads->policy;
    const bool still = std::all_of(particles_.begin(), particles_.end(), [&](const Particle& p) {
      return p.policy == leader && p.best == leader;
    });
    if (still) return;
    const Score before = best_score_;
    for (size_t begin = 0; begin < particles_.size() && !deadline.reached(); begin += kChunk) {
      const size_t end = std::min(particles_.size(), begin + kChunk);
      move(begin, end, leader, static_cast<size_t>(std::max(1, threads)));
      for (size_t i = begin; i < end; ++i) look(particles_[i]);
      deadline.spend(static_cast<int64_t>(end - begin));
    }
    if (best_score_ < before) on_better();
    if (deadline.reached()) return;
  }
}

}  // namespace outsize::planning::home
