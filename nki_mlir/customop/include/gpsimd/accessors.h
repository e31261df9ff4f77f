// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Element accessors and TCM accessors of a tensor. With GPSIMD_CHECKED every access and transfer is checked.
#pragma once
#include <gpsimd/memory.h>

namespace gpsimd {

// Element accessors that are open; counted on the array, for the coherence policy.
class Opened {
 public:
  Opened(const Memory& memory, c10::ScalarType dtype, int64_t rank, Place at);
  Opened(const Opened& other) : memory_(other.memory_) { count(1); }
  Opened(Opened&& other) noexcept : memory_(static_cast<Memory&&>(other.memory_)) {}
  Opened& operator=(const Opened&) = delete;
  ~Opened() { count(-1); }
  Array& array() const { return *memory_.get(); }

 private:
  void count(int by) {
    if (memory_.get()) memory_.get()->open_elements += by;
  }
  Memory memory_;
};

void check_index(int64_t index, int64_t size, int64_t axis, bool last, Place at);
void transfer(Array&, bool in, void* tcm, size_t element_bytes, size_t offset, size_t count, Place at);
void count_transfer(bool in, size_t bytes);

template <class T, size_t N, bool RO> struct Row;

template <class T, size_t N, bool RO>
struct Row {                                            // the part of an array below some leading subscripts
  T* data;
  const int64_t *sizes, *strides;
  int64_t axis;
  Row<T, N - 1, RO> at(int64_t i) const { return {data + i * strides[0], sizes + 1, strides + 1, axis + 1}; }
#if GPSIMD_CHECKED
  Row<T, N - 1, RO> operator[](Index i) const {
    check_index(i.value, sizes[0], axis, false, i.at);
    return at(i.value);
  }
#else
  Row<T, N - 1, RO> operator[](int64_t i) const { return at(i); }
#endif
  int64_t size(size_t i) const { return sizes[i]; }
  int64_t stride(size_t i) const { return strides[i]; }
};

template <class T, bool RO>
struct Row<T, 1, RO> {
  using Element = std::conditional_t<RO, const T, T>;
  T* data;
  const int64_t *sizes, *strides;
  int64_t axis;
#if GPSIMD_CHECKED
  Element& operator[](Index i) const {
    check_index(i.value, sizes[0], axis, true, i.at);
    return data[i.value * strides[0]];
  }
#else
  Element& operator[](int64_t i) const { return data[i * strides[0]]; }
#endif
  int64_t size(size_t i) const { return sizes[i]; }
  int64_t stride(size_t i) const { return strides[i]; }
};

}  // namespace gpsimd

namespace torch {

template <class T, size_t N, bool RO>
class TensorAccessor : public gpsimd::Row<T, N, RO> {
 public:
  explicit TensorAccessor(gpsimd::Opened opened)
      : gpsimd::Row<T, N, RO>{reinterpret_cast<T*>(opened.array().data), opened.array().sizes, opened.array().strides, 0},
        opened_(static_cast<gpsimd::Opened&&>(opened)) {}

 private:
  gpsimd::Opened opened_;
};

template <bool RO>
class TensorTcmAccessor {
 public:
  explicit TensorTcmAccessor(const gpsimd::Memory& memory) : memory_(memory) {}

  // `count` elements from element `offset` of the flat tensor.
  template <class T>
  void tensor_to_tcm(T* tcm, size_t offset, size_t count, gpsimd::Place at = gpsimd::here()) const {
    move<true>(const_cast<std::remove_const_t<T>*>(tcm), offset, count, at);
  }
  template <class T>
  void tcm_to_tensor(T* tcm, size_t offset, size_t count, gpsimd::Place at = gpsimd::here()) const {
    static_assert(!RO || !std::is_same<T, T>::value, "the tensor is const: its TCM accessor only reads");
    move<false>(const_cast<std::remove_const_t<T>*>(tcm), offset, count, at);
  }

 private:
  template <bool IN, class T>
  void move(T* tcm, size_t offset, size_t count, gpsimd::Place at) const {
#if GPSIMD_CHECKED
    gpsimd::transfer(*memory_.get(), IN, tcm, sizeof(T), offset, count, at);
#else
    if (!IN && !gpsimd::may_write(*memory_.get(), at)) return;
    T* data = reinterpret_cast<T*>(memory_.get()->data) + offset;
    std::memcpy(IN ? tcm : data, IN ? data : tcm, count * sizeof(T));
    gpsimd::count_transfer(IN, count * sizeof(T));
#endif
  }
  gpsimd::Memory memory_;
};

}  // namespace torch
