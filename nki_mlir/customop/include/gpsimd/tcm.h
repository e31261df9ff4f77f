// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The pool of tightly coupled memory that each core has for itself.
#pragma once
#include <gpsimd/place.h>

namespace gpsimd {

constexpr size_t TCM_BYTES = 16384;

}  // namespace gpsimd

namespace torch {
namespace neuron {

void* tcm_malloc(size_t bytes, gpsimd::Place at = gpsimd::here());      // null if the pool has no block of that size left
void tcm_free(void* block, gpsimd::Place at = gpsimd::here());

}  // namespace neuron
}  // namespace torch
