// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// torch::Tensor: a reference to a dense array in the device's memory, and the accessors that open it.
#pragma once
#include <gpsimd/accessors.h>
#include <gpsimd/streams.h>

namespace torch {

using c10::BFloat16;
using c10::Half;
using c10::IntArrayRef;
using c10::Scalar;
using c10::ScalarType;
using c10::TensorOptions;

constexpr ScalarType kFloat = ScalarType::Float, kBFloat16 = ScalarType::BFloat16, kHalf = ScalarType::Half,
                     kInt = ScalarType::Int, kShort = ScalarType::Short, kChar = ScalarType::Char,
                     kByte = ScalarType::Byte;

inline TensorOptions dtype(ScalarType dtype) { return TensorOptions(dtype); }

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(gpsimd::Memory memory) : memory_(static_cast<gpsimd::Memory&&>(memory)) {}

  bool defined() const { return memory_.get() != nullptr; }
  IntArrayRef sizes(gpsimd::Place at = gpsimd::here()) const {
    const gpsimd::Array& array = memory_.array(at);
    return IntArrayRef(array.sizes, static_cast<size_t>(array.rank));
  }
  int64_t size(int64_t axis, gpsimd::Place at = gpsimd::here()) const {
    const gpsimd::Array& array = memory_.array(at);
    if (axis < -array.rank || axis >= array.rank) gpsimd::stop("size-range", at, axis, array.rank);
    return array.sizes[axis < 0 ? axis + array.rank : axis];
  }
  int64_t dim(gpsimd::Place at = gpsimd::here()) const { return memory_.array(at).rank; }
  int64_t numel(gpsimd::Place at = gpsimd::here()) const { return memory_.array(at).elements; }
  ScalarType scalar_type(gpsimd::Place at = gpsimd::here()) const { return memory_.array(at).dtype; }
  ScalarType dtype(gpsimd::Place at = gpsimd::here()) const { return memory_.array(at).dtype; }
  TensorOptions options(gpsimd::Place at = gpsimd::here()) const { return TensorOptions(memory_.array(at).dtype); }
  Tensor& fill_(const Scalar& value, gpsimd::Place at = gpsimd::here()) const {
    gpsimd::fill(memory_.array(at), value, at);
    return const_cast<Tensor&>(*this);
  }

  template <class T, size_t N>
  TensorAccessor<T, N, true> accessor(gpsimd::Place at = gpsimd::here()) const& {
    return TensorAccessor<T, N, true>(gpsimd::Opened(memory_, c10::CppTypeToScalarType<T>::value, N, at));
  }
  template <class T, size_t N>
  TensorAccessor<T, N, false> accessor(gpsimd::Place at = gpsimd::here()) & {
    return TensorAccessor<T, N, false>(gpsimd::Opened(memory_, c10::CppTypeToScalarType<T>::value, N, at));
  }
  template <class T>
  TensorReadStreamAccessor<T> read_stream_accessor(gpsimd::Place at = gpsimd::here()) const& {
    return TensorReadStreamAccessor<T>(gpsimd::Stream(memory_, c10::CppTypeToScalarType<T>::value, false, at));
  }
  template <class T>
  TensorWriteStreamAccessor<T> write_stream_accessor(gpsimd::Place at = gpsimd::here()) & {
    return TensorWriteStreamAccessor<T>(gpsimd::Stream(memory_, c10::CppTypeToScalarType<T>::value, true, at));
  }
  TensorTcmAccessor<true> tcm_accessor(gpsimd::Place at = gpsimd::here()) const& {
    return TensorTcmAccessor<true>(memory_.opened(at));
  }
  TensorTcmAccessor<false> tcm_accessor(gpsimd::Place at = gpsimd::here()) & {
    return TensorTcmAccessor<false>(memory_.opened(at));
  }

  CoherencyEnforcer::Policy get_accessor_coherence_policy(gpsimd::Place at = gpsimd::here()) const {
    return memory_.array(at).policy;
  }
  void set_accessor_coherence_policy(CoherencyEnforcer::Policy policy, gpsimd::Place at = gpsimd::here()) const {
    memory_.array(at).policy = policy;
  }

  const gpsimd::Memory& memory() const { return memory_; }

 private:
  gpsimd::Memory memory_;
};

}  // namespace torch

namespace at {
using torch::BFloat16;
using torch::Half;
using torch::IntArrayRef;
using torch::Scalar;
using torch::ScalarType;
using torch::Tensor;
using torch::kBFloat16;
using torch::kByte;
using torch::kChar;
using torch::kFloat;
using torch::kHalf;
using torch::kInt;
using torch::kShort;
}  // namespace at
