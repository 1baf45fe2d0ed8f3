#include <algorithm>
#include <functional>
#include <map>

#include "outsize/split/split.h"

namespace outsize {
namespace {

ValueId add_value(Graph& graph, Value value) {
  graph.values.push_back(std::move(value));
  return ValueId(static_cast<int64_t>(graph.values.size()) - 1);
}

// A storage of a new contiguous tensor, and the tensor.
ValueId add_tensor(Graph& graph, const std::string& dtype, std::vector<int64_t> sizes) {
  Value value;
  value.storage = StorageId(static_cast<int64_t>(graph.storages.size()));
  value.dtype = dtype;
  value.sizes = std::move(sizes);
  value.strides.resize(value.sizes.size());
  int64_t stride = 1;
  for (size_t d = value.sizes.size(); d-- > 0;) {
    value.strides[d] = stride;
    stride *= std::max<int64_t>(1, value.sizes[d]);
  }
  Storage storage;
  storage.bytes = count_of(value) * element_bytes(dtype);
  graph.storages.push_back(storage);
  return add_value(graph, std::move(value));
}

Access access_of(const Graph& graph, ValueId value) {
  return {graph.value(value).storage, bytes_of(graph.value(value))};
}

using ValueOf = std::function<ValueId(ValueId)>;

Argument replaced(const Argument& argument, const ValueOf& value_of) {
  if (const auto* id = std::get_if<ValueId>(&argument.data)) return Argument{value_of(*id)};
  if (const auto* list = std::get_if<Argument::List>(&argument.data)) {
    Argument::List out;
    for (const Argument& item : *list) out.push_back(replaced(item, value_of));
    return Argument{std::move(out)};
  }
  return argument;
}

void add_hulls(const Graph& graph, const std::vector<Argument>& arguments,
               std::map<StorageId, Interval>& hulls) {
  for (const Argument& argument : arguments) {
    if (const auto* id = std::get_if<ValueId>(&argument.data)) {
      const Access access = access_of(graph, *id);
      const auto [hull, fresh] = hulls.try_emplace(access.storage, access.bytes);
      if (fresh || access.bytes.empty()) continue;
      hull->second = {std::min(hull->second.begin, access.bytes.begin),
                      std::max(hull->second.end, access.bytes.end)};
    }
    if (const auto* list = std::get_if<Argument::List>(&argument.data))
      add_hulls(graph, *list, hulls);
  }
}

// The accesses of `whole` that `piece` still has, narrowed to what its values reach.
void set_accesses(const Graph& graph, const Op& whole, Op& piece) {
  std::map<StorageId, Interval> hulls;
  add_hulls(graph, piece.args, hulls);
  add_hulls(graph, piece.results, hulls);
  const auto narrowed = [&](const std::vector<Access>& accesses) {
    std::vector<Access> out;
    for (const Access& access : accesses) {
      const auto hull = hulls.find(access.storage);
      if (hull != hulls.end()) out.push_back({access.storage, hull->second});
    }
    return out;
  };
  piece.reads = narrowed(whole.reads);
  piece.makes = narrowed(whole.makes);
  piece.mutates = narrowed(whole.mutates);
}

std::vector<Op> sliced_pieces(Graph& graph, const Op& op, const Slicing& slicing, const Cut& cut) {
  std::vector<Op> pieces;
  std::map<ValueId, ValueId> whole_views;  // values that all pieces take whole, but seen otherwise
  for (size_t i = 0; i + 1 < cut.bounds.size(); ++i) {
    std::map<ValueId, ValueId> made;
    const ValueOf value_of = [&](ValueId id) {
      const auto sliced = slicing.values.find(id);
      if (sliced == slicing.values.end()) return id;
      const bool whole = sliced->second.dim < 0;
      if (whole && sliced->second.view == graph.value(id)) return id;
      auto [known, fresh] = (whole ? whole_views : made).try_emplace(id);
      if (fresh)
        known->second = add_value(graph, sliced->second.piece(cut.bounds[i], cut.bounds[i + 1]));
      return known->second;
    };
    Op piece = op;
    piece.args.clear();
    piece.results.clear();
    for (const Argument& argument : slicing.args)
      piece.args.push_back(replaced(argument, value_of));
    for (const Argument& result : op.results) piece.results.push_back(replaced(result, value_of));
    set_accesses(graph, op, piece);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Op> item_pieces(const Graph& graph, const Op& op, const Cut& cut) {
  const auto whole = static_cast<size_t>(cut.bounds.back());
  std::vector<Op> pieces;
  for (size_t i = 0; i + 1 < cut.bounds.size(); ++i) {
    const auto begin = cut.bounds[i], end = cut.bounds[i + 1];
    const auto items = [&](const std::vector<Argument>& arguments) {
      std::vector<Argument> out = arguments;
      for (Argument& argument : out) {
        auto* list = std::get_if<Argument::List>(&argument.data);
        // Lists of numbers go with the tensors, one each.
        if (list == nullptr || list->size() != whole) continue;
        *list = Argument::List(list->begin() + begin, list->begin() + end);
      }
      return out;
    };
    Op piece = op;
    piece.args = items(op.args);
    piece.results = items(op.results);
    set_accesses(graph, op, piece);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Op> output_pieces(const Graph& graph, const Op& op) {
  std::vector<Op> pieces;
  for (size_t wanted = 0; wanted < op.results.size(); ++wanted) {
    if (!std::holds_alternative<ValueId>(op.results[wanted].data)) continue;
    Op piece = op;
    auto& mask = std::get<Argument::List>(piece.args.back().data);
    for (size_t i = 0; i < mask.size(); ++i) {
      mask[i] = Argument{i == wanted};
      if (i != wanted) piece.results[i] = Argument{};
    }
    set_accesses(graph, op, piece);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// What the loss of [n, c] picks, row by row, then the loss of those [n, 1]:
//   before: index = clamp_min(target, 0) as [n, 1]; sign = clamp_max(target, 0)
//   pieces: picked[b:e] = gather(input[b:e], 1, index[b:e])
//   after:  loss, total = nll_loss_forward(picked, sign, …)
// Ignored rows keep their negative target, all others point at the one element of their row.
Pieces loss_pieces(Graph& graph, const Op& op, const Slicing& slicing, const Cut& cut) {
  const auto input = std::get<ValueId>(op.args[0].data);
  const auto target = std::get<ValueId>(op.args[1].data);
  const int64_t rows = slicing.count;
  const auto make = [&](const std::string& name, std::vector<Argument> args, ValueId reads,
                        ValueId result) {
    Op made;
    made.name = name;
    made.args = std::move(args);
    made.results = {Argument{result}};
    made.reads = {access_of(graph, reads)};
    made.makes = {access_of(graph, result)};
    made.site = op.site;
    return made;
  };
  Pieces out;
  const ValueId index = add_tensor(graph, "int64", {rows});
  const ValueId sign = add_tensor(graph, "int64", {rows});
  const ValueId picked = add_tensor(graph, graph.value(input).dtype, {rows, 1});
  const Argument zero{int64_t{0}};
  out.before.push_back(make("aten.clamp_min.default", {Argument{target}, zero}, target, index));
  out.before.push_back(make("aten.clamp_max.default", {Argument{target}, zero}, target, sign));
  const SlicedValue& input_slices = slicing.values.at(input);
  Value column = graph.value(index);
  column.sizes = {rows, 1};
  column.strides = {1, 1};
  const SlicedValue index_slices{column, 0, 1};
  const SlicedValue picked_slices{graph.value(picked), 0, 1};
  for (size_t i = 0; i + 1 < cut.bounds.size(); ++i) {
    const int64_t begin = cut.bounds[i], end = cut.bounds[i + 1];
    const ValueId from = add_value(graph, input_slices.piece(begin, end));
    const ValueId at = add_value(graph, index_slices.piece(begin, end));
    const ValueId to = add_value(graph, picked_slices.piece(begin, end));
    Op piece =
        make("aten.gather.default",
             {Argument{from}, Argument{int64_t{1}}, Argument{at}, Argument{false}}, from, to);
    piece.reads.push_back(access_of(graph, at));
    out.pieces.push_back(std::move(piece));
  }
  Op loss = op;
  loss.args[0] = Argument{picked};
  loss.args[1] = Argument{sign};
  loss.reads = {access_of(graph, picked), access_of(graph, sign)};
  out.after.push_back(std::move(loss));
  return out;
}

}  // namespace

std::vector<Cut> cuts_of(const Graph& graph, OpId op) {
  const std::optional<Slicing> slicing = slicing_of(graph, op);
  if (!slicing) return {};
  Cut cut{op, slicing->kind, {}, -1};
  const int64_t step = slicing->kind == CutKind::kElements ? 64 : 1;
  for (int64_t at = 0; at < slicing->count; at += step) cut.bounds.push_back(at);
  cut.bounds.push_back(slicing->count);
  if (cut.pieces() < 2) return {};
  return {cut};
}

Result<Pieces> pieces_of(Graph& graph, const Cut& cut) {
  if (!cut.op.valid() || cut.op.index() >= graph.ops.size())
    return bad_input("a cut of op {}; there are {}", cut.op.value, graph.ops.size());
  const Op op = graph.op(cut.op);
  const std::optional<Slicing> slicing = slicing_of(graph, cut.op);
  if (!slicing || slicing->kind != cut.kind)
    return bad_input("op {} {} can't be cut by {}", cut.op.value, op.name,
                     kCutKindNames.name(cut.kind));
  const bool ascending =
      std::is_sorted(cut.bounds.begin(), cut.bounds.end()) &&
      std::adjacent_find(cut.bounds.begin(), cut.bounds.end()) == cut.bounds.end();
  if (cut.bounds.size() < 2 || !ascending || cut.bounds.front() != 0 ||
      cut.bounds.back() != slicing->count)
    return bad_input("op {} {}: wanted bounds that go up from 0 to {}", cut.op.value, op.name,
                     slicing->count);
  switch (cut.kind) {
    case CutKind::kItems:
      return Pieces{{}, item_pieces(graph, op, cut), {}};
    case CutKind::kElements:
    case CutKind::kRows:
      return Pieces{{}, sliced_pieces(graph, op, *slicing, cut), {}};
    case CutKind::kOutputs:
      if (cut.pieces() != slicing->count)
        return bad_input("op {} {}: wanted one piece for each of {} outputs, had {}", cut.op.value,
                         op.name, slicing->count, cut.pieces());
      return Pieces{{}, output_pieces(graph, op), {}};
    case CutKind::kLoss:
      return loss_pieces(graph, op, *slicing, cut);
  }
  return bad_input("no such kind of cut");
}

}  // namespace outsize
