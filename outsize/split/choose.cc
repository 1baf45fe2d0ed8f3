#include "outsize/split/choose.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace outsize {
namespace {

// Cutting convolution_backward by output makes an op that can be cut by image; nothing goes deeper.
constexpr int kRounds = 3;
// Other numbers of pieces tried where the kernel's bits differ in the first.
constexpr int kTries = 4;
constexpr int64_t kVector = 64;

std::string place_of(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  std::string text = op.name;
  if (!op.site.module.empty())
    text += " (" + op.site.module + ")";
  else if (!op.site.file.empty())
    text += fmt::format(" ({}:{})", op.site.file, op.site.line);
  return text;
}

// Ops that are cut into the same number of pieces, and the storages between them that then are
// never whole.
struct Group {
  std::vector<OpId> ops;
  std::set<StorageId> storages;
  int64_t common = 0;  // every op's count is a multiple of it
  int64_t wanted = 2;  // pieces
};

struct Refusal {
  OpId op;
  std::string why;
};

class Round {
 public:
  Round(const Graph& graph, const SplitOptions& options,
        const std::vector<int64_t>& workspace_bytes, std::vector<SplitRefused>& refused)
      : graph_(graph),
        options_(options),
        held_(held_bytes(graph, workspace_bytes)),
        workspace_bytes_(workspace_bytes),
        refused_(refused),
        touching_(graph.storages.size()) {
    for (size_t t = 0; t < graph.ops.size(); ++t) {
      const OpId id(static_cast<int64_t>(t));
      slicings_.push_back(slicing_of(graph, id));
      std::set<StorageId> touched;
      for (const auto* list : {&graph.ops[t].reads, &graph.ops[t].makes, &graph.ops[t].mutates})
        for (const Access& access : *list) touched.insert(access.storage);
      for (const StorageId storage : touched) touching_[storage.index()].push_back(id);
    }
  }

  // The cuts that are wanted and proved.
  Result<std::vector<Cut>> cuts() {
    for (;;) {
      std::vector<Cut> cuts;
      bool again = false;
      for (const Group& group : groups()) {
        Result<std::vector<Cut>> found = cuts_of_group(group);
        if (!found.ok()) return found.error();
        if (found->empty()) {
          again = true;  // an op of the group can't be cut: form groups without it
          break;
        }
        const auto run = static_cast<int64_t>(cuts.size());
        for (Cut& cut : *found) {
          cut.run = run;
          cuts.push_back(std::move(cut));
        }
      }
      if (!again) return cuts;
    }
  }

  const std::vector<int64_t>& held() const { return held_; }
  // Takes the op out of what may be cut.
  void refuse(OpId op, const std::string& why) {
    if (!slicings_[op.index()]) return;
    refused_.push_back({place_of(graph_, op), slicings_[op.index()]->kind, why});
    slicings_[op.index()].reset();
  }

 private:
  const std::optional<Slicing>& slicing(OpId op) const { return slicings_[op.index()]; }

  bool tiles(OpId op, StorageId storage) const {
    const auto& how = slicing(op);
    if (!how) return false;
    bool any = false;
    for (const auto& [id, sliced] : how->values) {
      if (graph_.value(id).storage != storage) continue;
      if (!sliced.tiles(graph_.storage(storage))) return false;
      any = true;
    }
    if (!any) return false;
    // A value on it that is not cut needs all of it.
    for (const auto* list : {&graph_.op(op).args, &graph_.op(op).results})
      for (const Argument& argument : *list)
        if (const auto* id = std::get_if<ValueId>(&argument.data))
          if (graph_.value(*id).storage == storage && !how->values.contains(*id)) return false;
    return true;
  }

  // Never needed whole: everything that touches it can be cut along it.
  bool can_be_pieces(StorageId id) const {
    const Storage& storage = graph_.storage(id);
    if (storage.entry || storage.exit || storage.persistent) return false;
    if (storage.bytes < options_.largest_bytes / 4) return false;
    const auto& ops = touching_[id.index()];
    return std::all_of(ops.begin(), ops.end(), [&](OpId op) { return tiles(op, id); });
  }

  std::vector<Group> groups() const {
    std::vector<Group> out;
    std::set<OpId> taken;
    std::map<int64_t, size_t> list_groups;  // by count of items
    for (size_t t = 0; t < graph_.ops.size(); ++t) {
      const OpId op(static_cast<int64_t>(t));
      if (held_[t] <= options_.largest_bytes || !slicing(op) || taken.contains(op)) continue;
      const CutKind kind = slicing(op)->kind;
      if ((kind == CutKind::kItems || kind == CutKind::kOutputs) &&
          held_[t] < 2 * options_.least_piece_bytes)
        continue;
      if (kind == CutKind::kItems) {
        const auto [at, fresh] = list_groups.try_emplace(slicing(op)->count, out.size());
        if (fresh) out.emplace_back();
        out[at->second].ops.push_back(op);
        taken.insert(op);
      } else if (kind == CutKind::kOutputs) {
        out.push_back({{op}, {}, slicing(op)->count, slicing(op)->count});
        taken.insert(op);
      } else {
        std::set<OpId> ops = taken;
        Group group = grown(op, ops);
        if (!worth(group)) continue;
        taken = std::move(ops);
        out.push_back(std::move(group));
      }
    }
    return out;
  }

  Group grown(OpId first, std::set<OpId>& taken) const {
    Group group;
    group.ops = {first};
    group.common = slicing(first)->count;
    taken.insert(first);
    for (size_t i = 0; i < group.ops.size(); ++i)
      for (const auto& [id, sliced] : slicing(group.ops[i])->values) {
        const StorageId storage = graph_.value(id).storage;
        if (group.storages.contains(storage) || !can_be_pieces(storage)) continue;
        int64_t common = group.common;
        bool free = true;
        for (const OpId op : touching_[storage.index()]) {
          common = std::gcd(common, slicing(op)->count);
          const bool ours = std::find(group.ops.begin(), group.ops.end(), op) != group.ops.end();
          free = free && (ours || !taken.contains(op));
        }
        // Too coarse together: that storage stays whole.
        if (!free || common < std::min<int64_t>(group.common, 8)) continue;
        group.common = common;
        group.storages.insert(storage);
        for (const OpId op : touching_[storage.index()])
          if (taken.insert(op).second) group.ops.push_back(op);
      }
    std::sort(group.ops.begin(), group.ops.end());
    for (const OpId op : group.ops) group.wanted = std::max(group.wanted, pieces_wanted(group, op));
    return group;
  }

  // Bytes of the op's operands that are never whole in this group; and its workspace, which kernels
  // size by what they work on (how well is seen when the pieces are profiled).
  int64_t bytes_in_pieces(const Group& group, OpId op) const {
    int64_t bytes = workspace_bytes_.empty() ? 0 : workspace_bytes_[op.index()];
    std::set<StorageId> counted;
    for (const auto& [id, sliced] : slicing(op)->values) {
      const StorageId storage = graph_.value(id).storage;
      if (group.storages.contains(storage) && counted.insert(storage).second)
        bytes += graph_.storage(storage).bytes;
    }
    return bytes;
  }

  // Whether some op that needs too much will need a tenth less.
  bool worth(const Group& group) const {
    return std::any_of(group.ops.begin(), group.ops.end(), [&](OpId op) {
      const int64_t in_pieces = bytes_in_pieces(group, op);
      return held_[op.index()] > options_.largest_bytes && in_pieces >= held_[op.index()] / 10 &&
             in_pieces >= 2 * options_.least_piece_bytes;
    });
  }

  // Into how many pieces the op has to be cut to need no more than it should.
  int64_t pieces_wanted(const Group& group, OpId op) const {
    const int64_t held = held_[op.index()];
    if (held <= options_.largest_bytes) return 2;
    const int64_t cut = bytes_in_pieces(group, op);
    if (cut == 0) return 2;
    const int64_t room =
        std::max(options_.largest_bytes - (held - cut), options_.largest_bytes / 4);
    const int64_t most =
        std::max<int64_t>(2, cut / std::max<int64_t>(1, options_.least_piece_bytes));
    return std::clamp<int64_t>((cut + room - 1) / std::max<int64_t>(1, room), 2, most);
  }

  // Cuts for a whole group; none if an op was found that can't be cut (it is refused then).
  Result<std::vector<Cut>> cuts_of_group(const Group& group) {
    const CutKind kind = slicing(group.ops.front())->kind;
    if (kind == CutKind::kItems) return proved(group, item_bounds(group));
    if (kind == CutKind::kOutputs) {
      std::vector<int64_t> bounds(static_cast<size_t>(group.common) + 1);
      std::iota(bounds.begin(), bounds.end(), 0);
      return proved(group, bounds);
    }
    Refusal differs;
    for (const int64_t pieces : numbers_to_try(group)) {
      Result<std::vector<Cut>> found = try_cuts(group, even_bounds(group, pieces), differs);
      if (!found.ok() || !found->empty()) return found;
    }
    refuse(differs.op, differs.why);
    return std::vector<Cut>();
  }

  Result<std::vector<Cut>> proved(const Group& group, const std::vector<int64_t>& bounds) {
    Refusal differs;
    Result<std::vector<Cut>> found = try_cuts(group, bounds, differs);
    if (found.ok() && found->empty()) refuse(differs.op, differs.why);
    return found;
  }

  // `bounds` in units of the group; empty if the bits of some op differ: it is put into `differs`.
  Result<std::vector<Cut>> try_cuts(const Group& group, const std::vector<int64_t>& bounds,
                                    Refusal& differs) {
    std::vector<Cut> cuts;
    if (bounds.size() < 3) {
      differs = {group.ops.front(), "it has one piece"};
      return cuts;
    }
    for (const OpId op : group.ops) {
      const Slicing& how = *slicing(op);
      Cut cut{op, how.kind, bounds, -1};
      for (int64_t& bound : cut.bounds) bound *= how.count / bounds.back();
      const Result<Proof> proof = options_.prove(graph_, cut);
      if (!proof.ok()) return proof.error();
      if (!proof->equal) {
        differs = {op, proof->why};
        return std::vector<Cut>();
      }
      cuts.push_back(std::move(cut));
    }
    return cuts;
  }

  // As many pieces as are wanted or a few more, then fewer, which is better than none.
  static std::vector<int64_t> numbers_to_try(const Group& group) {
    std::vector<int64_t> numbers;
    int64_t pieces = std::min(group.wanted, group.common);
    for (int attempt = 0; attempt < kTries && pieces <= group.common; ++attempt, ++pieces)
      numbers.push_back(pieces = next_divisor(group.common, pieces));
    for (pieces = numbers.front() / 2; pieces >= 2; pieces /= 2) numbers.push_back(pieces);
    return numbers;
  }

  // The least divisor of `whole` from `least` to twice that, else `least`: even pieces if they can
  // be had.
  static int64_t next_divisor(int64_t whole, int64_t least) {
    for (int64_t d = least; d <= 2 * least && d <= whole; ++d)
      if (whole % d == 0) return d;
    return least;
  }

  std::vector<int64_t> even_bounds(const Group& group, int64_t pieces) const {
    const bool elements = std::all_of(group.ops.begin(), group.ops.end(), [&](OpId op) {
      return slicing(op)->kind == CutKind::kElements;
    });
    const int64_t step = elements ? kVector : 1;
    std::vector<int64_t> bounds = {0};
    for (int64_t i = 1; i < pieces; ++i) {
      const int64_t at =
          (group.common / pieces * i + group.common % pieces * i / pieces) / step * step;
      if (at > bounds.back()) bounds.push_back(at);
    }
    bounds.push_back(group.common);
    return bounds;
  }

  // Items one after another, small ones together, none together with one that is large by itself.
  std::vector<int64_t> item_bounds(const Group& group) const {
    std::vector<int64_t> bytes(static_cast<size_t>(slicing(group.ops.front())->count), 0);
    for (const OpId op : group.ops) {
      std::vector<int64_t> of_op(bytes.size(), 0);
      for (const auto* arguments : {&graph_.op(op).args, &graph_.op(op).results})
        for (const Argument& argument : *arguments)
          if (const auto* list = std::get_if<Argument::List>(&argument.data);
              list != nullptr && list->size() == bytes.size())
            for (size_t i = 0; i < list->size(); ++i)
              if (const auto* id = std::get_if<ValueId>(&(*list)[i].data))
                of_op[i] += graph_.storage(graph_.value(*id).storage).bytes;
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::max(bytes[i], of_op[i]);
    }
    const int64_t most = options_.largest_bytes / 2;
    std::vector<int64_t> bounds = {0};
    int64_t sum = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (static_cast<int64_t>(i) > bounds.back() && sum + bytes[i] > most) {
        bounds.push_back(static_cast<int64_t>(i));
        sum = 0;
      }
      sum += bytes[i];
    }
    bounds.push_back(static_cast<int64_t>(bytes.size()));
    return bounds;
  }

  const Graph& graph_;
  const SplitOptions& options_;
  const std::vector<int64_t> held_;
  const std::vector<int64_t> workspace_bytes_;
  std::vector<SplitRefused>& refused_;
  std::vector<std::vector<OpId>> touching_;
  std::vector<std::optional<Slicing>> slicings_;
};

// What the ops of the next graph are thought to need for a workspace: pieces less than their op,
// but an op cut by its outputs may need all of it for one of them.
std::vector<int64_t> workspaces_after(const std::vector<int64_t>& before,
                                      const std::vector<OpId>& origin,
                                      const std::vector<Cut>& cuts) {
  if (before.empty()) return {};
  std::map<OpId, int64_t> pieces;
  for (const Cut& cut : cuts)
    if (cut.kind != CutKind::kOutputs) pieces[cut.op] = cut.pieces();
  std::vector<int64_t> after;
  for (const OpId op : origin) {
    const auto cut = pieces.find(op);
    after.push_back(before[op.index()] / (cut == pieces.end() ? 1 : cut->second));
  }
  return after;
}

}  // namespace

Result<Split> split_graph(const Graph& graph, const SplitOptions& options) {
  OUTSIZE_CHECK(options.prove != nullptr, "a split needs proofs");
  if (options.largest_bytes <= 0)
    return bad_input("largest_bytes: wanted more than 0, had {}", options.largest_bytes);
  Split split;
  split.graph = graph;
  const std::vector<int64_t> before = held_bytes(graph, options.workspace_bytes);
  if (std::none_of(before.begin(), before.end(),
                   [&](int64_t bytes) { return bytes > options.largest_bytes; }))
    return split;
  split.graph = without_shape_reads(graph);
  std::vector<int64_t> workspaces = options.workspace_bytes;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<SplitRefused> refused;
    Round one(split.graph, options, workspaces, refused);
    Result<std::vector<Cut>> cuts = one.cuts();
    if (!cuts.ok()) return cuts.error();
    // What an earlier round refused is refused again.
    const std::vector<SplitRefused> earlier = split.refused;
    std::copy_if(refused.begin(), refused.end(), std::back_inserter(split.refused),
                 [&](const SplitRefused& one_more) {
                   return std::find(earlier.begin(), earlier.end(), one_more) == earlier.end();
                 });
    if (cuts->empty()) break;
    settle_runs(split.graph, *cuts);
    std::vector<OpId> origin;
    Result<Graph> next = apply_cuts(split.graph, *cuts, &origin);
    if (!next.ok()) return next.error();
    workspaces = workspaces_after(workspaces, origin, *cuts);
    const std::vector<int64_t> held = held_bytes(*next, workspaces);
    std::map<OpId, int64_t> most;
    for (size_t t = 0; t < held.size(); ++t) most[origin[t]] = std::max(most[origin[t]], held[t]);
    for (const Cut& cut : *cuts) {
      split.done.push_back({place_of(split.graph, cut.op), cut.kind, cut.pieces(),
                            one.held()[cut.op.index()], most[cut.op]});
    }
    split.graph = std::move(*next);
  }
  return split;
}

}  // namespace outsize
