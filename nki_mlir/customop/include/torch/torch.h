// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of <torch/torch.h> that custom operators may use: for the sources of kernels and of shape functions.
#pragma once
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <gpsimd/functions.h>
#include <gpsimd/tcm.h>
#include <gpsimd/tensor.h>
