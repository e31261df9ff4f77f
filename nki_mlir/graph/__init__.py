# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From a StableHLO module to one kernel function: upstream passes, buffers, views, and the linked kernels put in."""
