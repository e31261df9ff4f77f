// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The entry points of a library: what it defines, and calls of its shape functions and kernels on the cores.
#include "core.h"

#include <torchneuron/register.h>

#include <atomic>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <thread>

namespace gpsimd {
namespace {

struct Operator {
  std::string name, kernel, parameters;
  void* shape;
  Call call_shape, call_kernel;
  void* address = nullptr;                  // of the kernel, found by its name when the library is loaded
};

std::vector<Operator>& operators() {
  static std::vector<Operator> all;
  return all;
}

struct Declared {
  std::string libraries;                    // the names of NEURON_LIBRARY blocks, one a line
  bool multicore = false, checked = false;
};
Declared& declared() {
  static Declared one;
  return one;
}

struct OwnedReport {
  Report report = {};
  std::vector<Fact> facts;
  std::vector<Finding> findings;
  std::string printed;
};

Report* finish(std::unique_ptr<OwnedReport> own) {
  for (Fact& fact : own->facts) {
    fact.finding.text = fact.text.c_str();
    own->findings.push_back(fact.finding);
  }
  own->report.findings = own->findings.data();
  own->report.count = static_cast<int64_t>(own->findings.size());
  own->report.printed = own->printed.data();
  own->report.printed_bytes = static_cast<int64_t>(own->printed.size());
  return &own.release()->report;            // the first member: freed as the whole
}

// Runs a function as the core; every way out of it ends here.
template <class Function>
void run_on(Core& on, Function function) {
  watch_divisions();
  core = &on;
  const Place nowhere = {nullptr, 0};
  if (setjmp(on.escape) == 0) {
    try {
      function();
    } catch (const Stop&) {
    } catch (const std::exception& error) {
      on.stopped = true;
      report("exception", nowhere, 0, 0, 0, 0, nowhere, error.what());
    } catch (...) {
      on.stopped = true;
      report("exception", nowhere, 0, 0, 0, 0, nowhere, "an object that is not a std::exception");
    }
  }
  core = nullptr;
}

std::string described(const Array& array) {
  static const char* const names[] = {"uint8", "int8", "int16", "int32", "", "float16", "float32"};
  std::string text = array.dtype == c10::ScalarType::BFloat16 ? "bfloat16" : names[static_cast<int>(array.dtype)];
  text += "[";
  for (int64_t i = 0; i < array.rank; i++) text += (i ? ", " : "") + std::to_string(array.sizes[i]);
  return text + "]";
}

// What a kernel returns counts where it did not ask for the destination.
void keep_result(Core& on, const torch::Tensor& returned, Array& dst) {
  const Place nowhere = {nullptr, 0};
  if (on.used_dst) return;
  if (on.multicore) stop("no-dst", nowhere);
  Array& array = returned.memory().array(nowhere);
  if (described(array) != described(dst)) {
    stop("result", array.made, 0, 0, 0, 0, nowhere, described(array) + " and " + described(dst));
  }
  __real_memcpy(dst.data, array.data, array.bytes());
  if (!array.writes || !dst.writes) note_write(dst, 0, dst.elements, array.made);
  else dst.writes->all.swap(array.writes->all);
  dst.made = array.made;
}

void run_core(Core& on, const Operator& op, const Arg* args, Memory& output, const Arg& destination) {
  run_on(on, [&] {
    Array* dst = input(destination);
    dst->role = Role::OUTPUT;
#if GPSIMD_CHECKED
    dst->writes = new Writes;
#endif
    output = Memory(dst);
    on.dst = dst;
    const torch::Tensor returned = op.call_kernel(op.address, args);
    keep_result(on, returned, *dst);
#if GPSIMD_CHECKED
    for (const Block& block : on.tcm->live) report("leak", block.made, block.bytes);
    if (on.prints) report("printf-core", Place{nullptr, 0});
#endif
  });
}

}  // namespace

void define(const char* name, const char* kernel, const char* parameters, void* shape, Call call_shape,
            Call call_kernel) {
  operators().push_back(Operator{name, kernel, parameters, shape, call_shape, call_kernel});
}

void declare(const char* library, int, bool multicore, bool checked) {
  declared().libraries += std::string(library) + "\n";
  declared().multicore = multicore;
  declared().checked = checked;
}

}  // namespace gpsimd

using namespace gpsimd;

extern "C" {

int64_t gpsimd_abi() { return GPSIMD_ABI; }
const char* gpsimd_libraries() { return declared().libraries.c_str(); }
int64_t gpsimd_multicore() { return declared().multicore; }
int64_t gpsimd_checked() { return declared().checked; }
int64_t gpsimd_count() { return static_cast<int64_t>(operators().size()); }
const char* gpsimd_name(int64_t op) { return operators()[op].name.c_str(); }
const char* gpsimd_kernel(int64_t op) { return operators()[op].kernel.c_str(); }
const char* gpsimd_parameters(int64_t op) { return operators()[op].parameters.c_str(); }
void* gpsimd_base() {                       // where the file begins in memory
  Dl_info found;
  return dladdr(reinterpret_cast<void*>(&gpsimd_abi), &found) ? found.dli_fbase : nullptr;
}
void gpsimd_bind(int64_t op, void* address) { operators()[op].address = address; }

// Writes the readable form of a symbol; the number of bytes that it has.
int64_t gpsimd_demangle(const char* symbol, char* text, int64_t bytes) {
  int status = 0;
  char* readable = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  const int64_t n = std::snprintf(text, static_cast<size_t>(bytes), "%s", status == 0 ? readable : symbol);
  std::free(readable);
  return n;
}

Report* gpsimd_shape(int64_t op, const Arg* args) {
  auto own = std::make_unique<OwnedReport>();
  Core on;
  on.in_shape = true;
  const Operator& called = operators()[op];
  run_on(on, [&] {
    const torch::Tensor result = called.call_shape(called.shape, args);
    const Array& array = result.memory().array(Place{nullptr, 0});
    own->report.rank = array.rank;
    own->report.dtype = static_cast<int64_t>(array.dtype);
    for (int64_t i = 0; i < array.rank; i++) own->report.sizes[i] = array.sizes[i];
  });
  own->facts = on.facts;
  return finish(std::move(own));
}

Report* gpsimd_run(int64_t op, const Arg* args, const Arg* destination, const Engine* engine) {
  auto own = std::make_unique<OwnedReport>();
  const Operator& called = operators()[op];
  std::vector<std::unique_ptr<Core>> cores;
  std::vector<Memory> outputs(static_cast<size_t>(engine->cores));
  for (int64_t id = 0; id < engine->cores; id++) {
    cores.push_back(std::make_unique<Core>());
    Core& on = *cores.back();
    on.id = static_cast<uint32_t>(id);
    on.count = static_cast<uint32_t>(engine->cores);
    on.multicore = engine->cores > 1;
    on.printed = &own->printed;
    on.ring = static_cast<size_t>(engine->printf_bytes);
  }
  // Cores cannot wait for each other, so that fewer threads than cores do.
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    Tcm tcm;
    for (int64_t id = next++; id < engine->cores; id = next++) {
      tcm.clear();
      cores[id]->tcm = &tcm;
      run_core(*cores[id], called, args, outputs[id], *destination);
    }
  };
  std::vector<std::thread> others;
  for (int64_t k = 1; k < std::min(engine->workers, engine->cores); k++) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();

  bool stopped = false;
  for (size_t id = 0; id < cores.size(); id++) {
    stopped |= cores[id]->stopped;
    own->report.counters[id] = cores[id]->counters;
    for (const Fact& fact : cores[id]->facts) add_fact(own->facts, fact.finding, fact.text);
  }
  if (!stopped) examine_output(cores, outputs, own->facts);
  const Core& printing = *cores[0];
  if (printing.ring && own->printed.size() == printing.ring) {              // the oldest byte comes first
    own->printed = own->printed.substr(printing.ring_next) + own->printed.substr(0, printing.ring_next);
  }
  outputs.clear();
  return finish(std::move(own));
}

void gpsimd_free(Report* report) { delete reinterpret_cast<OwnedReport*>(report); }

}  // extern "C"
