# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pipelines, as texts of --pass-pipeline."""

CLEANUP = "canonicalize,cse,example-merge-clamps"
