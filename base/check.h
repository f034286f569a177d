// CHECK: programmer errors abort, in release builds too.
//
// Never CHECK what a peer, a user, a file or an API server sent: that is counted and dropped, or is
// a Status. Prints file, line, the condition and the operands, then aborts. Any thread.
#pragma once

#include <sstream>
#include <string>

namespace crowdsurf {

// Prints "CHECK failed at file:line: what" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

namespace check_internal {

template <class A, class B>
std::string Describe(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text;
  if constexpr (requires { out << a << b; }) out << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace check_internal
}  // namespace crowdsurf

#ifdef CHECK
#undef CHECK
#endif
#define CHECK(condition)                                        \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      ::crowdsurf::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#define CROWDSURF_CHECK_OP(op, a, b)                                                   \
  do {                                                                                 \
    const auto& check_a = (a);                                                         \
    const auto& check_b = (b);                                                         \
    if (!(check_a op check_b)) [[unlikely]]                                            \
      ::crowdsurf::CheckFailed(                                                        \
          __FILE__, __LINE__,                                                          \
          ::crowdsurf::check_internal::Describe(#a " " #op " " #b, check_a, check_b)); \
  } while (false)

#define CHECK_EQ(a, b) CROWDSURF_CHECK_OP(==, a, b)
#define CHECK_NE(a, b) CROWDSURF_CHECK_OP(!=, a, b)
#define CHECK_LT(a, b) CROWDSURF_CHECK_OP(<, a, b)
#define CHECK_LE(a, b) CROWDSURF_CHECK_OP(<=, a, b)
#define CHECK_GT(a, b) CROWDSURF_CHECK_OP(>, a, b)
#define CHECK_GE(a, b) CROWDSURF_CHECK_OP(>=, a, b)
