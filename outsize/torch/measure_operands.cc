#include "outsize/torch/measure_operands.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "outsize/base/random.h"
#include "outsize/graph/graph.h"
#include "outsize/torch/allocator.h"
#include "outsize/torch/tensors.h"

namespace outsize {
namespace {

// A prime, so that rows of the usual lengths don't all hold the same numbers.
constexpr int64_t kTableLength = 65'521;
// A block this much larger than what is wanted is worth giving back.
constexpr int64_t kWorthKeeping = int64_t{256} << 20;

at::Tensor normal_numbers(uint64_t seed, double deviation) {
  Random random(seed);
  at::Tensor table = at::empty({kTableLength}, at::kFloat);
  float* at = table.mutable_data_ptr<float>();
  for (int64_t i = 0; i < kTableLength; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    at[i] =
        static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * random.uniform()));
  }
  return table;
}

bool is_float(c10::ScalarType type) {
  return c10::isFloatingType(type) || c10::isComplexType(type);
}

}  // namespace

TouchedBlock::~TouchedBlock() { drop(); }

void TouchedBlock::drop() {
  if (!arena_) return;
  forget_arena(arena_->base());
  arena_.reset();
}

Status TouchedBlock::reserve(int64_t wanted) {
  wanted = std::max<int64_t>(wanted, 4096);
  const bool much_too_large = bytes() > kWorthKeeping && bytes() / 4 > wanted;
  if (bytes() >= wanted && !much_too_large) return Done{};
  drop();
  Result<Arena> arena = Arena::create(name_, wanted);
  if (!arena.ok()) return arena.error();
  arena_.emplace(std::move(*arena));
  register_arena(arena_->base(), arena_->bytes());
  return Done{};
}

const std::vector<std::byte>& Numbers::table(const std::string& dtype) {
  auto [found, made] = tables_.try_emplace(dtype);
  if (!made) return found->second;
  const std::optional<c10::ScalarType> type = scalar_type_of(dtype);
  if (!type) return found->second;
  std::vector<std::byte>& table = found->second;
  if (is_float(*type)) {
    const at::Tensor cast = normal_numbers(seed_, 0.5).to(*type);
    table.resize(cast.nbytes());
    std::memcpy(table.data(), cast.const_data_ptr(), table.size());
  } else if (*type == c10::ScalarType::Bool) {
    Random random(seed_);
    table.resize(kTableLength);
    for (std::byte& b : table) b = random.chance(0.5) ? std::byte{1} : std::byte{0};
  }
  return table;
}

void Numbers::fill(std::byte* to, int64_t bytes, const std::string& dtype) {
  const std::optional<c10::ScalarType> type = scalar_type_of(dtype);
  if (type && is_float(*type) && bytes == element_bytes(dtype)) {
    const at::Tensor one = at::empty({}, at::kFloat).fill_(1).to(*type);
    std::memcpy(to, one.const_data_ptr(), static_cast<size_t>(bytes));
    return;
  }
  const std::vector<std::byte>& numbers = table(dtype);
  if (numbers.empty()) {
    std::memset(to, 0, static_cast<size_t>(bytes));
    return;
  }
  const auto length = static_cast<int64_t>(numbers.size());
  for (int64_t at = 0; at < bytes; at += length)
    std::memcpy(to + at, numbers.data(), static_cast<size_t>(std::min(length, bytes - at)));
}

uint64_t fingerprint(const std::byte* bytes, int64_t count) {
  // Four chains side by side, so that the multiplications overlap and memory sets the pace.
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;
  uint64_t chains[4] = {1, 2, 3, 4};
  const auto mix = [](uint64_t chain, uint64_t word) {
    chain = (chain ^ word) * kOdd;
    return chain ^ (chain >> 29);
  };
  int64_t at = 0;
  for (; at + 32 <= count; at += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + at, 32);
    for (int k = 0; k < 4; ++k) chains[k] = mix(chains[k], words[k]);
  }
  for (; at < count; ++at) chains[0] = mix(chains[0], static_cast<uint64_t>(bytes[at]) + 1);
  return mix(mix(mix(chains[0], chains[1]), chains[2]), chains[3]);
}

void Evictor::evict() {
  for (size_t i = 0; i < words_.size(); i += 8) sum_ += words_[i];
  // Something that depends on every word read, so that the reads stay.
  if (!words_.empty()) words_[0] = sum_;
}

}  // namespace outsize
