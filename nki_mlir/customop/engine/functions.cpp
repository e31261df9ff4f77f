// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Factories and elementwise functions. They compute in double or int64_t and round once, to the result's dtype.
#include "core.h"

#include <gpsimd/functions.h>

#include <cmath>

namespace gpsimd {
namespace {

using c10::ScalarType;

template <class W>                          // double or int64_t
W load(const char* data, ScalarType dtype, int64_t i) {
  switch (dtype) {
    case ScalarType::Byte: return static_cast<W>(reinterpret_cast<const uint8_t*>(data)[i]);
    case ScalarType::Char: return static_cast<W>(reinterpret_cast<const int8_t*>(data)[i]);
    case ScalarType::Short: return static_cast<W>(reinterpret_cast<const int16_t*>(data)[i]);
    case ScalarType::Int: return static_cast<W>(reinterpret_cast<const int32_t*>(data)[i]);
    case ScalarType::Half: return static_cast<W>(float(reinterpret_cast<const c10::Half*>(data)[i]));
    case ScalarType::BFloat16: return static_cast<W>(float(reinterpret_cast<const c10::BFloat16*>(data)[i]));
    case ScalarType::Float: return static_cast<W>(reinterpret_cast<const float*>(data)[i]);
  }
  return W();
}

template <class W>
void store(char* data, ScalarType dtype, int64_t i, W value) {
  switch (dtype) {
    case ScalarType::Byte: reinterpret_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(static_cast<int64_t>(value)); break;
    case ScalarType::Char: reinterpret_cast<int8_t*>(data)[i] = static_cast<int8_t>(static_cast<int64_t>(value)); break;
    case ScalarType::Short: reinterpret_cast<int16_t*>(data)[i] = static_cast<int16_t>(static_cast<int64_t>(value)); break;
    case ScalarType::Int: reinterpret_cast<int32_t*>(data)[i] = static_cast<int32_t>(static_cast<int64_t>(value)); break;
    case ScalarType::Half: reinterpret_cast<c10::Half*>(data)[i] = c10::Half(static_cast<float>(value)); break;
    case ScalarType::BFloat16:
      reinterpret_cast<c10::BFloat16*>(data)[i] = c10::BFloat16(static_cast<float>(value));
      break;
    case ScalarType::Float: reinterpret_cast<float*>(data)[i] = static_cast<float>(value); break;
  }
}

// -- dtypes ----------------------------------------------------------------------------------------------------------
ScalarType promoted(ScalarType a, ScalarType b) {
  if (a == b) return a;
  const bool float_a = c10::isFloatingType(a), float_b = c10::isFloatingType(b);
  if (float_a != float_b) return float_a ? a : b;
  if (float_a) return ScalarType::Float;                                    // two different ones of float, half, bfloat16
  if (c10::elementSize(a) != c10::elementSize(b)) return c10::elementSize(a) > c10::elementSize(b) ? a : b;
  return ScalarType::Short;                                                 // uint8 with int8
}
ScalarType promoted(ScalarType a, const c10::Scalar& b) {                   // a scalar changes the kind only
  return b.isFloatingPoint() && !c10::isFloatingType(a) ? ScalarType::Float : a;
}
ScalarType floating(ScalarType dtype) { return c10::isFloatingType(dtype) ? dtype : ScalarType::Float; }

// -- operands --------------------------------------------------------------------------------------------------------
struct Operand {                            // a tensor or one number for all elements
  const Array* array;
  c10::Scalar number;
  template <class W> W at(int64_t i) const {
    return array ? load<W>(array->data, array->dtype, i) : number.to<W>();
  }
};
Operand operand(const torch::Tensor& tensor, Place at) {
  Array& array = tensor.memory().array(at);
  data_of(array, at);
  return Operand{&array, 0};
}
Operand operand(const c10::Scalar& number, Place) { return Operand{nullptr, number}; }

c10::IntArrayRef sizes_of(const Array& array) {
  return c10::IntArrayRef(array.sizes, static_cast<size_t>(array.rank));
}

// A result for operands, some of which are tensors; `like` is one of these.
torch::Tensor result_like(const Array& like, ScalarType dtype, Place at) {
  return torch::Tensor(Memory(made(sizes_of(like), dtype, true, at)));
}

Array& checked_result(torch::Tensor& result, const Array& like, ScalarType dtype, Place at) {
  Array& array = result.memory().array(at);
  data_of(array, at);
  if (sizes_of(array) != sizes_of(like)) stop("operand-shapes", at);
  if (c10::isFloatingType(dtype) && !c10::isFloatingType(array.dtype)) {
    stop("result-type", at, static_cast<int64_t>(dtype), static_cast<int64_t>(array.dtype));
  }
  return array;
}

const Array& tensor_of(const Operand& a, const Operand& b, Place at) {
  if (a.array && b.array && sizes_of(*a.array) != sizes_of(*b.array)) stop("operand-shapes", at);
  return a.array ? *a.array : *b.array;
}

// `function` has a meaning on doubles and one on integers; the dtype says which: integers wrap around, floats are rounded
// once to the dtype, and again where a result was given that has fewer bits.
template <class Function, class... Operands>
torch::Tensor& compute(torch::Tensor& result, const Array& like, ScalarType dtype, Place at, Function function,
                       const Operands&... operands) {
  Array& array = checked_result(result, like, dtype, at);
  if (!may_write(array, at)) return result;
  char rounded[8];
  for (int64_t i = 0; i < array.elements; i++) {
    if (c10::isFloatingType(dtype)) {
      store<double>(rounded, dtype, 0, function(operands.template at<double>(i)...));
      store<double>(array.data, array.dtype, i, load<double>(rounded, dtype, 0));
    } else {
      store<int64_t>(rounded, dtype, 0, function(operands.template at<int64_t>(i)...));
      store<int64_t>(array.data, array.dtype, i, load<int64_t>(rounded, dtype, 0));
    }
  }
  note_write(array, 0, array.elements, at);
  return result;
}

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (; exponent; exponent >>= 1, factor *= factor) {
    if (exponent & 1) result *= factor;
  }
  return static_cast<int64_t>(result);
}

ScalarType common_dtype(const Operand& a, const Operand& b) {
  if (a.array && b.array) return promoted(a.array->dtype, b.array->dtype);
  return a.array ? promoted(a.array->dtype, b.number) : promoted(b.array->dtype, a.number);
}

ScalarType integer_dtype(const Operand& a, const Operand& b, Place at) {    // a scalar is cast to the tensor's dtype
  for (const Operand* x : {&a, &b}) {
    if (x->array && c10::isFloatingType(x->array->dtype)) stop("bitwise-type", at, static_cast<int64_t>(x->array->dtype));
  }
  return a.array && b.array ? promoted(a.array->dtype, b.array->dtype) : (a.array ? a : b).array->dtype;
}

ScalarType scaled_dtype(const Operand& a, const Operand& b, const c10::Scalar& alpha, Place at) {
  const ScalarType dtype = common_dtype(a, b);
  if (!c10::isFloatingType(dtype) && alpha.toDouble() != std::floor(alpha.toDouble())) stop("alpha", at);
  return dtype;
}

ScalarType power_dtype(const Operand& a, const Operand& b, Place at) {
  const ScalarType dtype = common_dtype(a, b);
  if (!b.array && !c10::isFloatingType(dtype) && b.number.toDouble() < 0) stop("negative-power", at, b.number.toLong());
  return dtype;
}

}  // namespace

void fill(Array& array, const c10::Scalar& value, Place at) {
  if (array.role == Role::SHAPE) return;                    // a shape function's result has sizes and a dtype only
  if (!may_write(array, at)) return;
  for (int64_t i = 0; i < array.elements; i++) store<double>(array.data, array.dtype, i, value.toDouble());
  note_write(array, 0, array.elements, at);
}

}  // namespace gpsimd

namespace torch {

using namespace gpsimd;

// -- factories -------------------------------------------------------------------------------------------------------
Tensor empty(IntArrayRef size, TensorOptions options, Place at) { return Tensor(Memory(made(size, options, false, at))); }

Tensor full(IntArrayRef size, const Scalar& value, TensorOptions options, Place at) {
  const Tensor result(Memory(made(size, options, true, at)));
  return result.fill_(value, at);
}
Tensor zeros(IntArrayRef size, TensorOptions options, Place at) { return full(size, 0, options, at); }
Tensor ones(IntArrayRef size, TensorOptions options, Place at) { return full(size, 1, options, at); }

Tensor eye(int64_t n, int64_t m, TensorOptions options, Place at) {
  Tensor result = zeros({n, m}, options, at);
  Array& array = result.memory().array(at);
  if (array.role == Role::SHAPE) return result;
  for (int64_t i = 0; i < std::min(n, m); i++) store<double>(array.data, array.dtype, i * m + i, 1);
  return result;
}

// -- meanings --------------------------------------------------------------------------------------------------------
// What is defined on floats alone, or on integers alone, is never asked for the other: its dtype says so.
#define ON_FLOATS(Name, name)                                        \
  struct Name {                                                      \
    double operator()(double a) const { return std::name(a); }       \
    int64_t operator()(int64_t a) const { return a; }                \
  };
ON_FLOATS(Sin, sin) ON_FLOATS(Cos, cos) ON_FLOATS(Tan, tan) ON_FLOATS(Exp, exp) ON_FLOATS(Log, log)
ON_FLOATS(Log2, log2) ON_FLOATS(Log10, log10) ON_FLOATS(Ceil, ceil) ON_FLOATS(Floor, floor)

struct Abs {
  double operator()(double a) const { return std::fabs(a); }
  int64_t operator()(int64_t a) const { return a < 0 ? -a : a; }
};
struct Pow {
  double operator()(double a, double b) const { return std::pow(a, b); }
  int64_t operator()(int64_t a, int64_t b) const { return integer_power(a, b); }
};
struct Mul {
  double operator()(double a, double b) const { return a * b; }
  int64_t operator()(int64_t a, int64_t b) const { return int64_t(uint64_t(a) * uint64_t(b)); }
};
struct Div {
  double operator()(double a, double b) const { return a / b; }
  int64_t operator()(int64_t a, int64_t) const { return a; }
};
#define ON_INTEGERS(Name, op)                                                  \
  struct Name {                                                                \
    double operator()(double a, double) const { return a; }                    \
    int64_t operator()(int64_t a, int64_t b) const { return a op b; }          \
  };
ON_INTEGERS(And, &) ON_INTEGERS(Or, |)
struct Not {
  double operator()(double a) const { return a; }
  int64_t operator()(int64_t a) const { return ~a; }
};
struct AddScaled {
  c10::Scalar alpha;
  int sign;
  double operator()(double a, double b) const { return a + sign * alpha.toDouble() * b; }
  int64_t operator()(int64_t a, int64_t b) const { return a + sign * alpha.toLong() * b; }
};
struct Clamp {
  c10::Scalar min, max;
  double operator()(double a) const {                       // NaN if the number or a bound is
    const double low = min.toDouble(), high = max.toDouble();
    return a != a ? a : low != low ? low : high != high ? high : std::min(std::max(a, low), high);
  }
  int64_t operator()(int64_t a) const { return std::min(std::max(a, min.toLong()), max.toLong()); }
};

// -- functions of one operand ----------------------------------------------------------------------------------------
#define UNARY_FUNCTION(name, Meaning, the_dtype)                                     \
  Tensor& name##_out(Tensor& result, const Tensor& self, Place at) {                 \
    const Operand x = operand(self, at);                                             \
    return compute(result, *x.array, the_dtype, at, Meaning(), x);                   \
  }                                                                                  \
  Tensor name(const Tensor& self, Place at) {                                        \
    const Operand x = operand(self, at);                                             \
    Tensor result = result_like(*x.array, the_dtype, at);                            \
    return compute(result, *x.array, the_dtype, at, Meaning(), x);                   \
  }
UNARY_FUNCTION(sin, Sin, floating(x.array->dtype)) UNARY_FUNCTION(cos, Cos, floating(x.array->dtype))
UNARY_FUNCTION(tan, Tan, floating(x.array->dtype)) UNARY_FUNCTION(exp, Exp, floating(x.array->dtype))
UNARY_FUNCTION(log, Log, floating(x.array->dtype)) UNARY_FUNCTION(log2, Log2, floating(x.array->dtype))
UNARY_FUNCTION(log10, Log10, floating(x.array->dtype)) UNARY_FUNCTION(abs, Abs, x.array->dtype)
UNARY_FUNCTION(ceil, Ceil, x.array->dtype) UNARY_FUNCTION(floor, Floor, x.array->dtype)
UNARY_FUNCTION(bitwise_not, Not, integer_dtype(x, x, at))

// -- functions of two operands ---------------------------------------------------------------------------------------
#define BINARY_FUNCTION(name, Meaning, Left, Right, the_dtype)                                   \
  Tensor& name##_out(Tensor& result, const Left& self, const Right& other, Place at) {           \
    const Operand x = operand(self, at), y = operand(other, at);                                 \
    return compute(result, tensor_of(x, y, at), the_dtype, at, Meaning(), x, y);                 \
  }                                                                                              \
  Tensor name(const Left& self, const Right& other, Place at) {                                  \
    const Operand x = operand(self, at), y = operand(other, at);                                 \
    Tensor result = result_like(tensor_of(x, y, at), the_dtype, at);                             \
    return compute(result, tensor_of(x, y, at), the_dtype, at, Meaning(), x, y);                 \
  }
#define WITH_SCALAR(name, Meaning, the_dtype)                  \
  BINARY_FUNCTION(name, Meaning, Tensor, Tensor, the_dtype)    \
  BINARY_FUNCTION(name, Meaning, Tensor, Scalar, the_dtype)
#define WITH_SCALARS(name, Meaning, the_dtype) \
  WITH_SCALAR(name, Meaning, the_dtype)        \
  BINARY_FUNCTION(name, Meaning, Scalar, Tensor, the_dtype)
WITH_SCALAR(mul, Mul, common_dtype(x, y)) WITH_SCALAR(div, Div, floating(common_dtype(x, y)))
WITH_SCALARS(pow, Pow, power_dtype(x, y, at))
WITH_SCALARS(bitwise_and, And, integer_dtype(x, y, at)) WITH_SCALARS(bitwise_or, Or, integer_dtype(x, y, at))

#define SCALED_FUNCTION(name, Right, sign)                                                                          \
  Tensor& name##_out(Tensor& result, const Tensor& self, const Right& other, const Scalar& alpha, Place at) {       \
    const Operand x = operand(self, at), y = operand(other, at);                                                    \
    return compute(result, tensor_of(x, y, at), scaled_dtype(x, y, alpha, at), at, AddScaled{alpha, sign}, x, y);   \
  }                                                                                                                 \
  Tensor name(const Tensor& self, const Right& other, const Scalar& alpha, Place at) {                              \
    const Operand x = operand(self, at), y = operand(other, at);                                                    \
    Tensor result = result_like(tensor_of(x, y, at), scaled_dtype(x, y, alpha, at), at);                            \
    return name##_out(result, self, other, alpha, at);                                                              \
  }
SCALED_FUNCTION(add, Tensor, 1) SCALED_FUNCTION(add, Scalar, 1)
SCALED_FUNCTION(sub, Tensor, -1) SCALED_FUNCTION(sub, Scalar, -1)

Tensor& clamp_out(Tensor& result, const Tensor& self, const Scalar& min, const Scalar& max, Place at) {
  const Operand x = operand(self, at);
  return compute(result, *x.array, promoted(promoted(x.array->dtype, min), max), at, Clamp{min, max}, x);
}
Tensor clamp(const Tensor& self, const Scalar& min, const Scalar& max, Place at) {
  const Operand x = operand(self, at);
  Tensor result = result_like(*x.array, promoted(promoted(x.array->dtype, min), max), at);
  return clamp_out(result, self, min, max, at);
}

}  // namespace torch
