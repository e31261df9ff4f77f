// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a built library and the Python side exchange. nki_mlir/customop/abi.py has the same layouts.
#pragma once
#include <cstddef>
#include <cstdint>

#define GPSIMD_ABI 1                        // raised with every change of a layout or an entry point

namespace gpsimd {

constexpr int CORES = 8;
constexpr int DIMS_MAX = 8;

struct Arg {                                // one argument of a call; kind 'T' tensor, 'd' double, 'i' int64_t, 'S' Scalar
  int64_t kind;
  double number;
  void* data;
  int64_t dtype, rank;
  const int64_t* sizes;
};

struct Place {                              // a line of the user's source
  const char* file;
  int64_t line;
};

struct Finding {                            // something that a core did and must not do
  const char* kind;                         // a name of nki_mlir/customop/faults.py
  Place at, other;
  const void* pc;                           // where no place is known: the instruction after it
  int64_t values[4];
  const char* text;
  int64_t count;                            // how often, over all cores
  int64_t cores;                            // a bit for each core
};

struct Counters {                           // what costs time on the engine
  int64_t transfers_in, bytes_in, transfers_out, bytes_out, elements, refills, stream_elements, tcm_accesses;
};

struct Report {
  const Finding* findings;
  int64_t count;
  const char* printed;
  int64_t printed_bytes;
  int64_t rank, dtype, sizes[DIMS_MAX];     // of a shape function's result
  Counters counters[CORES];
};

struct Engine {                             // how a call runs
  int64_t cores, workers, printf_bytes;
};

}  // namespace gpsimd
