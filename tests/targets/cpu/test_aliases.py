# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that overlap: native code gives what the kernel's own operations give one after the other.

Each kernel has an optimization that assumes that inputs do not overlap, at its least size.
"""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets.cpu import lowering
from nki_mlir.targets.runtime import host

from .compiled import set_options

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def least_sizes(monkeypatch):
    monkeypatch.setattr(host, "WORTH_WAKING", 1)
    monkeypatch.setattr(lowering, "WORTH_FUSING", 1)
    set_options(monkeypatch, "parallelize", worth=1)
    set_options(monkeypatch, "form-products", worth=1 << 10, depth=64, rows=64, columns=128)
    set_options(monkeypatch, "forward-copies", least=1)
    set_options(monkeypatch, "chunk-rows", large=1, chunk=1 << 10, least=1, shared=1, worth=1)
    set_options(monkeypatch, "spread-nests", worth=1)


def new(function):
    """Return a kernel whose outputs are parameters and that shares no code with other tests."""
    return nki.trace(function)


def product(a, b, out):
    for i in nl.sequential_range(2):
        for j in nl.sequential_range(2):
            total = nl.zeros((128, 128), nl.float32, buffer=nl.psum)
            for s in nl.sequential_range(2):
                left = nl.load(a[nl.ds(s * 128, 128), nl.ds(i * 128, 128)])
                total += nisa.nc_matmul(left, nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 128, 128)]))
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 128, 128)], nl.sign(total))


def elementwise(a, b, out):
    nl.store(out[0:128], nl.add(nl.multiply(nl.load(a[0:128]), 2.0), nl.load(b[0:128])))
    nl.store(out[128:256], nl.subtract(nl.load(b[128:256]), nl.load(a[128:256])))


def rows_in_parallel(a, b, out):
    for i in nl.affine_range(16):
        nl.store(out[nl.ds(i * 16, 16)], nl.add(nl.load(a[nl.ds(i * 16, 16)]), nl.load(b[nl.ds(i * 16, 16)])))


def programs(a, b, out):
    i = nl.program_id(0)
    nl.store(out[nl.ds(i * 64, 64)], nl.maximum(nl.load(a[nl.ds(i * 64, 64)]), nl.load(b[nl.ds(i * 64, 64)])))


def memory_to_memory(a, b, out):
    nisa.dma_copy(dst=out[0:128, :], src=a[0:128, :])
    nisa.dma_copy(dst=out[128:256, :], src=b[128:256, :])


def chunks(a, b, out):
    x = nl.load(a[0:128])
    y = nl.abs(x)
    z = nl.maximum(y, nl.load(b[0:128]))
    nl.store(out[0:128], nl.add(y, z))
    nl.store(out[128:256], nl.subtract(x, z))


def gathered(a, b, out):
    rows = nl.ndarray((128, 1), nl.int32, buffer=nl.sbuf)
    rows[...] = nl.copy(nl.load(b[0:128, 0:1]), dtype=nl.int32)
    rows[...] = nl.maximum(nl.minimum(rows, 255), 0)
    i, j = nl.mgrid[0:128, 0:256]
    for k in nl.affine_range(2):
        tile = nl.load(a[rows[i, 0], j])
        nl.store(out[nl.ds(k * 128, 128)], tile)


def folded(a, b, out):
    for i in nl.affine_range(2):
        tile = nl.load(a[nl.ds(i * 128, 128)])
        highest = nl.max(tile, axis=1, keepdims=True)
        lowest = nl.min(nl.load(b[nl.ds(i * 128, 128)]), axis=1, keepdims=True)
        nl.store(out[nl.ds(i * 128, 128)], nl.subtract(nl.maximum(tile, lowest), highest))


def transposed(a, b, out):
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            tile = nl.load_transpose2d(a[nl.ds(j * 128, 128), nl.ds(i * 128, 128)])
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 128, 128)], nl.add(tile, nl.load(
                b[nl.ds(i * 128, 128), nl.ds(j * 128, 128)])))


KERNELS = {f.__name__: f for f in (product, elementwise, rows_in_parallel, programs, memory_to_memory, chunks, gathered,
                                   folded, transposed)}
SIZE = 256 * 256
# Where in memory a, b and out begin, in elements.
PLACES = {
    "apart": (0, SIZE, 2 * SIZE),
    "a is out": (0, SIZE, 0), "b is out": (SIZE, 0, 0), "all are one": (0, 0, 0), "a is b": (0, 0, SIZE),
    "one element on": (0, 2 * SIZE, 1), "one element back": (1, 2 * SIZE, 0), "a row on": (0, 2 * SIZE, 256),
    "rows back": (64 * 256, 2 * SIZE, 0), "b 3 elements back": (2 * SIZE, 3, 0), "half on": (0, SIZE, SIZE // 2),
    "last element": (0, 2 * SIZE, SIZE - 1),
}


def run(function, on, places, memory):
    kernel = new(function)
    if function is programs:
        kernel = kernel[4]
    kernel.on(on)(*(memory[p:p + SIZE].reshape(256, 256) for p in places))
    return memory


@pytest.mark.share(4)
@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", KERNELS)
def test_inputs_that_overlap(name, places):
    memory = RNG.integers(-2, 3, 3 * SIZE).astype(np.float32)
    function = KERNELS[name]
    expected, *computed = (run(function, on, places, memory.copy()) for on in ("eager", "interpreter", "jit"))
    for values in computed:
        np.testing.assert_array_equal(values, expected)


def row_of_a_number(table, out):
    """Copy the row whose number is the table's first element."""
    at = nl.load(table[0:1, 0:1], dtype=nl.int32)
    i, j = nl.mgrid[0:1, 0:64]
    nl.store(out[0:1, 0:64], nl.load(table[at[i, 0], j]))


def test_errors_of_inputs_that_overlap():
    """Failed checks of the second version are reported as those of the first are."""
    kernel = new(row_of_a_number).on("jit")
    memory = np.full((8, 64), 9, np.int32)
    with pytest.raises(IndexError, match="index 576 is out of bounds for axis 0 with size 512"):
        kernel(memory, memory)
    with pytest.raises(IndexError, match="index 576 is out of bounds for axis 0 with size 512"):
        kernel(memory, np.zeros((1, 64), np.int32))
    memory[0] = 3
    memory[3] = 7
    kernel(memory, memory)
    np.testing.assert_array_equal(memory[0], memory[3])
