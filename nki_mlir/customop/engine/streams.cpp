// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stream accessors: four at a time take 4 KB of the pool and are fast, further ones buffer elsewhere.
#include "core.h"

#include <gpsimd/streams.h>

#include <algorithm>

namespace gpsimd {

constexpr int64_t FAST_STREAMS = 4;
enum Opening { ELEMENTS, READ_STREAM, WRITE_STREAM };

Array& open_accessor(const Memory& memory, c10::ScalarType dtype, int64_t opened, Place at);

Stream::Stream(const Memory& memory, c10::ScalarType dtype, bool writes, Place at)
    : memory_(memory), writes_(writes), opened_(at) {
  Array& array = open_accessor(memory, dtype, writes ? WRITE_STREAM : READ_STREAM, at);
  (writes ? array.open_writes : array.open_reads)++;
  if (core->fast_streams < FAST_STREAMS) buffer_ = static_cast<char*>(core->tcm->take(STREAM_BYTES, at));
  fast_ = buffer_ != nullptr;
  if (fast_) core->fast_streams++;
  else buffer_ = static_cast<char*>(std::malloc(STREAM_BYTES));
}

Stream::Stream(Stream&& other) noexcept
    : memory_(other.memory_), writes_(other.writes_), open_(other.open_), fast_(other.fast_), buffer_(other.buffer_),
      next_(other.next_), used_(other.used_), filled_(other.filled_), capacity_(other.capacity_),
      opened_(other.opened_) {
  other.open_ = false;
}

int Stream::close() {
  if (!open_) return -1;
  if (writes_ && used_) flush(opened_);
  open_ = false;
  Array& array = *memory_.get();
  (writes_ ? array.open_writes : array.open_reads)--;
  if (fast_) {
    core->tcm->give(buffer_, opened_);
    core->fast_streams--;
  } else {
    std::free(buffer_);
  }
  used_ = filled_ = capacity_ = 0;          // the next element finds the stream closed
  return 0;
}

static int64_t buffered(const Array& array, int64_t next) {
  return std::min(static_cast<int64_t>(STREAM_BYTES) / c10::elementSize(array.dtype), array.elements - next);
}

void Stream::refill(Place at) {
  check_open(at);
  const Array& array = *memory_.get();
  filled_ = buffered(array, next_);
  if (filled_ == 0) stop("stream-end", at, false, array.elements);
  const int64_t size = c10::elementSize(array.dtype);
  __real_memcpy(buffer_, array.data + next_ * size, filled_ * size);
  next_ += filled_;
  used_ = 0;
  core->counters.refills++;
  core->counters.stream_elements += filled_;
}

void Stream::flush(Place at) {
  Array& array = *memory_.get();
  const int64_t size = c10::elementSize(array.dtype);
  if (may_write(array, at)) {
    __real_memcpy(array.data + next_ * size, buffer_, used_ * size);
    note_write(array, next_, next_ + used_, at);
  }
  next_ += used_;
  core->counters.refills++;
  core->counters.stream_elements += used_;
  used_ = 0;
}

void Stream::drain(Place at) {
  check_open(at);
  if (used_) flush(opened_);
  capacity_ = buffered(*memory_.get(), next_);
  if (capacity_ == 0) stop("stream-end", at, true, memory_.get()->elements);
}

}  // namespace gpsimd
