// Strong ids: an index into one kind of table that can't be mistaken for another's.
//
//   struct OpTag {};  using OpId = Id<OpTag>;
//   OpId op{3};  graph.ops[op.index()]
//
// An id is a plain value; `Id{}` is "none" (index -1). Ids order by index, so they are
// deterministic keys.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace outsize {

template <typename Tag>
struct Id {
  int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(int64_t v) : value(static_cast<int32_t>(v)) {}
  constexpr bool valid() const { return value >= 0; }
  // Requires: valid().
  constexpr size_t index() const { return static_cast<size_t>(value); }
  constexpr auto operator<=>(const Id&) const = default;
};

struct OpTag {};
struct ValueTag {};
struct StorageTag {};
struct ScalarTag {};
struct ResidencyTag {};
struct InstructionTag {};

using OpId = Id<OpTag>;
using ValueId = Id<ValueTag>;
using StorageId = Id<StorageTag>;
using ScalarId = Id<ScalarTag>;
using ResidencyId = Id<ResidencyTag>;
using InstructionId = Id<InstructionTag>;

}  // namespace outsize

template <typename Tag>
struct std::hash<outsize::Id<Tag>> {
  size_t operator()(const outsize::Id<Tag>& id) const noexcept {
    return std::hash<int32_t>{}(id.value);
  }
};
