// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel must not do. A comment names the finding that its line gives; `which` chooses the function.
#include <neuron/neuron-utils.hpp>
#include <torch/torch.h>

#include <stdexcept>

using torch::neuron::tcm_free;
using torch::neuron::tcm_malloc;
using Policy = torch::CoherencyEnforcer;

static float* block(size_t n) { return static_cast<float*>(tcm_malloc(n * sizeof(float))); }
static torch::Tensor done(const torch::Tensor& x) { return torch::zeros(x.sizes(), torch::kFloat); }

static torch::Tensor transfer_range(const torch::Tensor& x) {
  float* b = block(8);
  x.tcm_accessor().tensor_to_tcm<float>(b, x.numel() - 4, 8);  // transfer-range
  tcm_free(b);
  return done(x);
}
static torch::Tensor tcm_range(const torch::Tensor& x) {
  float* b = block(8);
  x.tcm_accessor().tensor_to_tcm<float>(b + 4, 0, 8);  // tcm-range
  tcm_free(b);
  return done(x);
}
static torch::Tensor tcm_freed(const torch::Tensor& x) {
  float* b = block(8);
  tcm_free(b);
  x.tcm_accessor().tensor_to_tcm<float>(b, 0, 8);  // tcm-freed
  return done(x);
}
static torch::Tensor tcm_foreign(const torch::Tensor& x) {
  float b[8];
  x.tcm_accessor().tensor_to_tcm<float>(b, 0, 8);  // tcm-foreign
  return done(x);
}
static torch::Tensor tcm_null(const torch::Tensor& x) {
  float* b = block(5000);
  x.tcm_accessor().tensor_to_tcm<float>(b, 0, 8);  // tcm-null
  return done(x);
}
static torch::Tensor tcm_type(const torch::Tensor& x) {
  auto* b = reinterpret_cast<int16_t*>(block(8));
  x.tcm_accessor().tensor_to_tcm<int16_t>(b, 0, 8);  // tcm-type
  tcm_free(b);
  return done(x);
}
static torch::Tensor access_range(const torch::Tensor& x) {
  float* b = block(8);
  for (int i = 0; i <= 8; i++)
    b[i] = 1.f;  // access-range
  tcm_free(b);
  return done(x);
}
static torch::Tensor access_before(const torch::Tensor& x) {
  volatile float* b = block(8);
  torch::Tensor y = done(x);
  y.accessor<float, 2>()[0][0] = b[-1];  // access-range (before)
  tcm_free(const_cast<float*>(b));
  return y;
}
static torch::Tensor access_copy(const torch::Tensor& x) {
  float *a = block(8), *b = block(4);
  a[0] = 1.f;
  std::memcpy(b, a, x.numel());  // access-range (memcpy)
  tcm_free(a);
  tcm_free(b);
  return done(x);
}
static torch::Tensor access_freed(const torch::Tensor& x) {
  float* b = block(8);
  tcm_free(b);
  b[3] = 1.f;  // access-freed
  return done(x);
}
static torch::Tensor access_foreign(const torch::Tensor& x) {
  volatile float* b = block(8);
  b[2000] = 1.f;  // access-foreign
  tcm_free(const_cast<float*>(b));
  return done(x);
}
static torch::Tensor access_null(const torch::Tensor& x) {
  float *a = block(4000), *b = block(200);
  b[x.numel()] = a[0];  // access-null
  return done(x);
}
static torch::Tensor free_twice(const torch::Tensor& x) {
  float* b = block(8);
  tcm_free(b);
  tcm_free(b);  // free-twice
  return done(x);
}
static torch::Tensor free_foreign(const torch::Tensor& x) {
  float* b = block(8);
  tcm_free(b + 1);  // free-foreign
  tcm_free(b);
  return done(x);
}
static torch::Tensor leak(const torch::Tensor& x) {
  tcm_malloc(100);  // leak
  return done(x);
}
static torch::Tensor index(const torch::Tensor& x) {
  auto a = x.accessor<float, 2>();
  torch::Tensor y = done(x);
  y.accessor<float, 2>()[0][0] = a[1]
                                  [x.size(1)];  // index
  return y;
}
static torch::Tensor accessor_type(const torch::Tensor& x) {
  x.accessor<int32_t, 2>();  // accessor-type
  return done(x);
}
static torch::Tensor accessor_rank(const torch::Tensor& x) {
  x.accessor<float, 3>();  // accessor-rank
  return done(x);
}
static torch::Tensor stream_end(const torch::Tensor& x) {
  auto in = x.read_stream_accessor<float>();
  for (int64_t i = 0; i <= x.numel(); i++)
    in.read();  // stream-end
  return done(x);
}
static torch::Tensor stream_end_write(const torch::Tensor& x) {
  torch::Tensor y = done(x);
  auto out = y.write_stream_accessor<float>();
  for (int64_t i = 0; i <= x.numel(); i++)
    out.write(1.f);  // stream-end (write)
  return y;
}
static torch::Tensor stream_closed(const torch::Tensor& x) {
  auto in = x.read_stream_accessor<float>();
  in.close();
  in.read();  // stream-closed
  return done(x);
}
static torch::Tensor coherence(const torch::Tensor& x) {
  torch::Tensor y = done(x);
  auto elements = y.accessor<float, 2>();
  auto out = y.write_stream_accessor<float>();  // coherence
  return y;
}
static torch::Tensor coherence_verbose(const torch::Tensor& x) {
  x.set_accessor_coherence_policy(Policy::INCOHERENT_VERBOSE);
  auto in = x.read_stream_accessor<float>();
  auto elements = x.accessor<float, 2>();  // coherence-verbose
  return done(x);
}
static torch::Tensor coherence_quiet(const torch::Tensor& x) {
  x.set_accessor_coherence_policy(Policy::INCOHERENT_QUIET);
  auto in = x.read_stream_accessor<float>();
  auto elements = x.accessor<float, 2>();
  return x.get_accessor_coherence_policy() == Policy::INCOHERENT_QUIET ? done(x) : x;
}
static torch::Tensor streams_together(const torch::Tensor& x) {
  auto a = x.read_stream_accessor<float>();
  auto b = x.read_stream_accessor<float>();
  a.close();
  b.close();
  auto elements = x.accessor<float, 2>();
  auto more = x.accessor<float, 2>();
  return done(x);
}
static torch::Tensor result(const torch::Tensor& x) {
  return torch::zeros({x.size(0)}, torch::kInt);  // result
}
static torch::Tensor unwritten(const torch::Tensor& x) {
  torch::Tensor y = torch::empty(x.sizes(), torch::kFloat);  // unwritten
  auto out = y.accessor<float, 2>();
  for (int64_t i = 0; i < x.size(0); i++)
    for (int64_t j = 0; j + 1 < x.size(1); j++) out[i][j] = 0.f;
  return y;
}
static torch::Tensor unwritten_dst(const torch::Tensor& x) {
  torch::Tensor y = get_dst_tensor();  // unwritten (dst)
  auto out = y.write_stream_accessor<float>();
  for (int64_t i = 0; i < x.numel() / 2; i++) out.write(0.f);
  return y;
}
static torch::Tensor writes_input(const torch::Tensor& x) {
  torch::Tensor same = x;
  same.fill_(1);  // writes-input
  return done(x);
}
static torch::Tensor writes_input_element(const torch::Tensor& x) {
  torch::Tensor same = x;
  same.accessor<float, 2>()[0][0] = 1.f;  // writes-input (element)
  return done(x);
}
static torch::Tensor writes_input_transfer(const torch::Tensor& x) {
  torch::Tensor same = x;
  float* b = block(8);
  b[0] = 1.f;
  same.tcm_accessor().tcm_to_tensor<float>(b, 0, 1);  // writes-input (transfer)
  tcm_free(b);
  return done(x);
}
static torch::Tensor writes_input_stream(const torch::Tensor& x) {
  torch::Tensor same = x;
  same.write_stream_accessor<float>().write(1.f);  // writes-input (stream)
  return done(x);
}
static torch::Tensor writes_input_out(const torch::Tensor& x) {
  torch::Tensor same = x;
  torch::add_out(same, x, 1);  // writes-input (out)
  return done(x);
}
static torch::Tensor transfer_overflow(const torch::Tensor& x) {
  float* b = block(8);
  const size_t far = size_t(1) << 62;
  x.tcm_accessor().tensor_to_tcm<float>(b, far, far);  // transfer-range (overflow)
  tcm_free(b);
  return done(x);
}
static torch::Tensor negative_power(const torch::Tensor& x) {
  torch::pow(torch::ones({2}, torch::kInt), -1);  // negative-power
  return done(x);
}
static torch::Tensor no_return(const torch::Tensor& x) {  // no-return
  get_dst_tensor().fill_(1);
}
static torch::Tensor long_dim(const torch::Tensor& x) {
  torch::empty({1, 1, 1, 1, 65536}, torch::kChar);  // long-dim
  return done(x);
}
static torch::Tensor negative_size(const torch::Tensor& x) {
  torch::empty({-1}, torch::kChar);  // negative-size
  return done(x);
}
static torch::Tensor size_range(const torch::Tensor& x) {
  x.size(2);  // size-range
  return done(x);
}
static torch::Tensor sizes_range(const torch::Tensor& x) {
  x.sizes()[2];  // size-range (sizes)
  return done(x);
}
static torch::Tensor no_dtype(const torch::Tensor& x) {
  return torch::zeros(x.sizes(), torch::TensorOptions());  // no-dtype
}
static torch::Tensor operand_shapes(const torch::Tensor& x) {
  return torch::add(x, torch::ones({1, 1}, torch::kFloat));  // operand-shapes
}
static torch::Tensor result_type(const torch::Tensor& x) {
  torch::Tensor y = torch::zeros(x.sizes(), torch::kInt);
  return torch::exp_out(y, x);  // result-type
}
static torch::Tensor bitwise_type(const torch::Tensor& x) {
  return torch::bitwise_not(x);  // bitwise-type
}
static torch::Tensor alpha(const torch::Tensor& x) {
  torch::Tensor i = torch::ones(x.sizes(), torch::kInt);
  return torch::add(i, i, 0.5);  // alpha
}
static torch::Tensor undefined(const torch::Tensor& x) {
  torch::Tensor y;
  return y.numel() == 0 ? y : x;  // undefined-tensor
}
static torch::Tensor check(const torch::Tensor& x) {
  TORCH_CHECK(x.dim() == 3, "wanted 3 dimensions, not ", x.dim());  // check
  return x;
}
static torch::Tensor check_alone(const torch::Tensor& x) {
  TORCH_CHECK(x.dim() == 3);
  return x;
}
static torch::Tensor dims(const torch::Tensor& x) {
  return torch::zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}, torch::kFloat);
}

static torch::Tensor divided(const torch::Tensor& x) {
  auto in = x.accessor<float, 2>();
  torch::Tensor y = done(x);
  y.accessor<float, 2>()[0][0] = static_cast<int>(x.numel()) / static_cast<int>(in[0][0]);  // divide
  return y;
}
static torch::Tensor remainder(const torch::Tensor& x) {
  auto in = x.accessor<float, 2>();
  torch::Tensor y = done(x);
  y.accessor<float, 2>()[0][0] = x.numel() % static_cast<int64_t>(in[0][0]);  // divide (remainder)
  return y;
}
static torch::Tensor lowest(const torch::Tensor& x) {
  auto in = x.accessor<float, 2>();
  const int by = static_cast<int>(in[0][1]) - 2;
  torch::Tensor y = done(x);
  y.accessor<float, 2>()[0][0] = static_cast<float>((-2147483647 - by / by) / by);  // divide (lowest)
  return y;
}

torch::Tensor misuse(const torch::Tensor& x, int64_t which) {
  static torch::Tensor (*const all[])(const torch::Tensor&) = {
      transfer_range, tcm_range, tcm_freed, tcm_foreign, tcm_null, tcm_type, access_range, access_before, access_copy,
      access_freed, access_foreign, access_null, free_twice, free_foreign, leak, index, accessor_type, accessor_rank,
      stream_end, stream_end_write, stream_closed, coherence, coherence_verbose, coherence_quiet, streams_together,
      result, unwritten, unwritten_dst, writes_input, writes_input_element, long_dim, negative_size, size_range,
      sizes_range, no_dtype, operand_shapes, result_type, bitwise_type, alpha, undefined, check, check_alone, dims,
      divided, remainder, lowest, writes_input_transfer, writes_input_stream, writes_input_out, transfer_overflow,
      negative_power, no_return};
  return all[which](x);
}

torch::Tensor throws(const torch::Tensor& x) {  // exception
  if (x.numel()) throw std::runtime_error("no such thing");
  return x;
}
torch::Tensor throws_a_number(const torch::Tensor& x) {
  if (x.numel()) throw 5;
  return x;
}

// -- kernels for several cores ---------------------------------------------------------------------------------------
torch::Tensor cores(const torch::Tensor& x, int64_t which) {  // no-dst
  if (which == 0) return x;
  torch::Tensor y = get_dst_tensor();  // unwritten (cores)
  const size_t part = x.numel() / get_cpu_count();
  float* b = block(part);
  auto in = x.tcm_accessor();
  auto out = y.tcm_accessor();
  in.tensor_to_tcm<float>(b, part * get_cpu_id(), part);
  switch (which) {
    case 1:
      x.accessor<float, 2>();  // multicore-accessor
      break;
    case 2:
      x.read_stream_accessor<float>();  // multicore-accessor (stream)
      break;
    case 3:
      out.tcm_to_tensor<float>(b, part / 2 * get_cpu_id(), part);  // overlap
      break;
    case 4:
      if (get_cpu_id() != 3) out.tcm_to_tensor<float>(b, part * get_cpu_id(), part);
      break;
    case 5:
      if (get_cpu_id() == 2) tcm_malloc(64);  // leak (core 2)
      out.tcm_to_tensor<float>(b, part * get_cpu_id(), part);
      break;
    case 6:
      printf("core %u\n", get_cpu_id());
      out.tcm_to_tensor<float>(b, part * get_cpu_id(), part);
      break;
    case 9:
      b[0] = static_cast<float>(512 / static_cast<int>(get_cpu_id()));  // divide (core 0)
      out.tcm_to_tensor<float>(b, part * get_cpu_id(), part);
      break;
    case 7:
      y.fill_(1);  // overlap (fill)
      break;
    default:
      out.tcm_to_tensor<float>(b, part * get_cpu_id(), part);
  }
  tcm_free(b);
  return y;
}
