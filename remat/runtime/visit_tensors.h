// Finds the tensors in an argument of checkpoint().
//
// Known: at::Tensor, std::optional, pair, tuple, array, vector and map of
// visitable values. A struct joins by a member template
//
//   struct Batch {
//     at::Tensor ids, mask;
//     int64_t step;
//     template <class Visitor>
//     void visit_tensors(Visitor&& visit) { visit(ids); visit(mask); }
//   };
//
// or by a free function visit_tensors(T&, visitor) in its namespace. What is
// visited may itself be any visitable value. Anything else holds no tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace remat {

template <class T, class Visitor>
void for_each_tensor(T& value, Visitor&& visitor);

namespace detail {

struct AnyVisitor {
  template <class T>
  void operator()(T&) const {}
};

template <class T>
concept HasVisitMember = requires(T& value, AnyVisitor visitor) {
  value.visit_tensors(visitor);
};

template <class T>
concept HasVisitFunction = requires(T& value, AnyVisitor visitor) {
  visit_tensors(value, visitor);
};

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

template <class T>
struct IsSequence : std::false_type {};
template <class T, class A>
struct IsSequence<std::vector<T, A>> : std::true_type {};
template <class T, size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};

// Its elements are proxies, and hold no tensors.
template <class A>
struct IsSequence<std::vector<bool, A>> : std::false_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
struct IsMap : std::false_type {};
template <class K, class V, class C, class A>
struct IsMap<std::map<K, V, C, A>> : std::true_type {};

}  // namespace detail

// Calls visitor(at::Tensor&) for each tensor in the value, in a fixed order.
template <class T, class Visitor>
void for_each_tensor(T& value, Visitor&& visitor) {
  using Type = std::remove_const_t<T>;
  const auto inner = [&visitor](auto& element) {
    for_each_tensor(element, visitor);
  };
  if constexpr (std::is_base_of_v<at::Tensor, Type>) {
    visitor(value);
  } else if constexpr (detail::IsTuple<Type>::value) {
    std::apply([&](auto&... elements) { (inner(elements), ...); }, value);
  } else if constexpr (detail::IsSequence<Type>::value) {
    for (auto& element : value) {
      inner(element);
    }
  } else if constexpr (detail::IsOptional<Type>::value) {
    if (value.has_value()) {
      inner(*value);
    }
  } else if constexpr (detail::IsMap<Type>::value) {
    for (auto& entry : value) {
      inner(entry.second);
    }
  } else if constexpr (detail::HasVisitMember<Type>) {
    value.visit_tensors(inner);
  } else if constexpr (detail::HasVisitFunction<Type>) {
    visit_tensors(value, inner);
  }
}

}  // namespace remat
