# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Helper functions without decorators, which probes call to see how capture handles undecorated code."""

from nki_mlir.language.beta import language as nl

CALLS = {"count": 0}


def double_rows(dst, src, count):
    """Plain ``range`` in a helper unrolls; ``affine_range`` in a helper rolls."""
    for i in range(count):
        nl.store(dst[i * 128:(i + 1) * 128, :], nl.load(src[i * 128:(i + 1) * 128, :]) * 2)


def double_rows_rolled(dst, src, count):
    for i in nl.affine_range(count):
        nl.store(dst[i * 128:(i + 1) * 128, :], nl.load(src[i * 128:(i + 1) * 128, :]) * 2)


def next_offset():
    """State of another module, invisible to a look at the kernel's own variables."""
    CALLS["count"] += 1
    return (CALLS["count"] - 1) % 4 * 128
