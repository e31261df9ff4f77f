// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// tcm_malloc and tcm_free: first fit in a pool of 16 KB, in blocks of multiples of 16 bytes.
#include "core.h"

#include <gpsimd/accessors.h>

#include <algorithm>

namespace gpsimd {

constexpr int64_t GRANULE = 16;

static char* place_block(Tcm& tcm, int64_t offset, int64_t bytes);

void Tcm::clear() {
  live.clear();
#if GPSIMD_CHECKED
  std::fill_n(state.get(), used, uint8_t(NEVER));
  freed.clear();
  cursor = used = GAP_BYTES;
#endif
}

void* Tcm::take(int64_t bytes, Place at) {
  const int64_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;
  int64_t offset = 0;
  auto next = live.begin();
  while (next != live.end() && next->offset - offset < rounded) {
    offset = next->offset + next->rounded;
    ++next;
  }
  if (bytes <= 0 || offset + rounded > static_cast<int64_t>(TCM_BYTES)) return nullptr;
  char* data = place_block(*this, offset, bytes);
  if (data) live.insert(next, Block{offset, rounded, bytes, data, at, Place{nullptr, 0}});
  return data;
}

#if GPSIMD_CHECKED
static char* place_block(Tcm& tcm, int64_t, int64_t bytes) {
  const int64_t needed = (bytes + GRANULE - 1) / GRANULE * GRANULE + GAP_BYTES;
  for (int turn = 0; turn < 2; turn++, tcm.cursor = GAP_BYTES) {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Block& block : tcm.live) {
        const int64_t begin = block.data - tcm.base - GAP_BYTES, end = begin + block.bytes + 2 * GAP_BYTES;
        if (tcm.cursor < end && begin < tcm.cursor + needed) {
          tcm.cursor = (end + GRANULE - 1) / GRANULE * GRANULE;
          moved = true;
        }
      }
    }
    if (tcm.cursor + needed > AREA_BYTES) continue;
    char* data = tcm.base + tcm.cursor;
    tcm.freed.erase(std::remove_if(tcm.freed.begin(), tcm.freed.end(), [&](const Block& old) {
      return old.data < data + needed && data < old.data + old.bytes + GAP_BYTES;
    }), tcm.freed.end());
    __real_memset(data, 0xFF, bytes);                 // a NaN, or -1: what was never written is not taken for a result
    __real_memset(tcm.state.get() + tcm.cursor, NEVER, needed);
    __real_memset(tcm.state.get() + tcm.cursor, LIVE, bytes);
    tcm.cursor += needed;
    tcm.used = std::max(tcm.used, tcm.cursor);
    return data;
  }
  return nullptr;
}

const Block* Tcm::find(const void* address, bool among_freed) const {
  const char* byte = static_cast<const char*>(address);
  const Block* nearest = nullptr;                   // of two neighbors the one before: overruns are usual
  for (const Block& block : among_freed ? freed : live) {
    if (byte >= block.data - GAP_BYTES && byte < block.data + block.bytes + GAP_BYTES &&
        (!nearest || (block.data <= byte && block.data > nearest->data)))
      nearest = &block;
  }
  return nearest;
}
#else
static char* place_block(Tcm& tcm, int64_t offset, int64_t) { return tcm.base + offset; }
const Block* Tcm::find(const void*, bool) const { return nullptr; }
#endif

void Tcm::give(void* address, Place at) {
  if (!address) return;
  for (auto block = live.begin(); block != live.end(); ++block) {
    if (block->data != address) continue;
#if GPSIMD_CHECKED
    __real_memset(state.get() + (block->data - base), FREED, block->bytes);
    freed.push_back(*block);
    freed.back().freed = at;
#endif
    live.erase(block);
    return;
  }
#if GPSIMD_CHECKED
  const Block* before = find(address, true);
  if (before && before->data == address) return report("free-twice", at, before->bytes, 0, 0, 0, before->freed);
#endif
  report("free-foreign", at);
}

// -- transfers -------------------------------------------------------------------------------------------------------
void count_transfer(bool in, size_t bytes) {
  Counters& counters = core->counters;
  (in ? counters.transfers_in : counters.transfers_out)++;
  (in ? counters.bytes_in : counters.bytes_out) += static_cast<int64_t>(bytes);
}

#if GPSIMD_CHECKED
static bool tcm_holds(const void* address, int64_t bytes, bool in, Place at) {
  const Tcm& tcm = *core->tcm;
  const char* begin = static_cast<const char*>(address);
  if (const Block* block = tcm.find(address, false)) {
    if (begin >= block->data && begin + bytes <= block->data + block->bytes) return true;
    report("tcm-range", at, bytes, begin - block->data, block->bytes, in, block->made);
  } else if (const Block* gone = tcm.find(address, true)) {
    report("tcm-freed", at, bytes, gone->bytes, 0, in, gone->freed);
  } else {
    report(address ? "tcm-foreign" : "tcm-null", at, 0, 0, 0, in);
  }
  return false;
}

// A transfer that is wrong is reported and left out; the core goes on.
void transfer(Array& array, bool in, void* tcm, size_t element_bytes, size_t offset, size_t count, Place at) {
  const int64_t first = static_cast<int64_t>(offset), n = static_cast<int64_t>(count);
  const int64_t size = c10::elementSize(array.dtype), bytes = n * size;
  if (static_cast<int64_t>(element_bytes) != size) return report("tcm-type", at, element_bytes, size);
  if (first < 0 || n < 0 || n > array.elements || first > array.elements - n) {
    return report("transfer-range", at, in, first, n, array.elements, array.made);
  }
  if (n == 0 || !tcm_holds(tcm, bytes, in, at) || (!in && !may_write(array, at))) return;
  char* data = array.data + first * size;
  __real_memcpy(in ? static_cast<char*>(tcm) : data, in ? data : static_cast<char*>(tcm), bytes);
  if (!in) note_write(array, first, first + n, at);
  count_transfer(in, bytes);
}
#endif

}  // namespace gpsimd

namespace torch {
namespace neuron {

void* tcm_malloc(size_t bytes, gpsimd::Place at) {
  if (!gpsimd::core || gpsimd::core->in_shape) gpsimd::stop("tcm-in-shape", at);
  return bytes > gpsimd::TCM_BYTES ? nullptr : gpsimd::core->tcm->take(static_cast<int64_t>(bytes), at);
}

void tcm_free(void* block, gpsimd::Place at) {
  if (!gpsimd::core || gpsimd::core->in_shape) gpsimd::stop("tcm-in-shape", at);
  gpsimd::core->tcm->give(block, at);
}

}  // namespace neuron
}  // namespace torch
