// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures bytes copied and read, and fused multiply-adds, of all threads together, or with `thread` of one thread, and
// the rates at which that reads each cache and pages; of two threads, the time in which a cache line goes from one to the
// other and back. `stream` copies memory until it is ended.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
constexpr int Lanes = 16;
#elif defined(__AVX__)
constexpr int Lanes = 8;
#else
constexpr int Lanes = 4;
#endif
typedef float Vector __attribute__((vector_size(Lanes * 4)));

static void store(Vector *to, Vector value) {       // bypasses the cache if the machine can
#if defined(__AVX512F__)
  _mm512_stream_ps(reinterpret_cast<float *>(to), (__m512)value);
#elif defined(__AVX__)
  _mm256_stream_ps(reinterpret_cast<float *>(to), (__m256)value);
#else
  *to = value;
#endif
}

static volatile float sink;

template <typename Work> double seconds(unsigned threads, Work work) {
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    auto began = std::chrono::steady_clock::now();
    std::vector<std::thread> running;
    for (unsigned t = 1; t < threads; ++t) running.emplace_back(work, t);
    work(0);
    for (auto &thread : running) thread.join();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return best;
}

static void copyPart(const Vector *from, Vector *to, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) store(to + i, from[i]);
}

static void readPart(const Vector *from, size_t begin, size_t end) {
  Vector sums[8] = {};
  for (size_t i = begin; i + 8 <= end; i += 8)
    for (int k = 0; k < 8; ++k) sums[k] += from[i + k];
  for (int k = 1; k < 8; ++k) sums[0] += sums[k];
  sink = sums[0][0];
}

// Nanoseconds in which a cache line goes to another thread and back; 0 where there is one processor. Processors with a
// common last cache take less time.
static double roundTripNanoseconds() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  constexpr int Trips = 5000;
  alignas(128) static std::atomic<int> turn;
  turn = 0;
  double taken = seconds(2, [](unsigned t) {
    for (int n = 0; n < Trips; ++n) {
      for (int spins = 1; turn.load() % 2 != int(t); ++spins)
        if (spins % 1000 == 0) std::this_thread::yield();       // both may run on one processor
      ++turn;
    }
  });
  return taken * 1e9 / Trips;
}

// The size of a cache as the system reports it; 0 where it says nothing.
static long cacheBytes(int level) {
#if defined(__linux__) && defined(_SC_LEVEL3_CACHE_SIZE)
  if (FILE *file = std::fopen(("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level == 1 ? 0 : level) +
                               "/size").c_str(), "r")) {
    long kib = 0;
    int found = std::fscanf(file, "%ldK", &kib);
    std::fclose(file);
    if (found == 1) return kib << 10;
  }
#endif
  (void)level;
  return 0;
}

// Bytes a second that one thread reads again and again of so many bytes.
static double readAgain(const Vector *from, size_t bytes) {
  const size_t count = bytes / sizeof(Vector) / 8 * 8, times = (size_t(64) << 20) / bytes + 1;
  return double(count * sizeof(Vector) * times) / seconds(1, [=](unsigned) {
    for (size_t n = 0; n < times; ++n) readPart(from, 0, count);
  });
}

// Nanoseconds for a line of each page of 64 MiB, in an order that no prefetcher knows.
static double pageNanoseconds(bool huge) {
  const size_t bytes = size_t(64) << 20, pages = bytes / 4096, align = size_t(2) << 20;
  auto *memory = static_cast<char *>(std::aligned_alloc(align, bytes));
  if (!memory) return 0;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
  (void)huge;
#endif
  std::memset(memory, 0, bytes);
  for (size_t n = 0, at = 0; n < pages; ++n) {          // each page names the next: 7919 is prime to the number of pages
    size_t next = (at + 7919) % pages;
    *reinterpret_cast<size_t *>(memory + at * 4096 + at % 64 * 64) = next;
    at = next;
  }
  double taken = seconds(1, [=](unsigned) {
    size_t at = 0;
    for (size_t n = 0; n < pages; ++n) at = *reinterpret_cast<volatile size_t *>(memory + at * 4096 + at % 64 * 64);
    sink = float(at);
  });
  std::free(memory);
  return taken * 1e9 / double(pages);
}

int main(int count, char **arguments) {
  const char *what = count > 1 ? arguments[1] : "machine";
  const bool alone = !std::strcmp(what, "thread");
  const unsigned threads = alone ? 1 : std::max(1u, std::thread::hardware_concurrency());
  const size_t part = (size_t(128) << 20) / sizeof(Vector) / threads;       // 128 MiB: larger than caches
  const size_t bytes = part * threads * sizeof(Vector);
  auto *from = static_cast<Vector *>(std::aligned_alloc(64, bytes)), *to = static_cast<Vector *>(std::aligned_alloc(64, bytes));
  if (!from || !to) return std::fputs("limits: not enough memory\n", stderr), 1;
  std::fill_n(reinterpret_cast<float *>(from), bytes / 4, 1.0f);
  std::fill_n(reinterpret_cast<float *>(to), bytes / 4, 1.0f);
  while (!std::strcmp(what, "stream")) copyPart(from, to, 0, part * threads);
  double copied = seconds(threads, [=](unsigned t) { copyPart(from, to, t * part, (t + 1) * part); });
  double read = seconds(threads, [=](unsigned t) { readPart(from, t * part, (t + 1) * part); });
  const size_t steps = 20'000'000;
  double multiplied = seconds(threads, [=](unsigned t) {
    Vector sums[12], scale, shift;
    for (int i = 0; i < Lanes; ++i) scale[i] = 0.999f + 0.0001f * sink, shift[i] = 0.001f;
    for (int k = 0; k < 12; ++k) sums[k] = shift * float(k + t);
    for (size_t n = 0; n < steps; ++n)
#pragma GCC unroll 12
      for (int k = 0; k < 12; ++k) sums[k] = sums[k] * scale + shift;
    for (int k = 1; k < 12; ++k) sums[0] += sums[k];
    sink = sums[0][0];
  });
  std::printf("{\"threads\": %u, \"copy\": %.4g, \"read\": %.4g, \"fma\": %.4g", threads, 2 * bytes / copied,
              bytes / read, 2.0 * Lanes * 12 * steps * threads / multiplied);
  for (int level = 1; alone && level <= 3; ++level) {
    const long size = cacheBytes(level);
    std::printf(", \"l%d_bytes\": %ld, \"l%d\": %.4g", level, size, level,
                size ? readAgain(from, std::min(size_t(size) / 2, bytes)) : 0);
  }
  if (!alone) std::printf(", \"line_ns\": %.3g", roundTripNanoseconds());
  if (alone) std::printf(", \"page_ns\": %.3g, \"huge_ns\": %.3g", pageNanoseconds(false), pageNanoseconds(true));
  std::puts("}");
}
