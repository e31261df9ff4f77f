// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dtypes of custom operators, numbered as PyTorch does, the two 16-bit floats, and scalars.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace c10 {

enum class ScalarType : int8_t { Byte = 0, Char = 1, Short = 2, Int = 3, Half = 5, Float = 6, BFloat16 = 15 };

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Both are stored in 16 bits and computed with as float; a float is rounded to the nearest, ties to even.
struct alignas(2) BFloat16 {
  uint16_t x = 0;
  BFloat16() = default;
  BFloat16(float value) {
    const uint32_t bits = bits_of(value);
    x = value != value ? 0x7FC0 : static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  }
  operator float() const { return float_of(static_cast<uint32_t>(x) << 16); }
};

struct alignas(2) Half {
  uint16_t x = 0;
  Half() = default;
  Half(float value) {
    const uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7FFFFFFF;
    if (magnitude > 0x7F800000) {                                       // NaN
      x = static_cast<uint16_t>(sign | 0x7E00);
    } else if (magnitude >= 0x477FF000) {                               // rounds to infinity
      x = static_cast<uint16_t>(sign | 0x7C00);
    } else if (magnitude >= 0x38800000) {                               // normal: 13 bits of the mantissa are dropped
      x = static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13));
    } else {                                                            // subnormal: the addition rounds at bit 2^-24
      x = static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16, rest = x & 0x7FFF;
    if (rest >= 0x7C00) return float_of(sign | 0x7F800000 | ((rest & 0x3FF) << 13));
    if (rest >= 0x400) return float_of(sign | ((rest << 13) + 0x38000000));
    return float_of(sign | bits_of(static_cast<float>(rest) * 5.9604644775390625e-8f));             // 2^-24
  }
};

#define GPSIMD_COMPOUND(Type, op) \
  inline Type& operator op##=(Type& left, float right) { return left = Type(static_cast<float>(left) op right); }
GPSIMD_COMPOUND(BFloat16, +) GPSIMD_COMPOUND(BFloat16, -) GPSIMD_COMPOUND(BFloat16, *) GPSIMD_COMPOUND(BFloat16, /)
GPSIMD_COMPOUND(Half, +) GPSIMD_COMPOUND(Half, -) GPSIMD_COMPOUND(Half, *) GPSIMD_COMPOUND(Half, /)
#undef GPSIMD_COMPOUND

// The dtype of a C++ type. A type that is not a dtype has none, which the message of the assertion says.
template <class T> struct CppTypeToScalarType {
  static_assert(!std::is_same<T, T>::value,
                "the element types are float, at::BFloat16, at::Half, int32_t, int16_t, int8_t and uint8_t");
};
template <ScalarType S> struct IsScalarType { static constexpr ScalarType value = S; };
template <> struct CppTypeToScalarType<uint8_t> : IsScalarType<ScalarType::Byte> {};
template <> struct CppTypeToScalarType<int8_t> : IsScalarType<ScalarType::Char> {};
template <> struct CppTypeToScalarType<int16_t> : IsScalarType<ScalarType::Short> {};
template <> struct CppTypeToScalarType<int32_t> : IsScalarType<ScalarType::Int> {};
template <> struct CppTypeToScalarType<Half> : IsScalarType<ScalarType::Half> {};
template <> struct CppTypeToScalarType<float> : IsScalarType<ScalarType::Float> {};
template <> struct CppTypeToScalarType<BFloat16> : IsScalarType<ScalarType::BFloat16> {};

inline int64_t elementSize(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Byte: case ScalarType::Char: return 1;
    case ScalarType::Short: case ScalarType::Half: case ScalarType::BFloat16: return 2;
    case ScalarType::Int: case ScalarType::Float: return 4;
  }
  return 0;
}

inline bool isFloatingType(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::Float || dtype == ScalarType::BFloat16;
}

// A number. Those that come as an argument of an operator are doubles.
class Scalar {
 public:
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  Scalar(T value) : number_(static_cast<double>(value)), integral_(std::is_integral<T>::value) {}
  Scalar(BFloat16 value) : number_(static_cast<float>(value)), integral_(false) {}
  Scalar(Half value) : number_(static_cast<float>(value)), integral_(false) {}
  // Not trivial, so that it is passed alike by value and by reference, and a kernel may declare either.
  Scalar(const Scalar& other) : number_(other.number_), integral_(other.integral_) {}
  Scalar& operator=(const Scalar& other) = default;

  bool isIntegral() const { return integral_; }
  bool isFloatingPoint() const { return !integral_; }
  template <class T> T to() const { return static_cast<T>(number_); }
  double toDouble() const { return number_; }
  float toFloat() const { return to<float>(); }
  int32_t toInt() const { return to<int32_t>(); }
  int64_t toLong() const { return to<int64_t>(); }

 private:
  double number_;
  bool integral_;
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType dtype) : dtype_(dtype), has_dtype_(true) {}
  TensorOptions dtype(ScalarType dtype) const { return TensorOptions(dtype); }
  ScalarType dtype() const { return dtype_; }
  bool has_dtype() const { return has_dtype_; }

 private:
  ScalarType dtype_ = ScalarType::Float;
  bool has_dtype_ = false;
};

}  // namespace c10
