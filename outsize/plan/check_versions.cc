#include "outsize/plan/check_versions.h"

#include "outsize/plan/check_ranges.h"

namespace outsize {
namespace {

void append_versions(const RangeMap<int32_t>& last_writer, Interval bytes,
                     std::vector<WantedPiece>& pieces) {
  const size_t first = pieces.size();
  last_writer.visit(bytes, [&](Interval piece, const int32_t* writer) {
    const int32_t version = writer == nullptr ? kNoVersion : *writer;
    if (pieces.size() > first && pieces.back().version == version)
      pieces.back().bytes.end = piece.end;
    else
      pieces.push_back({piece, version});
    return true;
  });
}

}  // namespace

Versions::Versions(const Graph& graph) {
  std::vector<RangeMap<int32_t>> last_writer(graph.storages.size());
  for (size_t s = 0; s < graph.storages.size(); ++s)
    if (graph.storages[s].entry) last_writer[s].assign({0, graph.storages[s].bytes}, kEntryVersion);

  first_access_.reserve(graph.ops.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    first_access_.push_back(access_begin_.size());
    for (const Access& access : op.reads) {
      access_begin_.push_back(pieces_.size());
      append_versions(last_writer[access.storage.index()], access.bytes, pieces_);
    }
    access_begin_.insert(access_begin_.end(), op.makes.size(), pieces_.size());
    for (const Access& access : op.mutates) {
      access_begin_.push_back(pieces_.size());
      append_versions(last_writer[access.storage.index()], access.bytes, pieces_);
    }
    // All reads of an op come before its writes, so writers are noted last.
    for (const auto* written : {&op.makes, &op.mutates})
      for (const Access& access : *written)
        last_writer[access.storage.index()].assign(access.bytes, static_cast<int32_t>(i));
  }

  first_storage_ = access_begin_.size();
  for (size_t s = 0; s < graph.storages.size(); ++s) {
    access_begin_.push_back(pieces_.size());
    append_versions(last_writer[s], {0, graph.storages[s].bytes}, pieces_);
  }
  access_begin_.push_back(pieces_.size());
}

std::span<const WantedPiece> Versions::wanted(OpId op, size_t access) const {
  const size_t at = first_access_[op.index()] + access;
  return std::span(pieces_).subspan(access_begin_[at], access_begin_[at + 1] - access_begin_[at]);
}

std::span<const WantedPiece> Versions::last(StorageId storage) const {
  const size_t at = first_storage_ + storage.index();
  return std::span(pieces_).subspan(access_begin_[at], access_begin_[at + 1] - access_begin_[at]);
}

}  // namespace outsize
