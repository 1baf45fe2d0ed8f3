#include "outsize/planners/schedule.h"

#include <algorithm>
#include <set>

namespace outsize::planning {
namespace {

double copy_ns(const Link& link, int64_t bytes, const Machine& machine, double slack) {
  double rate = static_cast<double>(link.bytes_per_s) *
                static_cast<double>(machine.copy_permille_beside_compute) / 1000.0;
  return (static_cast<double>(bytes) * 1e9 / rate + static_cast<double>(link.latency_ns)) * slack;
}

// A copy out: the first gap of a version that the host doesn't hold yet.
struct Out {
  size_t move;
  double written;  // ns
  double ns;
  double end = 0;
};

class Scheduler {
 public:
  Scheduler(const Problem& problem, const Chooser& chooser, const Program& program, double slack)
      : problem_(problem), chooser_(chooser), program_(program), slack_(slack) {
    starts_.push_back(0);
    for (int32_t s : program.order())
      starts_.push_back(starts_.back() +
                        static_cast<double>(problem.profile->ops[program.step(s).op.index()].ns));
  }

  void spread(std::vector<Move>& moves) {
    ends_.assign(moves.size(), 0);
    send_out(moves);
    bring_in(moves);
    for (Move& m : moves) m.arrive = std::max(m.arrive, m.release);
    make_room(moves);
  }

 private:
  int32_t end() const { return static_cast<int32_t>(program_.size()); }
  int64_t bytes_of(const Move& m) const { return program_.part_of(m.instance).bytes(); }

  // First rank that begins at or after `ns`.
  int32_t rank_at(double ns) const {
    return static_cast<int32_t>(std::lower_bound(starts_.begin(), starts_.end() - 1, ns) -
                                starts_.begin());
  }

  void send_out(std::vector<Move>& moves) {
    std::vector<Out> outs;
    int32_t instance = -1, on_host = 0;
    std::vector<size_t> out_of(moves.size(),
                               moves.size());  // per move: that whose copy it lives on
    size_t carrier = moves.size();
    for (size_t i = 0; i < moves.size(); ++i) {
      const Instance& in = program_.instance(moves[i].instance);
      if (moves[i].instance != instance) {
        instance = moves[i].instance;
        on_host = in.entry && in.away_at_entry ? 0 : -2;
        carrier = moves.size();
      }
      if (moves[i].touch < 0) continue;
      int32_t version = in.touches[static_cast<size_t>(moves[i].touch)].after;
      if (version != on_host) {
        auto maker = std::find_if(in.touches.begin(), in.touches.end(),
                                  [&](const Touch& t) { return t.after == version; });
        double written = starts_[static_cast<size_t>(program_.rank(maker->step)) + 1];
        outs.push_back(
            {i, written,
             copy_ns(problem_.machine->out, bytes_of(moves[i]), *problem_.machine, slack_)});
        on_host = version;
        carrier = i;
      }
      out_of[i] = carrier;
    }
    std::stable_sort(outs.begin(), outs.end(),
                     [](const Out& a, const Out& b) { return a.written < b.written; });
    std::set<std::pair<int32_t, size_t>> ready;  // by when the room is wanted
    double now = 0;
    size_t next = 0;
    while (next < outs.size() || !ready.empty()) {
      if (ready.empty()) now = std::max(now, outs[next].written);
      for (; next < outs.size() && outs[next].written <= now; ++next)
        ready.emplace(moves[outs[next].move].from, next);
      Out& out = outs[ready.begin()->second];
      ready.erase(ready.begin());
      now += out.ns;
      ends_[out.move] = now;
    }
    for (size_t i = 0; i < moves.size(); ++i) {
      double ended = out_of[i] < moves.size() ? ends_[out_of[i]] : 0;
      ends_[i] = ended;
      moves[i].release = std::min(moves[i].to, std::max(moves[i].from + 1, rank_at(ended)));
    }
  }

  void bring_in(std::vector<Move>& moves) {
    std::vector<size_t> due;
    for (size_t i = 0; i < moves.size(); ++i)
      if (moves[i].returns) due.push_back(i);
    std::stable_sort(due.begin(), due.end(),
                     [&](size_t a, size_t b) { return moves[a].to > moves[b].to; });
    double cursor = starts_.back();
    for (size_t i : due) {
      Move& m = moves[i];
      double begin = std::min(cursor, starts_[static_cast<size_t>(m.to)]) -
                     copy_ns(problem_.machine->in, bytes_of(m), *problem_.machine, slack_);
      cursor = begin;
      int32_t at = rank_at(begin);
      if (at > 0 && (at > end() || starts_[static_cast<size_t>(at)] > begin)) --at;
      m.arrive = std::clamp(at, std::min(m.release, m.to), m.to);
    }
  }

  // Where the bytes on their way are too many, the cheapest of them leave earlier or arrive later.
  void make_room(std::vector<Move>& moves) {
    std::vector<int64_t> usage = chooser_.usage(program_);
    auto add = [&](int32_t from, int32_t to, int64_t bytes) {
      for (int32_t r = from; r < to; ++r) usage[static_cast<size_t>(r)] += bytes;
    };
    auto size = [&](const Move& m) { return chooser_.size_of(program_.part_of(m.instance)); };
    for (const Move& m : moves) {
      add(m.from + 1, m.release, size(m));
      add(m.arrive, m.to, size(m));
    }
    int64_t capacity = chooser_.capacity();
    for (int32_t r = 0; r < end(); ++r) {
      if (usage[static_cast<size_t>(r)] <= capacity) continue;
      struct Way {
        double cost;
        size_t move;
        bool out;
      };
      std::vector<Way> ways;
      for (size_t i = 0; i < moves.size(); ++i) {
        const Move& m = moves[i];
        if (m.from < r && r < m.release)
          ways.push_back({std::max(0.0, ends_[i] - starts_[static_cast<size_t>(r)]), i, true});
        if (m.returns && m.arrive <= r && r < m.to) {
          double late = starts_[static_cast<size_t>(r) + 1] +
                        copy_ns(problem_.machine->in, bytes_of(m), *problem_.machine, slack_) -
                        starts_[static_cast<size_t>(m.to)];
          ways.push_back({std::max(0.0, late), i, false});
        }
      }
      std::stable_sort(ways.begin(), ways.end(), [&](const Way& a, const Way& b) {
        if (a.cost != b.cost) return a.cost < b.cost;
        return moves[a.move].to > moves[b.move].to;
      });
      for (const Way& w : ways) {
        if (usage[static_cast<size_t>(r)] <= capacity) break;
        Move& m = moves[w.move];
        if (w.out && m.release > r) {
          add(r, m.release, -size(m));
          m.release = r;
        } else if (!w.out && m.arrive <= r) {
          add(m.arrive, r + 1, -size(m));
          m.arrive = r + 1;
        }
      }
    }
  }

  const Problem& problem_;
  const Chooser& chooser_;
  const Program& program_;
  double slack_;
  std::vector<double> starts_;  // per rank, and the end
  std::vector<double> ends_;    // per move: when its copy out has ended
};

}  // namespace

std::vector<Move> moves_of(const Program& program) {
  std::vector<Move> moves;
  int32_t end = static_cast<int32_t>(program.size());
  auto add = [&](size_t i, int32_t touch, int32_t from, int32_t to, bool returns, Tier below) {
    if (to - from < 2 && touch >= 0 && returns) return;
    Move move{static_cast<int32_t>(i), touch, from, to, from + 1, to, returns};
    move.below = below;
    moves.push_back(move);
  };
  for (size_t i = 0; i < program.instances().size(); ++i) {
    const Instance& in = program.instances()[i];
    if (in.entry && in.away_at_entry && !in.touches.empty())
      add(i, -1, -1, program.rank(in.touches[0].step), needs_content(in.touches[0]), in.home);
    for (size_t k = 0; k < in.touches.size(); ++k) {
      if (!in.touches[k].away) continue;
      int32_t from = program.rank(in.touches[k].step);
      if (k + 1 < in.touches.size())
        add(i, static_cast<int32_t>(k), from, program.rank(in.touches[k + 1].step),
            needs_content(in.touches[k + 1]), Tier::kHost);
      else if (in.exit)
        add(i, static_cast<int32_t>(k), from, end, false, in.home);
    }
  }
  return moves;
}

std::vector<Move> schedule_moves(const Problem& problem, const Chooser& chooser,
                                 const Program& program, CopyStyle style, double slack) {
  std::vector<Move> moves = moves_of(program);
  if (style == CopyStyle::kWriteBehind) Scheduler(problem, chooser, program, slack).spread(moves);
  return moves;
}

}  // namespace outsize::planning
