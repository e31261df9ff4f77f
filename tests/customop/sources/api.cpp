// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Uses of everything that the headers offer, for one core.
#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

using torch::Scalar;
using torch::Tensor;

Tensor unary(const Tensor& x, int64_t which, int64_t dtype, int64_t out) {
  Tensor y = torch::empty(x.sizes(), static_cast<torch::ScalarType>(dtype));
#define CASE(k, name) \
  case k: return out ? torch::name##_out(y, x) : torch::name(x);
  switch (which) {
    CASE(0, abs) CASE(1, ceil) CASE(2, floor) CASE(3, sin) CASE(4, cos) CASE(5, tan) CASE(6, log) CASE(7, log2)
    CASE(8, log10) CASE(9, exp) CASE(10, bitwise_not)
  }
#undef CASE
  return y;
}

Tensor binary(const Tensor& x, const Tensor& y, int64_t which, int64_t dtype, int64_t out) {
  Tensor r = torch::empty(x.sizes(), static_cast<torch::ScalarType>(dtype));
#define CASE(k, name) \
  case k: return out ? torch::name##_out(r, x, y) : torch::name(x, y);
  switch (which) {
    CASE(0, add) CASE(1, sub) CASE(2, mul) CASE(3, div) CASE(4, pow) CASE(5, bitwise_and) CASE(6, bitwise_or)
    case 7: return out ? torch::add_out(r, x, y, 3) : torch::add(x, y, 3);
    case 8: return out ? torch::sub_out(r, x, y, 2) : torch::sub(x, y, 2);
  }
#undef CASE
  return r;
}

Tensor with_scalar(const Tensor& x, const Scalar& s, int64_t which, int64_t dtype, int64_t out) {
  Tensor r = torch::empty(x.sizes(), static_cast<torch::ScalarType>(dtype));
#define CASE(k, name, a, b) \
  case k: return out ? torch::name##_out(r, a, b) : torch::name(a, b);
  switch (which) {
    CASE(0, add, x, s) CASE(1, sub, x, s) CASE(2, mul, x, s) CASE(3, div, x, s) CASE(4, pow, x, s) CASE(5, pow, s, x)
    CASE(6, bitwise_and, x, s) CASE(7, bitwise_and, s, x) CASE(8, bitwise_or, x, s) CASE(9, bitwise_or, s, x)
    case 10: return out ? torch::clamp_out(r, x, -2, s) : torch::clamp(x, -2, s);
    case 11: return out ? torch::add_out(r, x, s, 2) : torch::add(x, s, 2);
  }
#undef CASE
  return r;
}

Tensor factory(int64_t which, int64_t dtype) {
  const auto options = torch::dtype(static_cast<torch::ScalarType>(dtype));
  switch (which) {
    case 0: return torch::zeros({3, 4}, options);
    case 1: return torch::ones({3, 4}, options);
    case 2: return torch::full({3, 4}, 7, options);
    case 3: return torch::eye(3, 4, options);
    case 4: return torch::empty({3, 4}, torch::TensorOptions().dtype(options.dtype())).fill_(5);
  }
  const Tensor ones = torch::ones({3, 4}, options);
  Tensor copy = ones, moved = std::move(copy);
  copy = torch::full({3, 4}, 2, moved.options());
  return torch::add(moved, copy);
}

template <class From, class To>
static void cast_elements(const Tensor& x, Tensor& y) {
  auto from = x.accessor<From, 1>();
  auto to = y.accessor<To, 1>();
  for (int64_t i = 0; i < from.size(0); i++) to[i] = static_cast<To>(static_cast<float>(from[i]));
}
template <class From>
static void cast_from(const Tensor& x, Tensor& y) {
  switch (y.scalar_type()) {
    case torch::kFloat: return cast_elements<From, float>(x, y);
    case torch::kHalf: return cast_elements<From, torch::Half>(x, y);
    case torch::kBFloat16: return cast_elements<From, at::BFloat16>(x, y);
    case torch::kInt: return cast_elements<From, int32_t>(x, y);
    case torch::kShort: return cast_elements<From, int16_t>(x, y);
    case torch::kChar: return cast_elements<From, int8_t>(x, y);
    case torch::kByte: return cast_elements<From, uint8_t>(x, y);
  }
}
Tensor cast(const Tensor& x, int64_t dtype) {
  Tensor y = torch::empty(x.sizes(), static_cast<torch::ScalarType>(dtype));
  switch (x.dtype()) {
    case torch::kFloat: cast_from<float>(x, y); break;
    case torch::kHalf: cast_from<torch::Half>(x, y); break;
    case torch::kBFloat16: cast_from<at::BFloat16>(x, y); break;
    case torch::kInt: cast_from<int32_t>(x, y); break;
    case torch::kShort: cast_from<int16_t>(x, y); break;
    case torch::kChar: cast_from<int8_t>(x, y); break;
    case torch::kByte: cast_from<uint8_t>(x, y); break;
  }
  return y;
}

// Five streams read at once, the fifth without a fast buffer; each element is their sum.
Tensor streamed(const Tensor& x) {
  Tensor y = torch::empty(x.sizes(), torch::kFloat);
  {
    auto a = x.read_stream_accessor<float>(), b = x.read_stream_accessor<float>(), c = x.read_stream_accessor<float>();
    auto d = x.read_stream_accessor<float>(), e = x.read_stream_accessor<float>();
    auto out = y.write_stream_accessor<float>();
    for (int64_t i = 0; i < x.numel(); i++) out.write(a.read() + b.read() + c.read() + d.read() + e.read());
    if (a.close() != 0 || a.close() == 0) out.close();
  }
  return y;
}

// What a pool of 16 KB gives: 1 for a block, 0 for null.
Tensor pool(const Tensor& x) {
  Tensor y = torch::zeros(x.sizes(), torch::kFloat);
  auto out = y.accessor<float, 1>();
  int n = 0;
  const auto got = [&](void* block) {
    out[n++] = block ? 1.f : 0.f;
    return block;
  };
  void* whole = got(torch::neuron::tcm_malloc(16384));
  got(torch::neuron::tcm_malloc(1));
  torch::neuron::tcm_free(whole);
  void *a = got(torch::neuron::tcm_malloc(8000)), *b = got(torch::neuron::tcm_malloc(8000));
  void* rest = got(torch::neuron::tcm_malloc(384));
  got(torch::neuron::tcm_malloc(16));
  torch::neuron::tcm_free(a);
  got(torch::neuron::tcm_malloc(8016));
  void* again = got(torch::neuron::tcm_malloc(8000));
  got(torch::neuron::tcm_malloc(0));
  got(torch::neuron::tcm_malloc(16385));
  {
    auto stream = x.read_stream_accessor<float>();              // the pool is full: it buffers elsewhere
    out[n++] = stream.read();
  }
  for (void* block : {b, rest, again}) torch::neuron::tcm_free(block);
  torch::neuron::tcm_free(nullptr);
  return y;
}

Tensor numbers(const Tensor& x, Scalar s, double d, int64_t i) {
  Tensor y = torch::zeros({4}, torch::kFloat);
  auto out = y.accessor<float, 1>();
  out[0] = static_cast<float>(x.dim());
  out[1] = s.toFloat() + (s.isFloatingPoint() ? 1000.f : 0.f);
  out[2] = static_cast<float>(d);
  out[3] = static_cast<float>(i % 1000);
  return y;
}

Tensor speak(const Tensor& x, int64_t lines) {
  for (int64_t i = 0; i < lines; i++) {
    printf("line %d", static_cast<int>(i));
    std::printf(" of %s\n", "many");
  }
  puts("the end");
  putchar('!');
  TORCH_CHECK(lines >= 0, "there are no ", lines, " lines");
  return torch::zeros(x.sizes(), torch::kFloat);
}
