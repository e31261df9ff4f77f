// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stream accessors: a tensor's elements in order, through a buffer of 4 KB in tightly coupled memory.
#pragma once
#include <gpsimd/memory.h>

namespace gpsimd {

constexpr size_t STREAM_BYTES = 4096;

class Stream {
 public:
  Stream(const Memory& memory, c10::ScalarType dtype, bool writes, Place at);
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream() { close(); }
  int close();

 protected:
  void refill(Place at);                    // reading: the next elements
  void drain(Place at);                     // writing: room for the next element
  void check_open(Place at) {
    if (!open_) stop("stream-closed", at, writes_);
  }
  void flush(Place at);
  Memory memory_;
  bool writes_, open_ = true, fast_ = false;
  char* buffer_ = nullptr;
  int64_t next_ = 0, used_ = 0, filled_ = 0, capacity_ = 0;     // in elements: of the tensor; of the buffer
  Place opened_;
};

}  // namespace gpsimd

namespace torch {

template <class T>
class TensorReadStreamAccessor : public gpsimd::Stream {
 public:
  explicit TensorReadStreamAccessor(gpsimd::Stream&& stream) : gpsimd::Stream(static_cast<gpsimd::Stream&&>(stream)) {}
  T read(gpsimd::Place at = gpsimd::here()) {
    if (used_ == filled_) refill(at);
    return reinterpret_cast<const T*>(buffer_)[used_++];
  }
};

template <class T>
class TensorWriteStreamAccessor : public gpsimd::Stream {
 public:
  explicit TensorWriteStreamAccessor(gpsimd::Stream&& stream) : gpsimd::Stream(static_cast<gpsimd::Stream&&>(stream)) {}
  void write(T value, gpsimd::Place at = gpsimd::here()) {
    if (used_ == capacity_) drain(at);
    reinterpret_cast<T*>(buffer_)[used_++] = value;
  }
};

}  // namespace torch
