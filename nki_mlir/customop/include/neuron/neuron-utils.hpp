// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// <neuron/neuron-utils.hpp>: which core a kernel runs on, and the tensor that all of them write.
#pragma once
#include <torch/torch.h>

uint32_t get_cpu_id();                      // from 0 to get_cpu_count() - 1
uint32_t get_cpu_count();
torch::Tensor get_dst_tensor(gpsimd::Place at = gpsimd::here());
