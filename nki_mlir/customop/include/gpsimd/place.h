// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where in the user's source a call is written, taken by default arguments, and faults at such places.
#pragma once
#include <gpsimd/abi.h>

#include <string>
#include <type_traits>

namespace gpsimd {

constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return Place{file, line}; }

// A subscript that knows where it is written: an operator takes no default argument, a conversion to its parameter does.
struct Index {
  int64_t value;
  Place at;
  template <class I, class = std::enable_if_t<std::is_integral<I>::value>>
  Index(I i, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : value(static_cast<int64_t>(i)), at{file, line} {}
};

// Records a finding and goes on. `kind` is a literal.
void report(const char* kind, Place at, int64_t a = 0, int64_t b = 0, int64_t c = 0, int64_t d = 0,
            Place other = Place{nullptr, 0}, const std::string& text = std::string());
// Records a finding and ends the run of this core.
[[noreturn]] void stop(const char* kind, Place at, int64_t a = 0, int64_t b = 0, int64_t c = 0, int64_t d = 0,
                       Place other = Place{nullptr, 0}, const std::string& text = std::string());

// -- TORCH_CHECK -----------------------------------------------------------------------------------------------------
inline std::string text_of(const char* part) { return part; }
inline std::string text_of(const std::string& part) { return part; }
template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
std::string text_of(T part) { return std::to_string(part); }

inline void append(std::string&) {}
template <class Part, class... Parts>
void append(std::string& text, const Part& part, const Parts&... parts) {
  text += text_of(part);
  append(text, parts...);
}
[[noreturn]] inline void check_failed(Place at, const char* condition) {
  stop("check", at, 0, 0, 0, 0, Place{nullptr, 0}, std::string("expected ") + condition);
}
template <class... Parts>
[[noreturn]] void check_failed(Place at, const char*, const Parts&... parts) {
  std::string text;
  append(text, parts...);
  stop("check", at, 0, 0, 0, 0, Place{nullptr, 0}, text);
}

}  // namespace gpsimd

#define TORCH_CHECK(condition, ...)                                                           \
  do {                                                                                        \
    if (!(condition)) ::gpsimd::check_failed(::gpsimd::here(), #condition, ##__VA_ARGS__);    \
  } while (false)
