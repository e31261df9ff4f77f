// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the code of a kernel asks of the core that it runs on, and the faults that are recorded there.
#include "core.h"

#include <neuron/neuron-utils.hpp>

namespace gpsimd {

thread_local Core* core = nullptr;

Finding finding(const char* kind, Place at, Place other, const int64_t (&values)[4]) {
  return Finding{kind, at, other, nullptr, {values[0], values[1], values[2], values[3]}, nullptr, 1,
                 core ? int64_t(1) << core->id : 0};
}

static bool same(const Place& a, const Place& b) {
  return a.line == b.line && (a.file == b.file || (a.file && b.file && std::strcmp(a.file, b.file) == 0));
}

// A fault in a loop is one finding, with the values of its first time and a count.
void add_fact(std::vector<Fact>& facts, const Finding& made, const std::string& text) {
  for (Fact& known : facts) {
    if (std::strcmp(known.finding.kind, made.kind) == 0 && same(known.finding.at, made.at) &&
        known.finding.pc == made.pc) {
      known.finding.count += made.count;
      known.finding.cores |= made.cores;
      return;
    }
  }
  facts.push_back(Fact{made, text});
}

void report(const char* kind, Place at, int64_t a, int64_t b, int64_t c, int64_t d, Place other,
            const std::string& text) {
  if (core) add_fact(core->facts, finding(kind, at, other, {a, b, c, d}), text);
}

void stop(const char* kind, Place at, int64_t a, int64_t b, int64_t c, int64_t d, Place other, const std::string& text) {
  report(kind, at, a, b, c, d, other, text);
  if (core) core->stopped = true;
  throw Stop();
}

void escape() {
  core->stopped = true;
  longjmp(core->escape, 1);
}

}  // namespace gpsimd

uint32_t get_cpu_id() { return gpsimd::core ? gpsimd::core->id : 0; }
uint32_t get_cpu_count() { return gpsimd::core ? gpsimd::core->count : 1; }

torch::Tensor get_dst_tensor(gpsimd::Place at) {
  gpsimd::Core* core = gpsimd::core;
  if (!core || !core->dst) gpsimd::stop("dst-in-shape", at);
  if (!core->used_dst) core->dst_at = at;
  core->used_dst = true;
  return torch::Tensor(gpsimd::Memory(core->dst));
}
