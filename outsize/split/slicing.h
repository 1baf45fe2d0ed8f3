// Slicing: along what an op may be cut, and how its operands are then cut with it.
//
//   tanh(a [8,512]) -> b        4096 elements: piece [b,e) takes a[b:e] and makes b[b:e]
//   mm(a [4096,512], w) -> c    4096 rows: piece [b,e) takes those rows of a, all of w, makes those
//   of c _foreach_mul_([p, q, r], s) 3 items: piece [b,e) takes items b..e and s
//
// That an op may be cut says that its results don't mix what is cut apart; whether its kernel gives
// the same bits in pieces is for a proof to find out (outsize/torch/prove.h). Pure functions of the
// graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "outsize/base/names.h"
#include "outsize/graph/graph.h"

namespace outsize {

enum class CutKind {
  kItems,     // of the lists that a _foreach_ or _fused_ op takes
  kElements,  // of a pointwise op on operands of one dense layout
  kRows,      // of the outermost dimension: rows, images, batches
  kOutputs,   // the outputs that a mask asks for, one op each
  kLoss,      // rows of the negative log-likelihood: what it picks, then the loss of that
};
inline constexpr EnumNames<CutKind, 5> kCutKindNames{{{{CutKind::kItems, "items"},
                                                       {CutKind::kElements, "elements"},
                                                       {CutKind::kRows, "rows"},
                                                       {CutKind::kOutputs, "outputs"},
                                                       {CutKind::kLoss, "loss"}}}};

// A value as pieces see it. `dim` -1: whole in each piece, though perhaps with other sizes;
// otherwise piece [b,e) is view[b*unit : e*unit] along `dim`.
struct SlicedValue {
  Value view;
  int64_t dim = -1;
  int64_t unit = 1;
  Value piece(int64_t begin, int64_t end) const;
  // Whether the pieces are consecutive ranges of the whole of `storage`, in order and without gaps.
  bool tiles(const Storage& storage) const;
};

struct Slicing {
  CutKind kind = CutKind::kRows;
  int64_t count = 0;                      // what is cut apart: items, elements, rows, outputs
  std::vector<Argument> args;             // of each piece; values not in `values` are whole
  std::map<ValueId, SlicedValue> values;  // empty for kItems and kOutputs
};

// How the op may be cut; nothing where it may not, or where it has one item or row.
std::optional<Slicing> slicing_of(const Graph& graph, OpId op);

// Whether a value's elements are exactly those of a contiguous tensor of its sizes.
bool is_contiguous(const Value& value);
int64_t count_of(const Value& value);

// The value among an op's arguments or results; none if that place holds no value.
const ValueId* value_in(const std::vector<Argument>& arguments, size_t index);

}  // namespace outsize
