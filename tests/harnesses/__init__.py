# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs that use kernels as public harnesses do: with the vendor's names alone."""
