# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stepping through a run: where it stops, what is shown there, for each executor that runs operation by operation."""
