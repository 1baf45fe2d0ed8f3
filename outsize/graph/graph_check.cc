// check_graph: each function looks at one table and returns the first thing wrong there.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "outsize/base/bytes.h"
#include "outsize/base/interval_set.h"
#include "outsize/graph/graph.h"

namespace outsize {
namespace {

constexpr int64_t kMaxEntries = std::numeric_limits<int32_t>::max();
constexpr int kMaxArgumentDepth = 64;

struct Function {
  std::string_view name;
  size_t least_args, most_args;
};
constexpr std::array<Function, 23> kFunctions{
    {{"add", 2, 2},  {"sub", 2, 2},  {"mul", 2, 2},   {"truediv", 2, 2}, {"floordiv", 2, 2},
     {"mod", 2, 2},  {"pow", 2, 2},  {"neg", 1, 1},   {"abs", 1, 1},     {"min", 2, 64},
     {"max", 2, 64}, {"sqrt", 1, 1}, {"float", 1, 1}, {"int", 1, 1},     {"and", 2, 2},
     {"or", 2, 2},   {"not", 1, 1},  {"eq", 2, 2},    {"ne", 2, 2},      {"lt", 2, 2},
     {"le", 2, 2},   {"gt", 2, 2},   {"ge", 2, 2}}};

const Function* find_function(std::string_view name) {
  for (const Function& function : kFunctions)
    if (function.name == name) return &function;
  return nullptr;
}

std::string text_of(const Interval& bytes) {
  return fmt::format("[{}, {})", bytes.begin, bytes.end);
}
std::string text_of(const Graph& graph, StorageId id) {
  const std::string& name = graph.storage(id).name;
  return name.empty() ? fmt::format("storage {}", id.value)
                      : fmt::format("storage {} ({})", id.value, name);
}
std::string text_of(const Graph& graph, size_t op) {
  return fmt::format("op {} ({})", op, graph.ops[op].name);
}

template <typename Tag, typename T>
bool exists(Id<Tag> id, const std::vector<T>& table) {
  return id.valid() && id.index() < table.size();
}

Status check_storages(const Graph& graph) {
  std::map<std::string, size_t> names;
  int64_t total = 0;
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const Storage& storage = graph.storages[s];
    const StorageId id(static_cast<int64_t>(s));
    if (storage.bytes < 0 || storage.bytes > kMaxBytes)
      return bad_input("{} has {} bytes; wanted 0 to 2^62", text_of(graph, id), storage.bytes);
    if (storage.bytes > kMaxBytes - total)
      return bad_input("storages 0 to {} have more than 2^62 bytes together", s);
    total += storage.bytes;
    if (!storage.persistent) continue;
    if (!storage.entry && !storage.exit)
      return bad_input("{} is persistent but has content neither at entry nor at exit",
                       text_of(graph, id));
    if (storage.name.empty()) continue;
    const auto [first, fresh] = names.emplace(storage.name, s);
    if (!fresh)
      return bad_input("storages {} and {} are both persistent and both named '{}'", first->second,
                       s, storage.name);
  }
  return Done{};
}

Status check_values(const Graph& graph) {
  using Wide = __int128;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (!exists(value.storage, graph.storages))
      return bad_input("value {} is on storage {}; there are {}", v, value.storage.value,
                       graph.storages.size());
    if (value.sizes.size() != value.strides.size())
      return bad_input("value {} has {} sizes and {} strides", v, value.sizes.size(),
                       value.strides.size());
    if (value.offset < 0) return bad_input("value {} has offset {}", v, value.offset);
    bool empty = false;
    for (size_t i = 0; i < value.sizes.size(); ++i) {
      if (value.sizes[i] < 0)
        return bad_input("value {} has size {} in dimension {}", v, value.sizes[i], i);
      if (value.strides[i] < 0)
        return bad_input("value {} has stride {} in dimension {}", v, value.strides[i], i);
      empty = empty || value.sizes[i] == 0;
    }
    if (value.dtype.empty()) continue;
    const int64_t element = element_bytes(value.dtype);
    if (element == 0) return bad_input("value {} has unknown dtype '{}'", v, value.dtype);
    if (empty) continue;  // reaches no byte, wherever its offset points
    Wide last = value.offset;
    for (size_t i = 0; i < value.sizes.size(); ++i) {
      last += Wide{value.sizes[i] - 1} * value.strides[i];
      if (last > kMaxBytes) break;
    }
    if ((last + 1) * element > graph.storage(value.storage).bytes)
      return bad_input("value {} reaches past the end of {}, which has {} bytes", v,
                       text_of(graph, value.storage), graph.storage(value.storage).bytes);
  }
  return Done{};
}

// Ids in an argument exist. Calls `on_scalar` for each scalar in it; that may fail too.
template <typename OnScalar>
Status check_argument(const Graph& graph, const Argument& argument, const std::string& where,
                      int depth, const OnScalar& on_scalar) {
  if (depth > kMaxArgumentDepth)
    return bad_input("{} has an argument of lists nested deeper than {}", where, kMaxArgumentDepth);
  if (const auto* value = std::get_if<ValueId>(&argument.data)) {
    if (!exists(*value, graph.values))
      return bad_input("{} names value {}; there are {}", where, value->value, graph.values.size());
  } else if (const auto* scalar = std::get_if<ScalarId>(&argument.data)) {
    if (!exists(*scalar, graph.scalars))
      return bad_input("{} names scalar {}; there are {}", where, scalar->value,
                       graph.scalars.size());
    return on_scalar(*scalar);
  } else if (const auto* keyword = std::get_if<Keyword>(&argument.data)) {
    if (std::find(std::begin(kKeywordKinds), std::end(kKeywordKinds), keyword->kind) ==
        std::end(kKeywordKinds))
      return bad_input("{} has a keyword of unknown kind '{}'", where, keyword->kind);
  } else if (const auto* list = std::get_if<Argument::List>(&argument.data)) {
    for (const Argument& item : *list)
      if (Status s = check_argument(graph, item, where, depth + 1, on_scalar); !s.ok()) return s;
  }
  return Done{};
}

template <typename OnScalar>
Status check_arguments(const Graph& graph, const std::vector<Argument>& arguments,
                       const std::string& where, const OnScalar& on_scalar) {
  for (const Argument& argument : arguments)
    if (Status s = check_argument(graph, argument, where, 0, on_scalar); !s.ok()) return s;
  return Done{};
}

Status check_scalars(const Graph& graph) {
  std::map<std::string, size_t> names;
  for (size_t i = 0; i < graph.scalars.size(); ++i) {
    const Scalar& scalar = graph.scalars[i];
    const std::string where = fmt::format("scalar {}", i);
    if (scalar.kind == ScalarKind::kInput) {
      if (scalar.name.empty()) return bad_input("{} is an input without a name", where);
      const auto [first, fresh] = names.emplace(scalar.name, i);
      if (!fresh)
        return bad_input("scalars {} and {} are both inputs named '{}'", first->second, i,
                         scalar.name);
    }
    if (scalar.kind != ScalarKind::kOp) {
      if (!scalar.function.empty() || !scalar.args.empty())
        return bad_input("{} is of kind {} but has a function or arguments", where,
                         kScalarKindNames.name(scalar.kind));
      continue;
    }
    const Function* function = find_function(scalar.function);
    if (function == nullptr)
      return bad_input("{} has unknown function '{}'", where, scalar.function);
    if (scalar.args.size() < function->least_args || scalar.args.size() > function->most_args)
      return bad_input("{} gives {} arguments to '{}', which takes {}", where, scalar.args.size(),
                       scalar.function, function->least_args);
    for (const Argument& arg : scalar.args) {
      if (const auto* id = std::get_if<ScalarId>(&arg.data)) {
        if (!id->valid() || id->index() >= i)
          return bad_input("{} is made from scalar {}, which is not before it", where, id->value);
      } else if (!std::holds_alternative<bool>(arg.data) &&
                 !std::holds_alternative<int64_t>(arg.data) &&
                 !std::holds_alternative<double>(arg.data)) {
        return bad_input("{} has an argument that is neither a number nor a scalar", where);
      }
    }
  }
  for (size_t i = 0; i < graph.guards.size(); ++i)
    if (!exists(graph.guards[i].scalar, graph.scalars))
      return bad_input("guard {} names scalar {}; there are {}", i, graph.guards[i].scalar.value,
                       graph.scalars.size());
  return Done{};
}

// Each item is given by exactly one op, and no op takes a scalar made from an item not yet given.
Status check_op_arguments(const Graph& graph) {
  const Done done;
  const auto any_scalar = [&](ScalarId) -> Status { return done; };
  std::vector<int64_t> given_by(graph.scalars.size(), -1);
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const std::string where = text_of(graph, t);
    const auto give = [&](ScalarId id) -> Status {
      if (graph.scalars[id.index()].kind != ScalarKind::kItem)
        return bad_input("{} returns scalar {}, which is not an item", where, id.value);
      if (given_by[id.index()] >= 0)
        return bad_input("{} and op {} both return scalar {}", where, given_by[id.index()],
                         id.value);
      given_by[id.index()] = static_cast<int64_t>(t);
      return done;
    };
    if (Status s = check_arguments(graph, graph.ops[t].results, where, give); !s.ok()) return s;
    if (Status s = check_arguments(graph, graph.ops[t].args, where, any_scalar); !s.ok()) return s;
  }
  // The op after which each scalar is known; -1: from the start.
  std::vector<int64_t> known_after(graph.scalars.size(), -1);
  for (size_t i = 0; i < graph.scalars.size(); ++i) {
    const Scalar& scalar = graph.scalars[i];
    if (scalar.kind == ScalarKind::kItem) {
      if (given_by[i] < 0) return bad_input("scalar {} is an item that no op returns", i);
      known_after[i] = given_by[i];
    }
    for (const Argument& arg : scalar.args)
      if (const auto* id = std::get_if<ScalarId>(&arg.data))
        known_after[i] = std::max(known_after[i], known_after[id->index()]);
  }
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const auto take = [&](ScalarId id) -> Status {
      if (known_after[id.index()] < static_cast<int64_t>(t)) return done;
      return bad_input("{} takes scalar {}, which is known only after op {}", text_of(graph, t),
                       id.value, known_after[id.index()]);
    };
    if (Status s = check_arguments(graph, graph.ops[t].args, text_of(graph, t), take); !s.ok())
      return s;
  }
  return done;
}

Status check_accesses(const Graph& graph) {
  std::vector<IntervalSet> written(graph.storages.size());
  for (size_t s = 0; s < graph.storages.size(); ++s)
    if (graph.storages[s].entry) written[s].add({0, graph.storages[s].bytes});
  const auto inside = [&](size_t t, const Access& access, std::string_view verb) -> Status {
    if (!exists(access.storage, graph.storages))
      return bad_input("{} {} storage {}; there are {}", text_of(graph, t), verb,
                       access.storage.value, graph.storages.size());
    const int64_t bytes = graph.storage(access.storage).bytes;
    if (access.bytes.begin < 0 || access.bytes.begin > access.bytes.end || access.bytes.end > bytes)
      return bad_input("{} {} bytes {} of {}, which has {}", text_of(graph, t), verb,
                       text_of(access.bytes), text_of(graph, access.storage), bytes);
    return Done{};
  };
  const auto there = [&](size_t t, const Access& access, std::string_view verb) -> Status {
    if (Status s = inside(t, access, verb); !s.ok()) return s;
    const Interval missing = written[access.storage.index()].first_missing(access.bytes);
    if (missing.empty()) return Done{};
    return bad_input("{} {} bytes {} of {}, but nothing has written {} before it",
                     text_of(graph, t), verb, text_of(access.bytes), text_of(graph, access.storage),
                     text_of(missing));
  };
  for (size_t t = 0; t < graph.ops.size(); ++t) {
    const Op& op = graph.ops[t];
    for (const Access& access : op.reads)
      if (Status s = there(t, access, "reads"); !s.ok()) return s;
    for (const Access& access : op.mutates)
      if (Status s = there(t, access, "mutates"); !s.ok()) return s;
    for (const Access& access : op.makes) {
      if (Status s = inside(t, access, "makes"); !s.ok()) return s;
      IntervalSet& set = written[access.storage.index()];
      if (const Interval old = set.first_common(access.bytes); !old.empty())
        return bad_input("{} makes bytes {} of {}, but {} was written before", text_of(graph, t),
                         text_of(access.bytes), text_of(graph, access.storage), text_of(old));
      set.add(access.bytes);
    }
  }
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    const StorageId id(static_cast<int64_t>(s));
    const Interval missing = written[s].first_missing({0, graph.storages[s].bytes});
    if (graph.storages[s].exit && !missing.empty())
      return bad_input("{} has content at exit, but nothing has written bytes {}",
                       text_of(graph, id), text_of(missing));
  }
  return Done{};
}

}  // namespace

Status check_graph(const Graph& graph) {
  const auto fits = [](size_t count) { return count <= static_cast<size_t>(kMaxEntries); };
  if (!fits(graph.storages.size()) || !fits(graph.values.size()) || !fits(graph.scalars.size()) ||
      !fits(graph.ops.size()))
    return bad_input("a graph has at most {} entries in each table", kMaxEntries);
  if (graph.threads < 0) return bad_input("threads: wanted 0 or more, had {}", graph.threads);
  for (const auto check :
       {check_storages, check_values, check_scalars, check_op_arguments, check_accesses})
    if (Status s = check(graph); !s.ok()) return s;
  return Done{};
}

}  // namespace outsize
