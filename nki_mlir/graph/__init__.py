# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts a StableHLO module, with the kernels that it calls, to one kernel function on buffers."""
