// Everything that follows from the names of an enum's values, given one function beside the enum:
//
//   enum class Pooling { kNone, kLast };
//   constexpr const char* PoolingName(Pooling pooling) {
//     switch (pooling) {  // no default: the compiler reports a value without a name
//       case Pooling::kNone:
//         return "none";
//       case Pooling::kLast:
//         return "last";
//     }
//     return "";  // of no value
//   }
//   inline constexpr auto kAllPoolings = AllNamed<PoolingName>();
//
// The values must count from 0 without a gap.
#ifndef SRU_KERNELS_ENUM_NAMES_H_
#define SRU_KERNELS_ENUM_NAMES_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace sru::kernels {

template <typename Enum>
Enum EnumNamedBy(const char* (*name)(Enum));  // declared for its type only
template <auto kName>
using NamedEnum = decltype(EnumNamedBy(kName));

template <auto kName>
constexpr bool IsNamed(NamedEnum<kName> value) {
  return *kName(value) != '\0';
}

template <auto kName>
constexpr size_t CountNamed() {
  size_t count = 0;
  while (IsNamed<kName>(static_cast<NamedEnum<kName>>(count))) ++count;
  return count;
}

// Every value, in the enum's order.
template <auto kName>
constexpr std::array<NamedEnum<kName>, CountNamed<kName>()> AllNamed() {
  std::array<NamedEnum<kName>, CountNamed<kName>()> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<NamedEnum<kName>>(i);
  return all;
}

// Finds the value with this name; false, with *value as it was, when there is none.
template <auto kName>
bool ParseNamed(std::string_view name, NamedEnum<kName>* value) {
  for (const NamedEnum<kName> candidate : AllNamed<kName>()) {
    if (name != kName(candidate)) continue;
    *value = candidate;
    return true;
  }
  return false;
}

// The names from value `first` on, for an error message: "last, max or mean", each in `quote`.
template <auto kName>
std::string ListNames(size_t first = 0, const char* quote = "") {
  constexpr auto kAll = AllNamed<kName>();
  std::string list;
  for (size_t i = first; i < kAll.size(); ++i) {
    if (i > first) list += i + 1 == kAll.size() ? " or " : ", ";
    list += std::string(quote) + kName(kAll[i]) + quote;
  }
  return list;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_ENUM_NAMES_H_
