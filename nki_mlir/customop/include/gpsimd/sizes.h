// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// IntArrayRef: the sizes of a tensor. It has its own copy, so that it may outlive the tensor.
#pragma once
#include <gpsimd/place.h>

#include <initializer_list>
#include <vector>

namespace c10 {

class IntArrayRef {
 public:
  IntArrayRef() = default;
  IntArrayRef(std::initializer_list<int64_t> sizes) { copy(sizes.begin(), sizes.size()); }
  IntArrayRef(const std::vector<int64_t>& sizes) { copy(sizes.data(), sizes.size()); }
  IntArrayRef(const int64_t* sizes, size_t count) { copy(sizes, count); }

  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const int64_t* data() const { return values_; }
  const int64_t* begin() const { return values_; }
  const int64_t* end() const { return values_ + count_; }
  int64_t front() const { return (*this)[0]; }
  int64_t back() const { return (*this)[count_ - 1]; }
  std::vector<int64_t> vec() const { return std::vector<int64_t>(begin(), end()); }
  int64_t operator[](gpsimd::Index i) const {
    if (i.value < 0 || i.value >= static_cast<int64_t>(count_)) gpsimd::stop("size-range", i.at, i.value, count_);
    return values_[i.value];
  }
  bool operator==(const IntArrayRef& other) const {
    return count_ == other.count_ && std::memcmp(values_, other.values_, count_ * sizeof(int64_t)) == 0;
  }
  bool operator!=(const IntArrayRef& other) const { return !(*this == other); }

 private:
  void copy(const int64_t* sizes, size_t count) {
    if (count > gpsimd::DIMS_MAX) gpsimd::stop("dims", gpsimd::Place{nullptr, 0}, static_cast<int64_t>(count));
    count_ = count;
    for (size_t i = 0; i < count; i++) values_[i] = sizes[i];
  }
  int64_t values_[gpsimd::DIMS_MAX] = {};
  size_t count_ = 0;
};

}  // namespace c10
