// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One emulated core of the engine during a call: its tightly coupled memory, what it was seen to do, its counters.
#pragma once
#include <gpsimd/memory.h>
#include <gpsimd/tcm.h>

#include <memory>
#include <setjmp.h>
#include <string>
#include <vector>

#if GPSIMD_CHECKED
// The linker redirects memcpy and memset to the checks of the kernel's own accesses; these are the engine's.
extern "C" void* __real_memcpy(void*, const void*, size_t);
extern "C" void* __real_memset(void*, int, size_t);
#else
inline void* __real_memcpy(void* to, const void* from, size_t n) { return std::memcpy(to, from, n); }
#endif

namespace gpsimd {

struct Stop {};                             // thrown by stop(), after the finding is recorded

struct Write {                              // elements [begin, end) of an array, written at a place
  int64_t begin, end;
  Place at;
};
struct Writes {
  std::vector<Write> all;
};

struct Fact {                               // a finding with memory of its own
  Finding finding;
  std::string text;
};

struct Block {                              // of the pool
  int64_t offset, rounded, bytes;           // its place in the pool; what was asked for
  char* data;
  Place made, freed;
};

#if GPSIMD_CHECKED
// Blocks lie apart in an area that is larger than the pool, and freed ones are reused as late as possible, so that an
// access beside a block or after its end is seen. The pool's 16 KB are accounted for as without checks.
constexpr int64_t AREA_BYTES = 1 << 18, GAP_BYTES = 64;
enum State : uint8_t { NEVER, LIVE, FREED };
#else
constexpr int64_t AREA_BYTES = TCM_BYTES;
#endif

struct Tcm {                                // of one thread; its cores use it one after the other
  std::vector<Block> live;                  // in the order of their offsets
  std::unique_ptr<char[]> area{new char[AREA_BYTES + 64]};
  char* base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(area.get()) + 63) / 64 * 64);
#if GPSIMD_CHECKED
  std::vector<Block> freed;                 // whose memory was not reused yet
  std::unique_ptr<uint8_t[]> state{new uint8_t[AREA_BYTES]()};
  int64_t cursor = GAP_BYTES, used = AREA_BYTES;
#endif
  void clear();
  void* take(int64_t bytes, Place at);
  void give(void* block, Place at);
  const Block* find(const void* address, bool among_freed) const;       // with the gaps beside it
};

struct Core {
  uint32_t id = 0, count = 1;
  bool multicore = false, in_shape = false, used_dst = false, stopped = false;
  int64_t fast_streams = 0;
  Array* dst = nullptr;
  Place dst_at = {nullptr, 0};
  std::vector<Fact> facts;
  std::vector<Array*> arrays;               // that are not local, or whose writes are followed
  Counters counters = {};
  std::string* printed = nullptr;           // of core 0, a ring of `ring` bytes
  size_t ring = 0, ring_next = 0;
  bool prints = false;
  Tcm* tcm = nullptr;
  jmp_buf escape;                           // out of code that no exception may pass
};

extern thread_local Core* core;             // null outside of a call

void add_fact(std::vector<Fact>&, const Finding&, const std::string& text);
Finding finding(const char* kind, Place at, Place other, const int64_t (&values)[4]);
[[noreturn]] void escape();
void watch_divisions();
void examine_output(const std::vector<std::unique_ptr<Core>>& cores, const std::vector<Memory>& outputs,
                    std::vector<Fact>& facts);

}  // namespace gpsimd
