// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the device's memory: made and released, opened by element accessors, and which elements were written.
#include "core.h"

#include <gpsimd/accessors.h>

#include <algorithm>

namespace gpsimd {

constexpr int64_t LONG_DIM = 4294967295, SHORT_DIM = 65535;
constexpr int64_t LONG_RANK = 4;

static Array* allocate(const int64_t* sizes, int64_t rank, c10::ScalarType dtype, Place at) {
  const int64_t longest = rank > LONG_RANK ? SHORT_DIM : LONG_DIM;
  if (rank > DIMS_MAX) stop("dims", at, rank);
  for (int64_t i = 0; i < rank; i++) {
    if (sizes[i] < 0) stop("negative-size", at, sizes[i]);
    if (sizes[i] > longest) stop("long-dim", at, sizes[i], rank, longest);
  }
  Array* array = new Array;
  array->dtype = dtype;
  array->rank = rank;
  array->made = at;
  for (int64_t i = rank - 1; i >= 0; i--) {
    array->sizes[i] = sizes[i];
    array->strides[i] = array->elements;
    array->elements *= sizes[i];
  }
  return array;
}

Array* input(const Arg& arg) {
  Array* array = allocate(arg.sizes, arg.rank, static_cast<c10::ScalarType>(arg.dtype), Place{nullptr, 0});
  array->data = static_cast<char*>(arg.data);
  array->role = core->in_shape ? Role::SHAPE : Role::INPUT;
  core->arrays.push_back(array);
  return array;
}

Array* made(const c10::IntArrayRef& sizes, const c10::TensorOptions& options, bool written, Place at) {
  if (!options.has_dtype()) stop("no-dtype", at);
  Array* array = allocate(sizes.data(), static_cast<int64_t>(sizes.size()), options.dtype(), at);
  if (core && core->in_shape) {
    array->role = Role::SHAPE;
    return array;
  }
  array->data = static_cast<char*>(std::malloc(array->bytes() + 1));
#if GPSIMD_CHECKED
  __real_memset(array->data, 0xFF, array->bytes());
  if (!written) {
    array->writes = new Writes;
    core->arrays.push_back(array);
  }
#else
  (void)written;
#endif
  return array;
}

void release(Array* array) {
  if (core) core->arrays.erase(std::remove(core->arrays.begin(), core->arrays.end(), array), core->arrays.end());
  if (array->role == Role::LOCAL) std::free(array->data);
  delete array->writes;
  delete array;
}

char* data_of(Array& array, Place at) {
  if (array.role == Role::SHAPE) stop("shape-data", at);
  return array.data;
}

bool may_write(const Array& array, Place at) {
  if (array.role != Role::INPUT) return true;
  report("writes-input", at);
  return false;
}

void note_write(Array& array, int64_t begin, int64_t end, Place at) {
  if (!array.writes) return;
  std::vector<Write>& all = array.writes->all;
  if (!all.empty() && all.back().at.line == at.line && all.back().at.file == at.file) {     // what a loop writes in order
    Write& last = all.back();
    if (last.end == begin) {
      last.end = end;
      return;
    }
    if (last.begin <= begin && end <= last.end) return;
  }
  all.push_back(Write{begin, end, at});
}

// -- element accessors -----------------------------------------------------------------------------------------------
static void check_coherence(const Array& array, bool conflict, int64_t opened, Place at) {
  if (!conflict || array.policy == torch::CoherencyEnforcer::INCOHERENT_QUIET) return;
  const auto say = array.policy == torch::CoherencyEnforcer::COHERENT ? stop : report;
  say(array.policy == torch::CoherencyEnforcer::COHERENT ? "coherence" : "coherence-verbose", at, opened,
      array.open_elements, array.open_reads, array.open_writes, Place{nullptr, 0}, std::string());
}

Array& open_accessor(const Memory& memory, c10::ScalarType dtype, int64_t opened, Place at) {
  Array& array = memory.array(at);
  data_of(array, at);
  if (core->multicore) stop("multicore-accessor", at, opened);
  if (dtype != array.dtype) stop("accessor-type", at, static_cast<int64_t>(dtype), static_cast<int64_t>(array.dtype));
  const bool streams = array.open_reads + array.open_writes > 0;
  const bool conflict = opened == 0 ? streams
                        : opened == 1 ? array.open_writes + array.open_elements > 0
                                      : streams || array.open_elements > 0;
  check_coherence(array, conflict, opened, at);
  return array;
}

Opened::Opened(const Memory& memory, c10::ScalarType dtype, int64_t rank, Place at) : memory_(memory) {
  Array& array = memory.array(at);
  if (rank != array.rank) stop("accessor-rank", at, rank, array.rank);
  open_accessor(memory, dtype, 0, at).open_elements++;
}

#if GPSIMD_CHECKED
void check_index(int64_t index, int64_t size, int64_t axis, bool last, Place at) {
  if (index < 0 || index >= size) stop("index", at, index, size, axis);
  if (last) core->counters.elements++;
}
#endif

// -- what was written ------------------------------------------------------------------------------------------------
#if GPSIMD_CHECKED
namespace {

struct Piece {                              // elements [begin, end) that a core wrote
  int64_t begin, end;
  size_t core;
  Place at;
};

std::vector<Piece> pieces_of(const Writes& writes, size_t core) {           // disjoint, in order
  std::vector<Write> all = writes.all;
  std::stable_sort(all.begin(), all.end(), [](const Write& a, const Write& b) { return a.begin < b.begin; });
  std::vector<Piece> pieces;
  int64_t until = 0;
  for (const Write& write : all) {
    if (write.end <= until) continue;
    pieces.push_back(Piece{std::max(write.begin, until), write.end, core, write.at});
    until = write.end;
  }
  return pieces;
}

struct Overlap {
  int64_t elements = 0, cores = 0;
  Piece first = {}, second = {};
  int64_t begin = 0;
};

}  // namespace

void examine_output(const std::vector<std::unique_ptr<Core>>& cores, const std::vector<Memory>& outputs,
                    std::vector<Fact>& facts) {
  std::vector<std::vector<Piece>> of_core;
  std::vector<int64_t> bounds;
  for (size_t k = 0; k < outputs.size(); k++) {
    const Array* array = outputs[k].get();
    if (!array || !array->writes) return;   // everything has a value
    of_core.push_back(pieces_of(*array->writes, k));
    for (const Piece& piece : of_core.back()) {
      bounds.push_back(piece.begin);
      bounds.push_back(piece.end);
    }
  }
  const Array& output = *outputs[0].get();
  bounds.push_back(0);
  bounds.push_back(output.elements);
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  Overlap overlap;
  int64_t missing = 0, first_missing = -1;
  const Piece* some = nullptr;
  std::vector<size_t> next(of_core.size(), 0);
  for (size_t b = 0; b + 1 < bounds.size(); b++) {
    const int64_t begin = bounds[b], length = bounds[b + 1] - begin;
    std::vector<const Piece*> writers;
    for (size_t k = 0; k < of_core.size(); k++) {
      while (next[k] < of_core[k].size() && of_core[k][next[k]].end <= begin) next[k]++;
      if (next[k] < of_core[k].size() && of_core[k][next[k]].begin <= begin) writers.push_back(&of_core[k][next[k]]);
    }
    if (writers.empty()) {
      missing += length;
      if (first_missing < 0) first_missing = begin;
    } else if (!some) {
      some = writers[0];
    }
    if (writers.size() > 1) {
      if (!overlap.elements) {
        overlap.first = *writers[0];
        overlap.second = *writers[1];
        overlap.begin = begin;
      }
      overlap.elements += length;
      for (const Piece* writer : writers) overlap.cores |= int64_t(1) << writer->core;
    }
  }
  if (overlap.elements) {
    Finding made = finding("overlap", overlap.second.at, overlap.first.at,
                           {overlap.elements, overlap.begin, int64_t(overlap.first.core), int64_t(overlap.second.core)});
    made.cores = overlap.cores;
    add_fact(facts, made, "");
  }
  if (missing) {
    const Place at = cores[0]->used_dst ? cores[0]->dst_at : output.made;
    add_fact(facts, finding("unwritten", at, some ? some->at : Place{nullptr, 0},
                            {missing, output.elements, first_missing, 0}), "");
  }
}
#else
void examine_output(const std::vector<std::unique_ptr<Core>>&, const std::vector<Memory>&, std::vector<Fact>&) {}
#endif

}  // namespace gpsimd
