// Overloaded: lambdas as one visitor of a std::variant, one for each alternative.
//
//   std::visit(Overloaded{[](const Bye&) { ... }, [](const auto&) { ... }}, frame);
//
// Any thread; no cost of its own. Source: cppreference, std::visit.
#pragma once

namespace crowdsurf {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace crowdsurf
