#include "outsize/planners/sequence.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "outsize/plan/lower.h"

namespace outsize::planning {
namespace {

constexpr int32_t kNothing = -2;  // no version: a tier holds nothing of use

class Writer {
 public:
  Writer(const Problem& problem, const Program& program, const std::vector<Move>& moves,
         CopyStyle style)
      : problem_(problem), program_(program), moves_(moves), style_(style) {
    releases_.resize(program.size() + 1);
    arrivals_.resize(program.size() + 1);
    due_.resize(program.size() + 1);
    std::vector<size_t> order(moves.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return moves[a].to < moves[b].to; });
    for (size_t m : order) {
      const Move& move = moves[m];
      if (move.release >= move.arrive && move.returns && move.touch >= 0) continue;  // never away
      if (move.touch >= 0) releases_[static_cast<size_t>(move.release)].push_back(m);
      if (move.returns) arrivals_[static_cast<size_t>(move.arrive)].push_back(m);
    }
  }

  Sequence write() {
    size_t n = program_.instances().size();
    device_.assign(n, ResidencyId{});
    for (auto& tier : below_) tier.assign(n, Copied{});
    cursor_.assign(n, 0);
    enter();
    for (size_t r = 0; r <= program_.size(); ++r) {
      for (size_t m : releases_[r]) send_out(moves_[m]);
      for (size_t m : arrivals_[r]) bring_in(moves_[m]);
      if (r < program_.size()) step(r);
    }
    leave();
    int64_t end = static_cast<int64_t>(out_.plan.instructions.size());
    for (size_t i = 0; i < out_.stays.size(); ++i)
      if (out_.stays[i].home || out_.stays[i].life.end == kToEnd) {
        if (out_.stays[i].home) out_.stays[i].life.begin = 0;
        out_.stays[i].life.end = std::max<int64_t>(end, 1);
      }
    return std::move(out_);
  }

 private:
  static constexpr int64_t kToEnd = 1ll << 60;

  // What a tier below the device holds of an instance.
  struct Copied {
    ResidencyId residency;
    int32_t version = kNothing;
  };
  Copied& below(size_t instance, Tier tier) { return below_[static_cast<size_t>(tier)][instance]; }

  const PartInfo& part(size_t instance) const {
    return program_.part_of(static_cast<int32_t>(instance));
  }
  int64_t now() const { return static_cast<int64_t>(out_.plan.instructions.size()); }

  ResidencyId add(size_t instance, Tier tier) {
    ResidencyId id(static_cast<int64_t>(out_.plan.residencies.size()));
    out_.plan.residencies.push_back({tier, part(instance).where, 0});
    out_.stays.push_back({{now(), now() + 1}, false, std::nullopt});
    return id;
  }
  void use(ResidencyId id) {
    Interval& life = out_.stays[id.index()].life;
    if (life.end != kToEnd) life.end = std::max(life.end, now() + 1);
  }
  ResidencyId make_home(size_t instance, Tier tier) {
    ResidencyId id = add(instance, tier);
    out_.stays[id.index()].home = true;
    for (const Home& home : problem_.border)
      if (home.storage == part(instance).where.storage)
        out_.stays[id.index()].address = home.address;
    return id;
  }

  void enter() {
    for (size_t i = 0; i < program_.instances().size(); ++i) {
      const Instance& in = program_.instances()[i];
      if (!in.entry) continue;
      Tier tier = in.away_at_entry ? in.home : Tier::kDevice;
      ResidencyId id = part(i).persistent ? make_home(i, tier) : add(i, tier);
      if (!in.exit && part(i).persistent) {
        // Given up by this step: its home's bytes are free after its last use.
        out_.stays[id.index()].home = false;
        out_.stays[id.index()].life = {0, 1};
      }
      if (in.exit && (part(i).persistent || in.away_at_entry))
        out_.stays[id.index()].life.end = kToEnd;
      if (in.away_at_entry)
        below(i, tier) = {id, 0};
      else
        device_[i] = id;
      out_.plan.entry.push_back({id, part(i).persistent});
    }
  }

  Stream stream_of(Tier tier, bool in) const {
    if (style_ == CopyStyle::kBesideOps) return Stream::kCompute;
    if (tier == Tier::kDisk) return in ? Stream::kRead : Stream::kWrite;
    return in ? Stream::kIn : Stream::kOut;
  }

  // One copy for each stretch of bytes that holds content at `version`.
  void copy(const Move& m, ResidencyId from, ResidencyId to, bool in, int32_t version) {
    size_t i = static_cast<size_t>(m.instance);
    int32_t after = in ? m.in_after : m.out_after, by = in ? m.in_by : m.out_by;
    for (const Interval& bytes : part(i).written[static_cast<size_t>(version)]) {
      Instruction c;
      c.kind = InstructionKind::kCopy;
      c.stream = stream_of(m.below, in);
      c.from = from;
      c.to = to;
      c.bytes = bytes;
      use(from);
      use(to);
      if (c.stream != Stream::kCompute) {
        InstructionId here(now());
        if (after != Move::kAnyTime) {
          OUTSIZE_CHECK(static_cast<size_t>(after) < runs_.size(),
                        "a copy of storage {} waits for step {}, which comes later",
                        part(i).where.storage.value, after);
          out_.waits.emplace_back(runs_[static_cast<size_t>(after)], here);
        }
        if (by != Move::kAnyTime) {
          OUTSIZE_CHECK(static_cast<size_t>(by) >= runs_.size(),
                        "step {} waits for a copy of storage {} that comes later", by,
                        part(i).where.storage.value);
          due_[static_cast<size_t>(by)].push_back(here);
        }
      }
      out_.plan.instructions.push_back(std::move(c));
    }
  }

  void bring_in(const Move& m) {
    size_t i = static_cast<size_t>(m.instance);
    const Copied& from = below(i, m.below);
    OUTSIZE_CHECK(from.residency.valid(), "instance {} of storage {} is not on {}", i,
                  part(i).where.storage.value, kTierNames.name(m.below));
    device_[i] = add(i, Tier::kDevice);
    copy(m, from.residency, device_[i], true, from.version);
  }

  void send_out(const Move& m) {
    size_t i = static_cast<size_t>(m.instance);
    int32_t version = program_.instance(m.instance).touches[static_cast<size_t>(m.touch)].after;
    Copied& to = below(i, m.below);
    if (to.version != version || m.copy_clean) {
      if (!to.residency.valid()) {
        const Instance& in = program_.instances()[i];
        bool home =
            part(i).persistent && in.exit && m.below == in.home && Chooser::home_on_host(in);
        to.residency = home ? make_home(i, m.below) : add(i, m.below);
      }
      copy(m, device_[i], to.residency, false, version);
      to.version = version;
    }
    device_[i] = ResidencyId{};
  }

  void step(size_t rank) {
    int32_t id = program_.order()[rank];
    const Step& s = program_.step(id);
    for (int32_t operand : s.operands) {
      size_t i = static_cast<size_t>(operand);
      const Instance& in = program_.instances()[i];
      if (device_[i].valid()) continue;
      const Touch& t = in.touches[cursor_[i]];
      OUTSIZE_CHECK(!needs_content(t), "instance {} of storage {} is away when op {} needs it", i,
                    part(i).where.storage.value, s.op.value);
      if (part(i).persistent && in.exit && !Chooser::home_on_host(in)) {
        device_[i] = make_home(i, Tier::kDevice);
      } else {
        device_[i] = add(i, Tier::kDevice);
      }
    }
    Instruction run;
    run.kind = s.rerun ? InstructionKind::kRerun : InstructionKind::kRun;
    run.op = s.op;
    for (int32_t operand : s.operands) {
      ResidencyId residency = device_[static_cast<size_t>(operand)];
      use(residency);
      run.operands.push_back(residency);
    }
    run.workspace = {0, problem_.profile->ops[s.op.index()].workspace_bytes};
    for (InstructionId copied : due_[rank]) out_.waits.emplace_back(copied, InstructionId(now()));
    runs_.emplace_back(now());
    out_.plan.instructions.push_back(std::move(run));
    std::vector<int32_t> touched = s.operands;
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (int32_t operand : touched) {
      size_t i = static_cast<size_t>(operand);
      OUTSIZE_CHECK(program_.instances()[i].touches[cursor_[i]].step == id,
                    "instance {}: touch {} is not step {}", i, cursor_[i], id);
      ++cursor_[i];
    }
  }

  void leave() {
    for (size_t i = 0; i < program_.instances().size(); ++i) {
      const Instance& in = program_.instances()[i];
      if (!in.exit) continue;
      bool away = Chooser::home_on_host(in);
      ResidencyId id = away ? below(i, in.home).residency : device_[i];
      OUTSIZE_CHECK(id.valid(), "storage {} has no place at exit", part(i).where.storage.value);
      out_.stays[id.index()].life.end = kToEnd;
      out_.plan.exit.push_back({id, part(i).persistent});
    }
  }

  const Problem& problem_;
  const Program& program_;
  const std::vector<Move>& moves_;
  CopyStyle style_;
  Sequence out_;
  std::vector<ResidencyId> device_;                       // per instance: where it is now
  std::array<std::vector<Copied>, kTiers> below_;         // by tier, per instance
  std::vector<InstructionId> runs_;                       // per rank written so far
  std::vector<std::vector<InstructionId>> due_;           // per rank: copies that it waits for
  std::vector<std::vector<size_t>> releases_, arrivals_;  // per rank, and the end: moves
  std::vector<size_t> cursor_;                            // per instance: touches done
};

}  // namespace

Sequence write_sequence(const Problem& problem, const Chooser& chooser, const Program& program,
                        CopyStyle style, double slack) {
  std::vector<Move> moves = schedule_moves(problem, chooser, program, style, slack);
  return write_sequence(problem, program, moves, style);
}

Sequence write_sequence(const Problem& problem, const Program& program,
                        const std::vector<Move>& moves, CopyStyle style) {
  return Writer(problem, program, moves, style).write();
}

Plan lower_sequence(const Graph& graph, Sequence sequence) {
  Plan plan = lower(graph, std::move(sequence.plan));
  for (const auto& [before, after] : sequence.waits) {
    std::vector<InstructionId>& waits = plan.instructions[after.index()].waits;
    auto at = std::lower_bound(waits.begin(), waits.end(), before);
    if (at == waits.end() || *at != before) waits.insert(at, before);
  }
  return plan;
}

}  // namespace outsize::planning
