# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts a StableHLO module to one kernel function: upstream passes, buffers, views, and the kernels that it
calls."""
