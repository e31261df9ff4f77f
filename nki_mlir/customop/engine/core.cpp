// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the code of a kernel asks of the core that it runs on, and the faults that are recorded there.
#include "core.h"

#include <neuron/neuron-utils.hpp>

#include <signal.h>

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

// A division that the processor refuses ends its core, not the process.
static struct sigaction before_ours;

static void on_division(int number, siginfo_t* info, void* context) {
  if (!core) {                              // not ours: another library's, Python's, or the end of the process
    if (before_ours.sa_flags & SA_SIGINFO) return before_ours.sa_sigaction(number, info, context);
    if (before_ours.sa_handler != SIG_DFL && before_ours.sa_handler != SIG_IGN) return before_ours.sa_handler(number);
    sigaction(number, &before_ours, nullptr);           // the instruction runs again
    return;
  }
  Finding made = finding("divide", Place{nullptr, 0}, Place{nullptr, 0}, {0, 0, 0, 0});
  made.pc = static_cast<const char*>(info->si_addr) + 1;
  add_fact(core->facts, made, "");
  escape();
}

void watch_divisions() {
  static const int done = [] {
    struct sigaction ours = {};
    ours.sa_sigaction = on_division;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;            // it may be left by a jump
    return sigaction(SIGFPE, &ours, &before_ours);
  }();
  (void)done;
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
