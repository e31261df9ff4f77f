// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the device's memory, counted references to them, and what the engine does with them.
#pragma once
#include <gpsimd/dtypes.h>
#include <gpsimd/sizes.h>

#include <cstring>

namespace torch {

struct CoherencyEnforcer {                  // what happens when open accessors of a tensor may disagree on its contents
  enum Policy { COHERENT, INCOHERENT_VERBOSE, INCOHERENT_QUIET };
};

}  // namespace torch

namespace gpsimd {

enum class Role { INPUT, OUTPUT, LOCAL, SHAPE };        // SHAPE: in a shape function, without data

struct Writes;                                          // which elements were written, and where (checked build)

struct Array {
  int64_t references = 0;
  char* data = nullptr;
  Role role = Role::LOCAL;
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t rank = 0, elements = 1, sizes[DIMS_MAX] = {}, strides[DIMS_MAX] = {};
  torch::CoherencyEnforcer::Policy policy = torch::CoherencyEnforcer::COHERENT;
  int open_elements = 0, open_reads = 0, open_writes = 0;
  Place made = {nullptr, 0};
  Writes* writes = nullptr;                             // null: all elements have a value
  int64_t bytes() const { return elements * c10::elementSize(dtype); }
};

void release(Array*);
Array* input(const Arg&);
Array* made(const c10::IntArrayRef&, const c10::TensorOptions&, bool written, Place at);
char* data_of(Array&, Place at);                        // stops in a shape function
void fill(Array&, const c10::Scalar&, Place at);
bool may_write(const Array&, Place at);                 // an argument keeps its values: writing it is a finding
void note_write(Array&, int64_t begin, int64_t end, Place at);

class Memory {                                          // a counted reference
 public:
  Memory() = default;
  explicit Memory(Array* array) : array_(array) { retain(); }
  Memory(const Memory& other) : array_(other.array_) { retain(); }
  Memory(Memory&& other) noexcept : array_(other.array_) { other.array_ = nullptr; }
  Memory& operator=(const Memory& other) { return *this = Memory(other); }
  Memory& operator=(Memory&& other) noexcept {
    Array* before = array_;
    array_ = other.array_;
    other.array_ = before;
    return *this;
  }
  ~Memory() {
    if (array_ && --array_->references == 0) release(array_);
  }
  Array* get() const { return array_; }
  Array& array(Place at) const {
    if (!array_) stop("undefined-tensor", at);
    return *array_;
  }
  const Memory& opened(Place at) const {                // the array has data
    data_of(array(at), at);
    return *this;
  }

 private:
  void retain() {
    if (array_) array_->references++;
  }
  Array* array_ = nullptr;
};

}  // namespace gpsimd
