// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the instructions of tile registers (AMX) on hosts that lack them: the signal of each unknown instruction is
// handled by what the processor's documentation says of it. One set of registers a thread.
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>

enum { REGISTERS = 8, ROWS = 16, BYTES = 64 };

static __thread struct {
  uint8_t rows[REGISTERS];
  uint16_t bytes[REGISTERS];
  uint8_t data[REGISTERS][ROWS][BYTES];
} tiles;
static struct sigaction before;
static long counted;

static const int NUMBERS[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

static float widened(const uint8_t *from) {
  uint16_t half;
  memcpy(&half, from, 2);
  uint32_t word = (uint32_t)half << 16;
  float x;
  memcpy(&x, &word, 4);
  return flushed(x);
}

static void multiply(int sums, int a, int b) {
  for (int m = 0; m < tiles.rows[sums]; m++) {
    float even[ROWS] = {0}, odd[ROWS] = {0};
    for (int k = 0; k < tiles.bytes[a] / 4; k++)
      for (int n = 0; n < tiles.bytes[sums] / 4; n++) {
        const uint8_t *x = &tiles.data[a][m][4 * k], *y = &tiles.data[b][k][4 * n];
        even[n] = flushed(fmaf(widened(x), widened(y), even[n]));
        odd[n] = flushed(fmaf(widened(x + 2), widened(y + 2), odd[n]));
      }
    for (int n = 0; n < tiles.bytes[sums] / 4; n++) {
      float old;
      memcpy(&old, &tiles.data[sums][m][4 * n], 4);
      old = flushed(flushed(old) + flushed(even[n] + odd[n]));
      memcpy(&tiles.data[sums][m][4 * n], &old, 4);
    }
  }
}

// The address of a memory operand; `rest` is set to the bytes of the instruction from the one of modes on.
static uint8_t *address(const uint8_t *mode, int x, int b, greg_t *values, int *rest, int64_t *index_value) {
  int way = *mode >> 6, base = *mode & 7, index = 4, scale = 0;
  const uint8_t *next = mode + 1;
  if (base == 4) {
    base = *next & 7, index = ((*next >> 3) & 7) | x << 3, scale = *next >> 6;
    next++;
  }
  int64_t total = way == 0 && base == 5 ? 0 : values[NUMBERS[base | b << 3]];
  *index_value = index == 4 ? 0 : values[NUMBERS[index]] << scale;
  int32_t wide = 0;
  if (way == 1) wide = (int8_t)*next++;
  if (way == 2 || (way == 0 && base == 5)) memcpy(&wide, next, 4), next += 4;
  *rest = next - mode;
  return (uint8_t *)(total + wide);
}

static int runs(greg_t *values) {
  const uint8_t *code = (const uint8_t *)values[REG_RIP];
  if (code[0] != 0xc4 || (code[1] & 0x1f) != 2) return 0;
  int r = !(code[1] & 0x80), x = !(code[1] & 0x40), b = !(code[1] & 0x20);
  int prefix = code[2] & 3, operation = code[3], mode = code[4], in_register = mode >> 6 == 3;
  int rest = 1, first = ((mode >> 3) & 7) | r << 3;
  int64_t index;
  if (operation == 0x49 && prefix == 0 && mode == 0xc0) {
    memset(&tiles, 0, sizeof tiles);
  } else if (operation == 0x49 && prefix == 0) {
    uint8_t *sizes = address(code + 4, x, b, values, &rest, &index) + index;
    memset(&tiles, 0, sizeof tiles);
    if (sizes[0] != 1) return 0;
    memcpy(tiles.bytes, sizes + 16, sizeof tiles.bytes);
    memcpy(tiles.rows, sizes + 48, sizeof tiles.rows);
  } else if (operation == 0x49 && prefix == 3 && in_register) {
    memset(tiles.data[first], 0, sizeof tiles.data[first]);
  } else if (operation == 0x4b && !in_register) {
    uint8_t *memory = address(code + 4, x, b, values, &rest, &index);
    for (int k = 0; k < tiles.rows[first]; k++, memory += index) {
      if (prefix == 2) memcpy(memory, tiles.data[first][k], tiles.bytes[first]);
      else memcpy(tiles.data[first][k], memory, tiles.bytes[first]);
    }
  } else if (operation == 0x5c && prefix == 2 && in_register) {
    multiply(first, (mode & 7) | b << 3, (~code[2] >> 3) & 15);
  } else {
    return 0;
  }
  values[REG_RIP] += 4 + rest;
  __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
  return 1;
}

static void handle(int number, siginfo_t *info, void *context) {
  (void)info;
  if (!runs(((ucontext_t *)context)->uc_mcontext.gregs)) sigaction(number, &before, 0);
}

void install(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO};
  action.sa_sigaction = handle;
  sigaction(SIGILL, &action, &before);
}

// Gives the signal back to who had it; returns how many instructions ran.
long uninstall(void) {
  sigaction(SIGILL, &before, 0);
  return __atomic_exchange_n(&counted, 0, __ATOMIC_RELAXED);
}
