#include "outsize/profile/import_op_trace.h"

#include <algorithm>
#include <map>

#include "outsize/base/bytes.h"
#include "outsize/base/json.h"

namespace outsize {
namespace {

enum class TraceRole { kPersistent, kInput, kActivation, kOutput };
constexpr EnumNames<TraceRole, 4> kTraceRoleNames{{{{TraceRole::kPersistent, "persistent"},
                                                    {TraceRole::kInput, "input"},
                                                    {TraceRole::kActivation, "activation"},
                                                    {TraceRole::kOutput, "output"}}}};

// An integer and a string are different ids even where they print alike.
std::string read_key(const JsonNode& node) {
  if (node.json().is_string()) return "'" + node.string() + "'";
  return std::to_string(node.integer());
}

class Importer {
 public:
  GraphFile read(const JsonNode& root) {
    JsonFields fields(root);
    read_json_head(fields, "op-trace", 1);
    fields.optional_string("title", file_.graph.title);
    fields.skip("source");
    file_.profile.emplace();
    file_.profile->how = "stated";
    read_storages(fields.required("storages"));
    read_ops(fields.required("ops"));
    fields.finish();
    return std::move(file_);
  }

 private:
  void read_storages(const JsonNode& node) {
    const size_t count = node.size();
    for (size_t i = 0; i < count && !node.failed(); ++i) {
      const JsonNode entry = node.at(i);
      JsonFields fields(entry);
      const JsonNode id = fields.required("id");
      const std::string key = read_key(id);
      if (!ids_.emplace(key, StorageId(static_cast<int64_t>(i))).second)
        id.fail(fmt::format("storage {} is there twice", key));
      Storage storage;
      storage.bytes = fields.required("bytes").integer(0, kMaxBytes);
      switch (fields.required("role").name(kTraceRoleNames)) {
        case TraceRole::kPersistent:
          storage.role = Role::kParameter;
          storage.entry = storage.exit = storage.persistent = true;
          storage.name = id.json().is_string() ? id.string() : "storage." + key;
          break;
        case TraceRole::kInput:
          storage.role = Role::kInput;
          storage.entry = true;
          break;
        case TraceRole::kOutput:
          storage.role = Role::kOutput;
          storage.exit = true;
          break;
        case TraceRole::kActivation:
          break;
      }
      fields.finish();
      file_.graph.storages.push_back(std::move(storage));
    }
    has_content_.assign(file_.graph.storages.size(), false);
    for (size_t s = 0; s < has_content_.size(); ++s)
      has_content_[s] = file_.graph.storages[s].entry;
  }

  std::vector<StorageId> read_ids(JsonFields& owner, std::string_view name) {
    std::vector<StorageId> ids;
    const auto node = owner.optional(name);
    if (!node) return ids;
    const size_t count = node->size();
    for (size_t i = 0; i < count; ++i) {
      const JsonNode entry = node->at(i);
      const std::string key = read_key(entry);
      const auto found = ids_.find(key);
      if (found == ids_.end()) {
        entry.fail(fmt::format("no storage {}", key));
        return {};
      }
      // Named twice by one op: touched once.
      if (std::find(ids.begin(), ids.end(), found->second) == ids.end())
        ids.push_back(found->second);
    }
    return ids;
  }

  Access whole(StorageId id) const { return {id, {0, file_.graph.storage(id).bytes}}; }

  // Content that no op before has written was there when the step began.
  void need(StorageId id) {
    if (has_content_[id.index()]) return;
    has_content_[id.index()] = true;
    Storage& storage = file_.graph.storages[id.index()];
    storage.entry = true;
    if (storage.role == Role::kActivation) storage.role = Role::kInput;
  }

  void read_ops(const JsonNode& node) {
    const size_t count = node.size();
    for (size_t t = 0; t < count && !node.failed(); ++t) {
      const JsonNode entry = node.at(t);
      JsonFields fields(entry);
      Op op;
      op.name = fields.required("name").string();
      OpCost cost;
      cost.ns = fields.required("ns").integer(0);
      const std::vector<StorageId> reads = read_ids(fields, "reads");
      const std::vector<StorageId> makes = read_ids(fields, "makes");
      std::vector<StorageId> mutates = read_ids(fields, "mutates");
      fields.optional_string("phase", op.site.phase);
      fields.finish();
      if (node.failed()) return;
      for (const StorageId id : reads) need(id);
      for (const StorageId id : mutates) need(id);
      for (const StorageId id : makes) {
        if (!has_content_[id.index()])
          op.makes.push_back(whole(id));
        else if (std::find(mutates.begin(), mutates.end(), id) == mutates.end())
          mutates.push_back(id);
      }
      for (const Access& made : op.makes) has_content_[made.storage.index()] = true;
      for (const StorageId id : mutates) op.mutates.push_back(whole(id));
      // A storage that an op changes needs its content anyway.
      for (const StorageId id : reads)
        if (std::find(mutates.begin(), mutates.end(), id) == mutates.end())
          op.reads.push_back(whole(id));
      file_.graph.ops.push_back(std::move(op));
      file_.profile->ops.push_back(std::move(cost));
    }
  }

  GraphFile file_;
  std::map<std::string, StorageId> ids_;
  std::vector<bool> has_content_;
};

}  // namespace

Result<GraphFile> import_op_trace(std::string_view text) {
  const Result<Json> json = parse_json(text);
  if (!json.ok()) return json.error();
  JsonErrors errors;
  GraphFile file = Importer().read(JsonNode(*json, errors));
  if (errors.any()) return errors.first();
  if (const Status legal = check_graph(file.graph); !legal.ok()) return legal.error();
  if (const Status fits = check_profile(file.graph, *file.profile); !fits.ok()) return fits.error();
  return file;
}

}  // namespace outsize
