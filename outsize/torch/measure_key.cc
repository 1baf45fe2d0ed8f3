#include "outsize/torch/measure_key.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <variant>

namespace outsize {
namespace {

template <typename F>
void for_each_value(const std::vector<Argument>& arguments, const F& visit) {
  for (const Argument& argument : arguments) {
    if (const auto* value = std::get_if<ValueId>(&argument.data)) visit(*value);
    if (const auto* list = std::get_if<Argument::List>(&argument.data))
      for_each_value(*list, visit);
  }
}

std::string numbers(const std::vector<int64_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ","));
}

struct KeyWriter {
  const Graph& graph;
  std::map<StorageId, size_t> numbered;
  std::string text;

  void operator()(std::monostate) { text += "-"; }
  void operator()(bool b) { text += b ? "true" : "false"; }
  void operator()(int64_t i) { text += fmt::format("{}", i); }
  void operator()(double d) { text += fmt::format("{:a}", d); }
  void operator()(const std::string& s) { text += fmt::format("\"{}\"", s); }
  void operator()(const Keyword& word) { text += word.kind + "=" + word.text; }
  // Times don't depend on a number known only when the step runs.
  void operator()(ScalarId) { text += "scalar"; }
  void operator()(ValueId id) {
    const Value& value = graph.value(id);
    const auto found = numbered.find(value.storage);
    text += fmt::format("t{}:{}{}/{}+{}{}{}",
                        found == numbered.end() ? std::string("?") : std::to_string(found->second),
                        value.dtype, numbers(value.sizes), numbers(value.strides), value.offset,
                        value.conj ? "c" : "", value.neg ? "n" : "");
  }
  void operator()(const Argument::List& list) {
    text += "[";
    write(list);
    text += "]";
  }
  void write(const std::vector<Argument>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (i > 0) text += ", ";
      std::visit(*this, arguments[i].data);
    }
  }
};

}  // namespace

std::vector<LocalStorage> local_storages(const Graph& graph, OpId id) {
  const Op& op = graph.op(id);
  std::vector<LocalStorage> locals;
  std::map<StorageId, size_t> numbered;
  const auto add = [&](const Access& access, bool read) {
    const auto [found, made] = numbered.try_emplace(access.storage, locals.size());
    if (made) locals.push_back({access.storage, access.bytes, "", false});
    LocalStorage& local = locals[found->second];
    local.hull = {std::min(local.hull.begin, access.bytes.begin),
                  std::max(local.hull.end, access.bytes.end)};
    local.read = local.read || read;
  };
  for (const Access& access : op.reads) add(access, true);
  for (const Access& access : op.makes) add(access, false);
  for (const Access& access : op.mutates) add(access, true);
  const auto note_dtype = [&](ValueId value) {
    const auto found = numbered.find(graph.value(value).storage);
    if (found != numbered.end() && locals[found->second].dtype.empty())
      locals[found->second].dtype = graph.value(value).dtype;
  };
  for_each_value(op.args, note_dtype);
  for_each_value(op.results, note_dtype);
  return locals;
}

std::string measure_key(const Graph& graph, OpId id, const std::set<StorageId>& given) {
  const Op& op = graph.op(id);
  KeyWriter writer{graph, {}, op.name + "("};
  const std::vector<LocalStorage> locals = local_storages(graph, id);
  for (size_t i = 0; i < locals.size(); ++i) writer.numbered.emplace(locals[i].storage, i);
  writer.write(op.args);
  writer.text += ") -> ";
  writer.write(op.results);
  const auto accesses = [&](const char* what, const std::vector<Access>& list) {
    writer.text += fmt::format("; {}", what);
    for (const Access& access : list)
      writer.text += fmt::format(" t{}[{},{})", writer.numbered.at(access.storage),
                                 access.bytes.begin, access.bytes.end);
  };
  accesses("reads", op.reads);
  accesses("makes", op.makes);
  accesses("mutates", op.mutates);
  writer.text += "; storages";
  for (const LocalStorage& local : locals)
    writer.text += fmt::format(" {}{}", graph.storage(local.storage).bytes,
                               given.contains(local.storage) ? "given" : "");
  return writer.text;
}

}  // namespace outsize
