# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code generation for the NeuronCore: kernels as records, passes on them, and the streams they become."""
