// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the compiler and the linker put before the kernel's own loads, stores and library calls.
//
// The checked build compiles kernels with -fsanitize=kernel-address, which calls a function before each access and
// leaves it to us what that does; divisions by zero and missing returns are found alike. memcpy, memmove, memset and the
// printf family are redirected with ld's --wrap.
#include "core.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace gpsimd;

struct Written {                            // where a sanitized operation is written
  const char* file;
  uint32_t line, column;
};

// What -fsanitize=return calls at the end of a function that was to return something.
extern "C" void __ubsan_handle_missing_return(const Written* at) {
  if (!core) std::abort();
  report("no-return", Place{at->file, at->line});
  escape();
}

#if GPSIMD_CHECKED
namespace {

constexpr uintptr_t NULL_PAGE = 4096;

void found(const char* kind, const void* pc, bool write, size_t bytes, int64_t beside, int64_t block, Place other) {
  Finding made = finding(kind, Place{nullptr, 0}, other, {write, static_cast<int64_t>(bytes), beside, block});
  made.pc = pc;
  add_fact(core->facts, made, "");
}

void wrong_tcm(const char* address, size_t bytes, bool write, const void* pc) {
  const Tcm& tcm = *core->tcm;
  if (tcm.state[address - tcm.base] == FREED) {
    if (const Block* block = tcm.find(address, true)) {
      return found("access-freed", pc, write, bytes, address - block->data, block->bytes, block->freed);
    }
  }
  const Block* block = tcm.find(address, false);
  if (!block) block = tcm.find(address, true);
  if (block) found("access-range", pc, write, bytes, address - block->data, block->bytes, block->made);
  else found("access-foreign", pc, write, bytes, 0, 0, Place{nullptr, 0});
}

inline void access(uintptr_t address, size_t bytes, bool write, const void* pc) {
  Core* c = core;
  if (!c || !c->tcm || bytes == 0) return;                  // no call, or a shape function
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(c->tcm->base);
  if (offset < static_cast<uintptr_t>(AREA_BYTES)) {
    c->counters.tcm_accesses++;
    const uint8_t* state = c->tcm->state.get() + offset;
    if (state[0] != LIVE || (offset + bytes <= uintptr_t(AREA_BYTES) && state[bytes - 1] != LIVE)) {
      wrong_tcm(reinterpret_cast<const char*>(address), bytes, write, pc);
    }
  } else if (address < NULL_PAGE) {
    found("access-null", pc, write, bytes, static_cast<int64_t>(address), 0, Place{nullptr, 0});
    escape();
  } else if (write) {
    for (Array* array : c->arrays) {        // an element accessor's reference is assigned to
      const uintptr_t begin = reinterpret_cast<uintptr_t>(array->data);
      if (address - begin >= static_cast<uintptr_t>(array->bytes())) continue;
      if (array->role == Role::INPUT) {
        found("writes-input", pc, write, bytes, 0, 0, Place{nullptr, 0});
        escape();
      }
      const int64_t size = c10::elementSize(array->dtype), first = static_cast<int64_t>(address - begin) / size;
      note_write(*array, first, first + (static_cast<int64_t>(bytes) + size - 1) / size, Place{nullptr, 0});
    }
  }
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define ACCESS(n)                                                                                    \
  void __asan_load##n##_noabort(uintptr_t address) { access(address, n, false, CALLER); }            \
  void __asan_store##n##_noabort(uintptr_t address) { access(address, n, true, CALLER); }
extern "C" {
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __asan_loadN_noabort(uintptr_t address, size_t n) { access(address, n, false, CALLER); }
void __asan_storeN_noabort(uintptr_t address, size_t n) { access(address, n, true, CALLER); }
void __asan_handle_no_return() {}

// What -fsanitize=integer-divide-by-zero calls before a division by zero.
void __ubsan_handle_divrem_overflow(const Written* at, uintptr_t, uintptr_t) {
  if (!core) return;
  report("divide", Place{at->file, at->line});
  escape();
}
void __asan_before_dynamic_init(uintptr_t) {}
void __asan_after_dynamic_init() {}

void* __real_memmove(void*, const void*, size_t);
void* __wrap_memcpy(void* to, const void* from, size_t n) {
  access(reinterpret_cast<uintptr_t>(from), n, false, CALLER);
  access(reinterpret_cast<uintptr_t>(to), n, true, CALLER);
  return __real_memcpy(to, from, n);
}
void* __wrap_memmove(void* to, const void* from, size_t n) {
  access(reinterpret_cast<uintptr_t>(from), n, false, CALLER);
  access(reinterpret_cast<uintptr_t>(to), n, true, CALLER);
  return __real_memmove(to, from, n);
}
void* __wrap_memset(void* to, int value, size_t n) {
  access(reinterpret_cast<uintptr_t>(to), n, true, CALLER);
  return __real_memset(to, value, n);
}
}
#endif

// -- printf ----------------------------------------------------------------------------------------------------------
// Core 0 writes to a ring, whose oldest bytes are overwritten; the other cores have no output.
static int print(const char* text, size_t n) {
  Core* c = core;
  if (!c) return static_cast<int>(std::fwrite(text, 1, n, stdout));
  if (c->id != 0) {
    c->prints = true;
    return static_cast<int>(n);
  }
  for (size_t i = 0; i < n && c->ring; i++) {
    if (c->printed->size() < c->ring) c->printed->push_back(text[i]);
    else (*c->printed)[c->ring_next] = text[i];
    c->ring_next = (c->ring_next + 1) % c->ring;
  }
  return static_cast<int>(n);
}

extern "C" {
int __wrap_vprintf(const char* format, va_list values) {
  va_list again;
  va_copy(again, values);
  std::vector<char> text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, again)) + 1);
  va_end(again);
  std::vsnprintf(text.data(), text.size(), format, values);
  return print(text.data(), text.size() - 1);
}
int __wrap_printf(const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int n = __wrap_vprintf(format, values);
  va_end(values);
  return n;
}
int __wrap_puts(const char* text) {
  return print(text, std::strlen(text)) + print("\n", 1);
}
int __wrap_putchar(int character) {
  const char byte = static_cast<char>(character);
  print(&byte, 1);
  return character;
}
int __real_putc(int, FILE*);
int __wrap_putc(int character, FILE* file) {                                // what putchar is in glibc's headers
  return file == stdout ? __wrap_putchar(character) : __real_putc(character, file);
}
}
