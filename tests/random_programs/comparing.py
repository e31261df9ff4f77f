# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a random program on all executors and compares what they return: bit for bit, or within the stated bounds."""

import numpy as np

from nki_mlir.dialects.nki.movement import print_sink

from .writer import Output, Program

EXECUTORS = ("eager", "interpreter", "jit", "isa")


def results(kernel, program: Program, on: str) -> tuple[list[np.ndarray], list]:
    """What it returns, and what it prints."""
    printed: list = []
    token = print_sink.set(lambda prefix, value: printed.append((prefix, value)))
    try:
        got = kernel.on(on)(*(a.copy() for a in program.arrays.values()))
    finally:
        print_sink.reset(token)
    return list(got) if isinstance(got, (tuple, list)) else [got], printed


def differences(got: np.ndarray, expected: np.ndarray, output: Output) -> str:
    """What differs, or nothing."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{output.name} is {got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    if output.rtol or output.atol:
        a, b = (np.asarray(v, np.float64) for v in (got, expected))
        same = np.isclose(a, b, rtol=output.rtol, atol=output.atol, equal_nan=True)
    else:
        same = bits(got) == bits(expected)
        if got.dtype.kind in "fV":
            same |= np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    if same.all():
        return ""
    places = np.argwhere(~same)
    shown = [f"{tuple(map(int, at))}: {got[tuple(at)]!r}, not {expected[tuple(at)]!r}" for at in places[:4]]
    return f"{output.name} differs in {len(places)} of {same.size} elements (rtol {output.rtol}, atol {output.atol}), " \
           f"first {'; '.join(shown)}"


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") if array.dtype.kind != "b" else array


def check_agreement(kernel, program: Program) -> None:
    expected, printed = results(kernel, program, EXECUTORS[0])
    for on in EXECUTORS[1:]:
        got, also = results(kernel, program, on)
        assert len(got) == len(expected) == len(program.outputs)
        for made, wanted, output in zip(got, expected, program.outputs):
            difference = differences(made, wanted, output)
            assert not difference, f"{on}: {difference}"
        assert len(printed) == len(also), f"{on} prints {len(also)} times, not {len(printed)}"
