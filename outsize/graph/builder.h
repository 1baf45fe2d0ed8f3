// Builds graphs by hand, storages by name and ops over whole storages or parts; for tests and
// generators.
//
//   GraphBuilder b;
//   b.parameter("w", 8).input("x", 4).activation("a", 4).output("y", 4);
//   b.op("mm").reads("w", "x").makes("a");
//   b.op("relu").reads("a").makes("y");
//   Graph graph = b.build();                    // checked; a mistake throws InternalError
//
// Names become Storage::name for persistent storages only. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "outsize/base/check.h"
#include "outsize/graph/graph.h"

namespace outsize {

class GraphBuilder {
 public:
  // Adds to the op it was given for; good until the next op is begun.
  class OpBuilder {
   public:
    OpBuilder(GraphBuilder& owner, Op& op) : owner_(owner), op_(op) {}
    template <typename... Names>
    OpBuilder& reads(const Names&... names) {
      (op_.reads.push_back(owner_.whole(names)), ...);
      return *this;
    }
    template <typename... Names>
    OpBuilder& makes(const Names&... names) {
      (op_.makes.push_back(owner_.whole(names)), ...);
      return *this;
    }
    template <typename... Names>
    OpBuilder& mutates(const Names&... names) {
      (op_.mutates.push_back(owner_.whole(names)), ...);
      return *this;
    }
    OpBuilder& reads_part(const std::string& name, int64_t begin, int64_t end) {
      op_.reads.push_back({owner_.id(name), {begin, end}});
      return *this;
    }
    OpBuilder& makes_part(const std::string& name, int64_t begin, int64_t end) {
      op_.makes.push_back({owner_.id(name), {begin, end}});
      return *this;
    }
    OpBuilder& mutates_part(const std::string& name, int64_t begin, int64_t end) {
      op_.mutates.push_back({owner_.id(name), {begin, end}});
      return *this;
    }
    OpBuilder& rng() {
      op_.uses_rng = true;
      return *this;
    }
    OpBuilder& collective() {
      op_.collective = true;
      return *this;
    }
    OpBuilder& phase(const std::string& phase) {
      op_.site.phase = phase;
      return *this;
    }
    OpBuilder& module(const std::string& module) {
      op_.site.module = module;
      return *this;
    }

   private:
    GraphBuilder& owner_;
    Op& op_;
  };

  // Entry and exit content, persistent.
  GraphBuilder& parameter(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kParameter, true, true, true, name});
  }
  GraphBuilder& optimizer_state(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kOptimizerState, true, true, true, name});
  }
  // Entry content only: the batch.
  GraphBuilder& input(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kInput, true, false, false, ""});
  }
  GraphBuilder& activation(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kActivation, false, false, false, ""});
  }
  GraphBuilder& gradient(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kGradient, false, false, false, ""});
  }
  // Exit content only: the returned loss.
  GraphBuilder& output(const std::string& name, int64_t bytes) {
    return storage(name, {bytes, Role::kOutput, false, true, false, ""});
  }
  GraphBuilder& storage(const std::string& name, Storage storage) {
    const StorageId next(static_cast<int64_t>(graph_.storages.size()));
    OUTSIZE_CHECK(ids_.emplace(name, next).second, "storage '{}' is there twice", name);
    graph_.storages.push_back(std::move(storage));
    return *this;
  }

  OpBuilder op(const std::string& name) {
    graph_.ops.emplace_back().name = name;
    return {*this, graph_.ops.back()};
  }
  GraphBuilder& title(const std::string& title) {
    graph_.title = title;
    return *this;
  }

  StorageId id(const std::string& name) const {
    const auto found = ids_.find(name);
    OUTSIZE_CHECK(found != ids_.end(), "no storage '{}'", name);
    return found->second;
  }
  Access whole(const std::string& name) const {
    const StorageId storage = id(name);
    return {storage, {0, graph_.storage(storage).bytes}};
  }

  // The graph so far, checked.
  Graph build() const {
    const Status legal = check_graph(graph_);
    OUTSIZE_CHECK(legal.ok(), "{}", legal.error().message);
    return graph_;
  }
  // The graph so far, whatever it is: for tests of the checks.
  const Graph& unchecked() const { return graph_; }

 private:
  Graph graph_;
  std::map<std::string, StorageId> ids_;
};

}  // namespace outsize
