// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What this machine can do: bytes copied and read, and fused multiply-adds, by all threads together.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int Lanes = 16;
#elif defined(__AVX__)
constexpr int Lanes = 8;
#else
constexpr int Lanes = 4;
#endif
typedef float Vector __attribute__((vector_size(Lanes * 4)));

static void store(Vector *to, Vector value) {       // past the cache where the machine can
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

int main() {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  const size_t part = (size_t(128) << 20) / sizeof(Vector) / threads;       // 128 MiB: larger than caches
  const size_t bytes = part * threads * sizeof(Vector);
  auto *from = static_cast<Vector *>(std::aligned_alloc(64, bytes)), *to = static_cast<Vector *>(std::aligned_alloc(64, bytes));
  if (!from || !to) return std::fputs("limits: not enough memory\n", stderr), 1;
  std::fill_n(reinterpret_cast<float *>(from), bytes / 4, 1.0f);
  std::fill_n(reinterpret_cast<float *>(to), bytes / 4, 1.0f);
  double copied = seconds(threads, [=](unsigned t) {
    for (size_t i = t * part; i < (t + 1) * part; ++i) store(to + i, from[i]);
  });
  double read = seconds(threads, [=](unsigned t) {
    Vector sums[8] = {};
    for (size_t i = t * part; i + 8 <= (t + 1) * part; i += 8)
      for (int k = 0; k < 8; ++k) sums[k] += from[i + k];
    for (int k = 1; k < 8; ++k) sums[0] += sums[k];
    sink = sums[0][0];
  });
  const size_t steps = 20'000'000;
  double multiplied = seconds(threads, [=](unsigned t) {
    Vector sums[12], scale, shift;
    for (int i = 0; i < Lanes; ++i) scale[i] = 0.999f + 0.0001f * sink, shift[i] = 0.001f;
    for (int k = 0; k < 12; ++k) sums[k] = shift * float(k + t);
    for (size_t n = 0; n < steps; ++n)
      for (int k = 0; k < 12; ++k) sums[k] = sums[k] * scale + shift;
    for (int k = 1; k < 12; ++k) sums[0] += sums[k];
    sink = sums[0][0];
  });
  std::printf("{\"threads\": %u, \"copy\": %.4g, \"read\": %.4g, \"fma\": %.4g}\n", threads, 2 * bytes / copied,
              bytes / read, 2.0 * Lanes * 12 * steps * threads / multiplied);
}
