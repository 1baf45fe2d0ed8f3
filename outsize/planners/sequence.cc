#include "outsize/planners/sequence.h"

#include <algorithm>
#include <numeric>

namespace outsize::planning {
namespace {

constexpr int32_t kNothing = -2;  // no version: the host holds nothing of use

class Writer {
 public:
  Writer(const Problem& problem, const Program& program, const std::vector<Move>& moves,
         CopyStyle style)
      : problem_(problem), program_(program), moves_(moves), style_(style) {
    releases_.resize(program.size() + 1);
    arrivals_.resize(program.size() + 1);
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
    host_.assign(n, ResidencyId{});
    on_host_.assign(n, kNothing);
    cursor_.assign(n, 0);
    enter();
    for (size_t r = 0; r <= program_.size(); ++r) {
      for (size_t m : releases_[r]) send_out(moves_[m]);
      for (size_t m : arrivals_[r]) bring_in(static_cast<size_t>(moves_[m].instance));
      if (r < program_.size()) step(program_.order()[r]);
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
      bool host = in.away_at_entry;
      Tier tier = host ? Tier::kHost : Tier::kDevice;
      ResidencyId id = part(i).persistent ? make_home(i, tier) : add(i, tier);
      if (!in.exit && part(i).persistent) {
        // Given up by this step: its home's bytes are free after its last use.
        out_.stays[id.index()].home = false;
        out_.stays[id.index()].life = {0, 1};
      }
      if (in.exit) out_.stays[id.index()].life.end = kToEnd;
      (host ? host_ : device_)[i] = id;
      if (host) on_host_[i] = 0;
      out_.plan.entry.push_back({id, part(i).persistent});
    }
  }

  // One copy for each stretch of bytes that holds content at `version`.
  void copy(size_t i, ResidencyId from, ResidencyId to, bool in, int32_t version) {
    for (const Interval& bytes : part(i).written[static_cast<size_t>(version)]) {
      Instruction c;
      c.kind = InstructionKind::kCopy;
      c.stream = style_ == CopyStyle::kBesideOps ? Stream::kCompute
                 : in                            ? Stream::kIn
                                                 : Stream::kOut;
      c.from = from;
      c.to = to;
      c.bytes = bytes;
      use(from);
      use(to);
      out_.plan.instructions.push_back(std::move(c));
    }
  }

  void bring_in(size_t i) {
    device_[i] = add(i, Tier::kDevice);
    OUTSIZE_CHECK(host_[i].valid(), "instance {} of storage {} is on no tier", i,
                  part(i).where.storage.value);
    copy(i, host_[i], device_[i], true, on_host_[i]);
  }

  void send_out(const Move& m) {
    size_t i = static_cast<size_t>(m.instance);
    int32_t version = program_.instance(m.instance).touches[static_cast<size_t>(m.touch)].after;
    if (on_host_[i] != version) {
      if (!host_[i].valid()) {
        bool home = part(i).persistent && program_.instances()[i].exit;
        host_[i] = home ? make_home(i, Tier::kHost) : add(i, Tier::kHost);
      }
      copy(i, device_[i], host_[i], false, version);
      on_host_[i] = version;
    }
    device_[i] = ResidencyId{};
  }

  void step(int32_t id) {
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
      ResidencyId id = part(i).persistent && Chooser::home_on_host(in) ? host_[i] : device_[i];
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
  std::vector<ResidencyId> device_, host_;  // per instance: where it is now
  std::vector<int32_t> on_host_;            // per instance: the version the host holds
  std::vector<std::vector<size_t>> releases_, arrivals_;  // per rank, and the end: moves
  std::vector<size_t> cursor_;                            // per instance: touches done
};

}  // namespace

Sequence write_sequence(const Problem& problem, const Chooser& chooser, const Program& program,
                        CopyStyle style, double slack) {
  std::vector<Move> moves = schedule_moves(problem, chooser, program, style, slack);
  return Writer(problem, program, moves, style).write();
}

}  // namespace outsize::planning
