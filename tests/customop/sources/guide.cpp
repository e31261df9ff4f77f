// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators as users write them after the public guide: rows, reductions, tiles, streams, integers.
#include <torch/torch.h>

#include <neuron/neuron-utils.hpp>
#include <cmath>
#include <limits>
#include <stdint.h>

// Softmax of the rows of a matrix, a row at a time in tightly coupled memory.
torch::Tensor softmax_rows(const torch::Tensor& x) {
  const size_t rows = x.size(0), columns = x.size(1);
  torch::Tensor y = torch::empty(x.sizes(), torch::kFloat);
  float* row = (float*)torch::neuron::tcm_malloc(sizeof(float) * columns);
  TORCH_CHECK(row != nullptr, "a row has to fit");
  auto in = x.tcm_accessor();
  auto out = y.tcm_accessor();
  for (size_t r = 0; r < rows; r++) {
    in.tensor_to_tcm<float>(row, r * columns, columns);
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    for (size_t c = 0; c < columns; c++) most = std::max(most, row[c]);
    for (size_t c = 0; c < columns; c++) sum += row[c] = expf(row[c] - most);
    for (size_t c = 0; c < columns; c++) row[c] /= sum;
    out.tcm_to_tensor<float>(row, r * columns, columns);
  }
  torch::neuron::tcm_free(row);
  return y;
}

// Sum and maximum of each row: two results as the rows of one tensor.
torch::Tensor sum_and_max(const torch::Tensor& x) {
  torch::Tensor y = torch::zeros({2, x.size(0)}, torch::dtype(torch::kFloat));
  auto a = x.accessor<float, 2>();
  auto b = y.accessor<float, 2>();
  for (int i = 0; i < x.size(0); ++i) {
    b[1][i] = a[i][0];
    for (int j = 0; j < x.size(1); ++j) {
      b[0][i] += a[i][j];
      if (a[i][j] > b[1][i]) b[1][i] = a[i][j];
    }
  }
  return y;
}

torch::Tensor limited(const torch::Tensor& x, torch::Scalar low, double high) {
  return torch::clamp(x, low, high);
}

// A product of matrices in tiles of 16 rows, columns and steps; the cores share the rows of tiles.
torch::Tensor tiled_matmul(const torch::Tensor& a, const torch::Tensor& b) {
  constexpr int T = 16;
  torch::Tensor c = get_dst_tensor();
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  auto* ta = static_cast<float*>(torch::neuron::tcm_malloc(T * T * sizeof(float)));
  auto* tb = static_cast<float*>(torch::neuron::tcm_malloc(T * T * sizeof(float)));
  auto* tc = static_cast<float*>(torch::neuron::tcm_malloc(T * T * sizeof(float)));
  auto in_a = a.tcm_accessor(), in_b = b.tcm_accessor();
  auto out = c.tcm_accessor();
  for (int64_t i = T * get_cpu_id(); i < m; i += T * get_cpu_count()) {
    for (int64_t j = 0; j < n; j += T) {
      for (int e = 0; e < T * T; e++) tc[e] = 0.0f;
      for (int64_t s = 0; s < k; s += T) {
        for (int r = 0; r < T; r++) {
          in_a.tensor_to_tcm<float>(ta + r * T, (i + r) * k + s, T);
          in_b.tensor_to_tcm<float>(tb + r * T, (s + r) * n + j, T);
        }
        for (int r = 0; r < T; r++)
          for (int q = 0; q < T; q++)
            for (int t = 0; t < T; t++) tc[r * T + t] += ta[r * T + q] * tb[q * T + t];
      }
      for (int r = 0; r < T; r++) out.tcm_to_tensor<float>(tc + r * T, (i + r) * n + j, T);
    }
  }
  torch::neuron::tcm_free(ta);
  torch::neuron::tcm_free(tb);
  torch::neuron::tcm_free(tc);
  return c;
}

// Running sums, element by element through streams.
torch::Tensor running_sum(const torch::Tensor& x) {
  torch::Tensor y = torch::empty(x.sizes(), x.dtype());
  auto in = x.read_stream_accessor<at::BFloat16>();
  auto out = y.write_stream_accessor<at::BFloat16>();
  float total = 0;
  for (int64_t i = 0; i < x.numel(); i++) {
    total += in.read();
    out.write(total);
  }
  in.close();
  out.close();
  return y;
}

// How often each of n classes occurs.
torch::Tensor histogram(const torch::Tensor& classes, int64_t n) {
  torch::Tensor counts = torch::zeros({n}, torch::kInt);
  auto in = classes.accessor<uint8_t, 1>();
  auto out = counts.accessor<int32_t, 1>();
  for (size_t i = 0; i < classes.numel(); i++) out[in[i]] += 1;
  return counts;
}

// A choice by a mask of bytes, on every core a part.
torch::Tensor chosen(const torch::Tensor& mask, const torch::Tensor& a, const torch::Tensor& b) {
  torch::Tensor y = get_dst_tensor();
  const size_t part = (y.numel() + get_cpu_count() - 1) / get_cpu_count();
  const size_t first = part * get_cpu_id();
  if (first >= y.numel()) return y;
  const size_t n = std::min<size_t>(part, y.numel() - first);
  uint8_t* m = static_cast<uint8_t*>(torch::neuron::tcm_malloc(n));
  int16_t* u = static_cast<int16_t*>(torch::neuron::tcm_malloc(n * sizeof(int16_t)));
  int16_t* v = static_cast<int16_t*>(torch::neuron::tcm_malloc(n * sizeof(int16_t)));
  mask.tcm_accessor().tensor_to_tcm<uint8_t>(m, first, n);
  a.tcm_accessor().tensor_to_tcm<int16_t>(u, first, n);
  b.tcm_accessor().tensor_to_tcm<int16_t>(v, first, n);
  for (size_t i = 0; i < n; i++) u[i] = m[i] ? u[i] : v[i];
  y.tcm_accessor().tcm_to_tensor<int16_t>(u, first, n);
  torch::neuron::tcm_free(m);
  torch::neuron::tcm_free(u);
  torch::neuron::tcm_free(v);
  return y;
}

// tanh(alpha x + beta) from elementwise functions.
torch::Tensor squashed(const torch::Tensor& x, double alpha, double beta) {
  torch::Tensor e = torch::exp(torch::mul(torch::add(torch::mul(x, alpha), beta), 2));
  return torch::div(torch::sub(e, 1), torch::add(e, 1));
}
