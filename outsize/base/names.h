// Enumerators by name: one table serves printing, strict reading and "did you mean".
//
//   inline constexpr EnumNames<Tier, 3> kTierNames{{{Tier::kDevice, "device"}, ...}};
//   kTierNames.name(Tier::kDevice) == "device";  kTierNames.find("host") == Tier::kHost
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outsize {

template <typename E, size_t N>
struct EnumNames {
  std::array<std::pair<E, std::string_view>, N> entries;

  constexpr std::string_view name(E e) const {
    for (const auto& [value, text] : entries)
      if (value == e) return text;
    return "?";
  }
  constexpr std::optional<E> find(std::string_view text) const {
    for (const auto& [value, name] : entries)
      if (name == text) return value;
    return std::nullopt;
  }
  std::vector<std::string> all() const {
    std::vector<std::string> out;
    for (const auto& entry : entries) out.emplace_back(entry.second);
    return out;
  }
};

// The candidate with the smallest edit distance to `word`; empty where there is none within reach.
std::string nearest_match(std::string_view word, const std::vector<std::string>& candidates);
// For the end of a message: "; did you mean 'swap'?" where there is one, else nothing.
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace outsize
