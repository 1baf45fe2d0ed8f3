// Runs and the graph with its cuts: which pieces may be done together, and in what order everything
// comes.
#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "outsize/graph/order.h"
#include "outsize/split/split.h"

namespace outsize {
namespace {

using Touches = std::vector<std::pair<Access, bool>>;  // written

Touches touches_of(const Op& op) {
  Touches touches;
  for (const Access& access : op.reads) touches.emplace_back(access, false);
  for (const Access& access : op.makes) touches.emplace_back(access, true);
  for (const Access& access : op.mutates) touches.emplace_back(access, true);
  return touches;
}

// Per storage, what the pieces of a cut touch of it.
struct PieceTouch {
  Interval bytes;
  int64_t piece;
  bool written;
};
using PieceTouches = std::map<StorageId, std::vector<PieceTouch>>;

PieceTouches piece_touches(const Pieces& pieces) {
  PieceTouches touches;
  for (size_t i = 0; i < pieces.pieces.size(); ++i)
    for (const auto& [access, written] : touches_of(pieces.pieces[i]))
      touches[access.storage].push_back({access.bytes, static_cast<int64_t>(i), written});
  return touches;
}

// Whether pieces of different places conflict: then the two can't be done piece by piece.
bool pieces_cross(const PieceTouches& a, const PieceTouches& b) {
  for (const auto& [storage, ours] : a) {
    const auto theirs = b.find(storage);
    if (theirs == b.end()) continue;
    for (const PieceTouch& x : ours)
      for (const PieceTouch& y : theirs->second)
        if (x.piece != y.piece && (x.written || y.written) && x.bytes.overlaps(y.bytes))
          return true;
  }
  return false;
}

bool touches_any(const Op& op, const PieceTouches& pieces) {
  for (const auto& [access, written] : touches_of(op))
    if (const auto found = pieces.find(access.storage); found != pieces.end())
      for (const PieceTouch& touch : found->second)
        if ((written || touch.written) && access.bytes.overlaps(touch.bytes)) return true;
  return false;
}

class RunMaker {
 public:
  RunMaker(const Graph& graph, std::vector<Cut>& cuts)
      : graph_(graph), cuts_(cuts), node_(graph.ops.size()), after_(graph.ops.size()) {
    const auto before = dependencies_of(graph);
    for (size_t t = 0; t < before.size(); ++t)
      for (const OpId earlier : before[t]) after_[earlier.index()].push_back(t);
    for (size_t t = 0; t < node_.size(); ++t) node_[t] = t;
    members_.resize(node_.size());
    for (size_t t = 0; t < node_.size(); ++t) members_[t] = {t};
  }

  void settle() {
    std::vector<size_t> order(cuts_.size());
    for (size_t c = 0; c < order.size(); ++c) order[c] = c;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return cuts_[a].op < cuts_[b].op; });
    std::map<int64_t, std::vector<size_t>> open;  // wanted run -> cuts of the last run made of it
    std::map<int64_t, int64_t> number;            // of that run
    int64_t runs = 0;
    Graph scratch = graph_;
    std::map<size_t, PieceTouches> touches;
    for (const size_t c : order) {
      const int64_t wanted = cuts_[c].run;
      const Result<Pieces> pieces = pieces_of(scratch, cuts_[c]);
      if (!pieces.ok() || wanted < 0) {
        cuts_[c].run = -1;
        continue;
      }
      touches[c] = piece_touches(*pieces);
      before_[c] = pieces->before;
      std::vector<size_t>& run = open[wanted];
      if (!run.empty() && !may_join(run, c, touches)) run.clear();
      if (run.empty())
        number[wanted] = runs++;
      else
        join(cuts_[run.front()].op.index(), cuts_[c].op.index());
      run.push_back(c);
      cuts_[c].run = number[wanted];
    }
  }

 private:
  bool may_join(const std::vector<size_t>& run, size_t c,
                const std::map<size_t, PieceTouches>& touches) const {
    if (cuts_[run.front()].pieces() != cuts_[c].pieces()) return false;
    for (const size_t member : run) {
      // What comes before the pieces goes to the head of the run.
      for (const Op& op : before_.at(c))
        if (touches_any(op, touches.at(member))) return false;
      // The loss of what was picked comes after the run.
      if (cuts_[member].kind == CutKind::kLoss) return false;
      if (pieces_cross(touches.at(member), touches.at(c))) return false;
    }
    return !leads_around(cuts_[run.front()].op.index(), cuts_[c].op.index());
  }

  // Whether a dependency leads from the run of op `from` through other ops to op `to`.
  bool leads_around(size_t from, size_t to) const {
    const size_t start = node_[from];
    std::vector<size_t> stack;
    std::set<size_t> seen;
    const auto leave = [&](size_t node, bool skip_target) {
      for (const size_t op : members_[node])
        for (const size_t next : after_[op]) {
          if (node_[next] == node || (skip_target && next == to)) continue;
          // Runs reach over program order, so only single ops beyond `to` are out of the way.
          if (next > to && members_[node_[next]].size() == 1) continue;
          if (seen.insert(node_[next]).second) stack.push_back(node_[next]);
        }
    };
    leave(start, true);
    while (!stack.empty()) {
      const size_t node = stack.back();
      stack.pop_back();
      if (node == node_[to]) return true;
      leave(node, false);
    }
    return false;
  }

  void join(size_t run_op, size_t op) {
    const size_t node = node_[run_op];
    members_[node].push_back(op);
    members_[op].clear();
    node_[op] = node;
  }

  const Graph& graph_;
  std::vector<Cut>& cuts_;
  std::vector<size_t> node_;                  // per op: the first op of its run, or itself
  std::vector<std::vector<size_t>> members_;  // per node
  std::vector<std::vector<size_t>> after_;    // per op: those that depend on it
  std::map<size_t, std::vector<Op>> before_;  // per cut: what it does before its pieces
};

}  // namespace

void settle_runs(const Graph& graph, std::vector<Cut>& cuts) { RunMaker(graph, cuts).settle(); }

Result<Graph> apply_cuts(const Graph& graph, const std::vector<Cut>& cuts,
                         std::vector<OpId>* origin) {
  Graph out = graph;
  std::map<OpId, Pieces> pieces;
  std::map<int64_t, std::vector<OpId>> runs;
  std::map<OpId, const Cut*> cut_of;
  for (const Cut& cut : cuts) {
    if (pieces.contains(cut.op)) return bad_input("op {} is cut twice", cut.op.value);
    Result<Pieces> made = pieces_of(out, cut);
    if (!made.ok()) return made.error();
    pieces[cut.op] = std::move(*made);
    cut_of[cut.op] = &cut;
    if (cut.run >= 0) runs[cut.run].push_back(cut.op);
  }
  // Ops, with those of a run as one, in program order as far as dependencies allow.
  const size_t count = graph.ops.size();
  std::vector<size_t> node(count);
  std::vector<std::vector<size_t>> members(count);
  for (size_t t = 0; t < count; ++t) node[t] = t;
  for (auto& [run, ops] : runs) {
    std::sort(ops.begin(), ops.end());
    for (const OpId op : ops) node[op.index()] = ops.front().index();
    for (const OpId op : ops)
      if (pieces[op].pieces.size() != pieces[ops.front()].pieces.size())
        return bad_input("ops {} and {} of one run have {} and {} pieces", ops.front().value,
                         op.value, pieces[ops.front()].pieces.size(), pieces[op].pieces.size());
  }
  for (size_t t = 0; t < count; ++t) members[node[t]].push_back(t);
  std::vector<std::set<size_t>> next(count);
  std::vector<size_t> waiting(count, 0);
  const auto before = dependencies_of(graph);
  for (size_t t = 0; t < count; ++t)
    for (const OpId earlier : before[t])
      if (node[earlier.index()] != node[t] && next[node[earlier.index()]].insert(node[t]).second)
        ++waiting[node[t]];
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t t = 0; t < count; ++t)
    if (node[t] == t && waiting[t] == 0) ready.push(t);
  out.ops.clear();
  size_t done = 0;
  std::vector<OpId> came_from;
  const auto append = [&](size_t of, const Op& op) {
    out.ops.push_back(op);
    came_from.emplace_back(static_cast<int64_t>(of));
  };
  while (!ready.empty()) {
    const size_t at = ready.top();
    ready.pop();
    done += members[at].size();
    if (!pieces.contains(OpId(static_cast<int64_t>(at)))) {
      append(at, graph.ops[at]);
    } else {
      const auto of = [&](size_t t) -> const Pieces& {
        return pieces[OpId(static_cast<int64_t>(t))];
      };
      for (const size_t t : members[at])
        for (const Op& op : of(t).before) append(t, op);
      for (size_t i = 0; i < of(at).pieces.size(); ++i)
        for (const size_t t : members[at]) append(t, of(t).pieces[i]);
      for (const size_t t : members[at])
        for (const Op& op : of(t).after) append(t, op);
    }
    for (const size_t later : next[at])
      if (--waiting[later] == 0) ready.push(later);
  }
  if (done != count) return bad_input("the runs of these cuts wait for each other");
  if (Status legal = check_graph(out); !legal.ok()) return legal.error();
  if (origin != nullptr) *origin = std::move(came_from);
  return out;
}

}  // namespace outsize
