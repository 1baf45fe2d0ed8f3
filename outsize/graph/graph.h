// The graph: what one training step is. Ops in program order, the values they read and make, the
// storages behind them, and the scalars (learning rate, beta ** step) that ops take as numbers.
//
//   x (input, 100 B) ──op0──► A (activation, 100 B) ──op1──► y (output, 100 B)
//   ops[0].reads = {x[0,100)}, .makes = {A[0,100)};  ops[1].reads = {A[0,100)}, .makes = {y[0,100)}
//
// Storages are the unit of memory; values are views on them (sizes, strides, offset), so pure view
// ops are not ops here: they only give a storage another value. An access names a byte range, so
// that a split op can read or make a part of a storage. Program order is the order of `ops`; any
// order that gives every read the bytes program order gives it (and keeps the RNG and collective
// chains) computes the same step. Plain value types; nothing here owns memory of the step itself.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "outsize/base/ids.h"
#include "outsize/base/interval.h"
#include "outsize/base/names.h"
#include "outsize/base/result.h"

namespace outsize {

enum class Role {
  kParameter,
  kBuffer,
  kGradient,
  kOptimizerState,
  kInput,
  kConstant,
  kActivation,
  kOutput,
};
inline constexpr EnumNames<Role, 8> kRoleNames{{{{Role::kParameter, "parameter"},
                                                 {Role::kBuffer, "buffer"},
                                                 {Role::kGradient, "gradient"},
                                                 {Role::kOptimizerState, "optimizer_state"},
                                                 {Role::kInput, "input"},
                                                 {Role::kConstant, "constant"},
                                                 {Role::kActivation, "activation"},
                                                 {Role::kOutput, "output"}}}};

// A storage: bytes, and what of them crosses the border between steps.
//   parameter       entry, exit, persistent     first step's new optimizer state   exit, persistent
//   batch           entry                       a .grad that the step drops first  entry,
//   persistent returned loss   exit                        activation                         none
//   of the three
struct Storage {
  int64_t bytes = 0;
  Role role = Role::kActivation;
  bool entry = false;       // holds content before op 0
  bool exit = false;        // its content is wanted after the last op
  bool persistent = false;  // has a home between steps
  std::string name;  // unique among persistent storages and the same in every graph of a model
  bool operator==(const Storage&) const = default;
};

// A tensor: a strided view on a storage. Sizes, strides and offset in elements, as PyTorch has
// them.
struct Value {
  StorageId storage;
  std::string
      dtype;  // PyTorch's name: "float32", "bfloat16", "int64", "bool", ...; empty if unknown
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  bool conj = false;
  bool neg = false;
  bool operator==(const Value&) const = default;
};

// A word from PyTorch's vocabulary, e.g. {"dtype", "float32"}, {"device", "cpu"},
// {"layout", "strided"}, {"memory_format", "channels_last"}.
struct Keyword {
  std::string kind;
  std::string text;
  bool operator==(const Keyword&) const = default;
};
inline constexpr std::string_view kKeywordKinds[] = {"dtype", "device", "layout", "memory_format"};

// One argument or result of an op: none, a literal, a value, a scalar, a word, or a list of these.
struct Argument {
  using List = std::vector<Argument>;
  std::variant<std::monostate, bool, int64_t, double, std::string, ValueId, ScalarId, Keyword, List>
      data;
  bool operator==(const Argument&) const = default;
};

// Where an op came from in the user's program.
struct Site {
  std::string module;  // "transformer.h.3.mlp"; empty outside modules
  std::string file;
  int64_t line = 0;
  std::string phase;  // "forward", "backward", "optimizer" or empty
  bool operator==(const Site&) const = default;
};

// A byte range of a storage, as an op touches it.
struct Access {
  StorageId storage;
  Interval bytes;
  bool operator==(const Access&) const = default;
};

struct Op {
  std::string name;               // "aten.addmm.default"; imported traces: any word
  std::vector<Argument> args;     // in schema order, keyword-only ones included; empty if imported
  std::vector<Argument> results;  // what it returns: values (or lists of them), scalars, none
  std::vector<Access> reads;      // content needed, left as it is
  std::vector<Access> makes;      // first write: allocated by the op, no earlier content needed
  std::vector<Access> mutates;    // content needed and changed in place
  bool uses_rng = false;          // draws from the device's generator; such ops keep their order
  bool collective = false;        // such ops keep their order
  bool host_sync = false;         // hands a value to the host (aten._local_scalar_dense)
  Site site;
  bool operator==(const Op&) const = default;
};

enum class ScalarKind { kInput, kItem, kOp };
inline constexpr EnumNames<ScalarKind, 3> kScalarKindNames{
    {{{ScalarKind::kInput, "input"}, {ScalarKind::kItem, "item"}, {ScalarKind::kOp, "op"}}}};

using Number = std::variant<bool, int64_t, double>;

// A number known only when the step runs.
//   input: handed in at each call (a learning rate);  item: read by the op that lists it in its
//   results;  op: `function` of `args` (literals or earlier scalars), with Python's meaning and
//   bits: add sub mul truediv floordiv mod pow neg abs min max sqrt float int and or not, and
//   comparisons eq ne lt le gt ge.
struct Scalar {
  ScalarKind kind = ScalarKind::kInput;
  std::string name;               // inputs: unique ("optimizer.0.group.0.lr")
  std::string function;           // ops
  std::vector<Argument> args;     // ops
  std::optional<Number> present;  // its value at capture, where that is known
  bool operator==(const Scalar&) const = default;
};

// A branch taken on a scalar at capture. The graph holds only while every guard has its outcome.
struct Guard {
  ScalarId scalar;
  Number outcome;
  Site site;
  bool operator==(const Guard&) const = default;
};

struct Graph {
  std::string title;
  std::string torch_version;  // empty if imported
  std::string device_type;    // "cpu", "cuda"; empty if imported
  int64_t threads = 0;        // 0: does not depend on it
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<Scalar> scalars;
  std::vector<Guard> guards;
  std::vector<Op> ops;

  const Storage& storage(StorageId id) const { return storages[id.index()]; }
  const Value& value(ValueId id) const { return values[id.index()]; }
  const Op& op(OpId id) const { return ops[id.index()]; }
  bool operator==(const Graph&) const = default;
};

// The bytes of its storage that a value can reach: {first, one past last}. Needs a known dtype.
Interval bytes_of(const Value& value);
// Bytes per element; 0 for an unknown dtype.
int64_t element_bytes(const std::string& dtype);

// The first violation of the graph's own rules, with a witness: ids in range, accesses inside their
// storages, every byte written (or there at entry) before it is read, `makes` only on bytes nobody
// wrote before, scalars in order, unique names, sizes within 2^62.
Status check_graph(const Graph& graph);

// The same step by storages alone: when each is touched, how much lives when. Program order.
struct Liveness {
  std::vector<int64_t> live_bytes;  // per op: bytes that must exist while it runs, no plan
  std::vector<std::vector<OpId>> touched_by;  // per storage: ops touching it, ascending
  int64_t peak_bytes = 0;                     // max of live_bytes
  int64_t largest_working_set = 0;            // max over ops of the bytes one op touches
  OpId peak_op, largest_op;
  int64_t persistent_bytes = 0;
};
// `workspace_bytes[op]` is added to an op's own moment and working set; pass {} for none. A storage
// lives from op 0 if it has entry content, else from its first access; to the last op if it has
// exit content, else to its last access (entry content that no op touches does not live at all). So
// a persistent storage with both lives for ever. Requires: ids in range.
Liveness liveness_of(const Graph& graph, const std::vector<int64_t>& workspace_bytes);

}  // namespace outsize
