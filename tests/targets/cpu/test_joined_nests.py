# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nests over the same elements that one walk computes: values stay those of separate nests, also in the last bit."""

from collections.abc import Callable
from itertools import pairwise
from unittest.mock import patch

import ml_dtypes  # noqa: F401
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.dialects.access import Linear
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.native_nodes import ScratchBuffer, compute
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.cpu.walk import JointWalk, over_extents, walk_of
from nki_mlir.targets.runtime import host
from nki_mlir.waist.nest import Nest, Operand, Step
from nki_mlir.waist.overlap import ByteRegion

WITHOUT = {name: options for name, options in PIPELINE.items() if name != "join-nests"}
ROWS, COLUMNS = 256, 512


def adam(p, g, m, v):
    """Perform a step of Adam on parameters ``p`` with gradients ``g``; two of its three results are read again."""
    outs = [nl.ndarray(p.shape, dtype=p.dtype, buffer=nl.shared_hbm) for _ in range(3)]
    for i in nl.affine_range(p.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        pt, gt, mt, vt = (nl.load(a[rows, :]) for a in (p, g, m, v))
        mean = nl.add(nl.multiply(mt, 0.9), nl.multiply(gt, 0.1))
        square = nl.add(nl.multiply(vt, 0.999), nl.multiply(nl.multiply(gt, gt), 0.001))
        step = nl.divide(mean, nl.add(nl.sqrt(square), 1e-8))
        for out, tile in zip(outs, (nl.subtract(pt, nl.multiply(step, 0.001)), mean, square)):
            nl.store(out[rows, :], tile)
    return tuple(outs)


def in_place(p, g, m, v):
    """Write arrays that are also read, one of them once more later."""
    for i in nl.affine_range(p.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        tile, other = nl.load(p[rows, :]), nl.load(g[rows, :])
        nl.store(p[rows, :], nl.add(tile, other))
        nl.store(g[rows, :], nl.subtract(tile, other))
        nl.store(m[rows, :], nl.multiply(nl.load(p[rows, :]), nl.load(g[rows, :])))
        nl.store(p[rows, :], nl.multiply(tile, 0.5))


def halves(p, g, m, v):
    """Write the halves of a tile separately, and read them together and separately."""
    out, rest = (nl.ndarray(p.shape, dtype=p.dtype, buffer=nl.shared_hbm) for _ in range(2))
    half = p.shape[1] // 2
    for i in nl.affine_range(p.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        both = nl.ndarray((128, 2 * half), dtype=p.dtype, buffer=nl.sbuf)
        both[:, 0:half] = nl.add(nl.load(p[rows, 0:half]), nl.load(g[rows, 0:half]))
        both[:, half:2 * half] = nl.subtract(both[:, 0:half], nl.load(g[rows, 0:half]))
        nl.store(out[rows, :], nl.multiply(both, nl.load(m[rows, :])))
        nl.store(rest[rows, 0:half], both[:, half:2 * half])
        nl.store(rest[rows, half:2 * half], both[:, 0:half])
    return out, rest


def normalized(p, g, m, v):
    """Sum rows between nests on complete tiles, and multiply each row by a factor."""
    out, centered = (nl.ndarray(p.shape, dtype=p.dtype, buffer=nl.shared_hbm) for _ in range(2))
    for i in nl.affine_range(p.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        total = nl.add(nl.load(p[rows, :]), nl.load(g[rows, :]))
        difference = nl.subtract(total, nl.mean(nl.load(m[rows, :]), axis=1, keepdims=True))
        nl.store(centered[rows, :], difference)
        nl.store(out[rows, :], nl.multiply(difference, nl.load(v[rows, 0:1])))
    return out, centered


def outer_products(p, g, m, v):
    """Multiply a column by a row, in tiles that start from 0 and from other numbers, and are written twice."""
    out, sums = (nl.ndarray(p.shape, dtype=p.dtype, buffer=nl.shared_hbm) for _ in range(2))
    right = nl.load(g[0:1, :])
    for i in nl.affine_range(p.shape[0] // 128):
        rows = nl.ds(i * 128, 128)
        left = nl.load_transpose2d(p[rows, 0:1])
        product = nisa.nc_matmul(left, right)
        nl.store(out[rows, :], nl.copy(product, dtype=p.dtype))
        total = nl.ndarray((128, p.shape[1]), dtype=nl.float32, buffer=nl.psum)
        total[...] = nl.load(m[rows, :])
        total += product
        total += nisa.nc_matmul(left, nl.load(v[0:1, :]))
        total[...] = nl.multiply(total, 0.5)
        nl.store(sums[rows, :], nl.copy(total, dtype=p.dtype))
    return out, sums


def arrays(dtype: str) -> list[np.ndarray]:
    """Return random arrays, with NaN of several payloads, infinities, zeros and denormals."""
    rng = np.random.default_rng(0)
    result = [rng.standard_normal((ROWS, COLUMNS), np.float32) for _ in range(4)]
    special = np.array([0x7FC00001, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0, 1 << 31, 3, 0x00400000, 0x7F7FFFFF], np.uint32)
    for array in result:
        array.ravel()[rng.integers(0, array.size, 4096)] = rng.choice(special.view(np.float32), 4096)
    with np.errstate(over="ignore"):
        return [array.astype(dtype) for array in result]


def run(kernel: Callable[..., object], dtype: str, passes: dict[str, str]) -> list[np.ndarray]:
    """Return the bits of the results, and of the arguments, which the kernel may have written.

    NaN has one pattern: which of two operands' NaN a result has depends on the order in which LLVM writes them.
    """
    values = arrays(dtype)
    with patch.dict(PIPELINE, passes, clear=True), np.errstate(all="ignore"):
        results = (nki.trace if kernel is in_place else nki.jit)(kernel).on("jit")(*values) or ()
    return [np.where(np.isnan(array), array.dtype.type(np.nan), array).view(f"u{array.itemsize}")
            for array in (*results, *values)]


@pytest.mark.share(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kernel", [adam, in_place, halves, normalized, outer_products], ids=lambda k: k.__name__)
def test_joined_nests__keep_the_bits(kernel, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "threads", lambda: threads)
    monkeypatch.setenv("NKI_MLIR_CACHE", "off")
    for joined, separate in zip(run(kernel, dtype, PIPELINE), run(kernel, dtype, WITHOUT), strict=True):
        np.testing.assert_array_equal(joined, separate)


# -- walks -------------------------------------------------------------------------------------------------------------
EXTENTS = (4, 6)
BUFFERS = [ScratchBuffer(1 << 10, k) for k in range(3)]


@st.composite
def calls(draw):
    """Draw a sum of one or two operands, perhaps with the old value; its starts and strides may overlap those of other
    calls."""
    strides = st.sampled_from([(6, 1), (12, 1), (12, 2), (0, 1), (1, 4)])

    def operand(positive: bool):
        steps = draw(strides.filter(lambda steps: not positive or min(steps) > 0))
        return Operand(FLOAT32, steps), replace_offset(draw(st.sampled_from(BUFFERS)), draw(st.integers(0, 8)))
    inputs, output = [operand(False) for _ in range(draw(st.integers(1, 2)))], operand(True)
    count = len(inputs)
    steps = (Step("constant", FLOAT32, (), "", repr(float(draw(st.integers(1, 3))))),
             Step("alu", FLOAT32, (0, count + 1), "multiply"),
             Step("alu", FLOAT32, (count + 2, count - 1 + draw(st.booleans())), "add"))
    nest = Nest(EXTENTS, frozenset(), tuple([o for o, _ in inputs]), 0, (output[0],), steps, (count + 3,))
    return compute(nest, [*(region for _, region in inputs), output[1]])


def replace_offset(buffer: ScratchBuffer, elements: int) -> ByteRegion:
    return buffer.region.moved(Linear(4 * elements))


def evaluate(nest: Nest, regions, memory: dict[ScratchBuffer, np.ndarray], at: tuple[int, ...]) -> None:
    """Compute one element: read all inputs and old values, then write."""
    def index(operand: Operand, region: ByteRegion) -> int:
        return region.offset.const // 4 + sum(step * k for step, k in zip(operand.strides, at))
    values = [memory[region.root][index(o, region)] for o, region in zip(nest.operands, regions)]
    for step in nest.steps:
        a = [values[k] for k in step.operands]
        values.append(float(step.number) if step.kind == "constant" else a[0] * a[1] if step.name == "multiply" else a[0] + a[1])
    for operand, region, result in zip(nest.outputs, regions[len(nest.inputs):], nest.results):
        memory[region.root][index(operand, region)] = values[result]


def after(steps, start: np.ndarray) -> dict[ScratchBuffer, np.ndarray]:
    memory = {buffer: start.copy() * (k + 1) for k, buffer in enumerate(BUFFERS)}
    for nest, regions in steps:
        for at in np.ndindex(*nest.extents):
            evaluate(nest, regions, memory, at)
    return memory


@given(st.lists(calls(), min_size=2, max_size=4))
def test_walk__computes_what_its_nests_compute_in_turn(run_calls) -> None:
    walk = walk_of(run_calls[0])
    for call in run_calls[1:]:
        other = walk_of(call) if walk is not None else None
        longer = walk.followed_by(other, 0, 100) if walk is not None and other is not None else None
        if longer is None:
            break
        walk = longer
    if walk is None or len(walk.calls) == 1:
        return
    start = np.random.default_rng(0).standard_normal(256)
    joint = after([(walk.nest, walk.regions)], start)
    in_turn = after([(call.nest, call.regions) for call in walk.calls], start)
    for buffer in BUFFERS:
        np.testing.assert_array_equal(joint[buffer], in_turn[buffer])


@given(calls(), calls())
def test_independent_nests__run_in_either_order(first, second) -> None:
    walk = walk_of(first)
    if walk is None or not walk.is_independent_of(second):
        return
    start = np.random.default_rng(0).standard_normal(256)
    orders = [after([(call.nest, call.regions) for call in order], start) for order in ((first, second), (second, first))]
    for a, b in pairwise(orders):
        for buffer in BUFFERS:
            np.testing.assert_array_equal(a[buffer], b[buffer])


def test_extents__are_divided_from_the_first_axis_on() -> None:
    nest = Nest((24,), frozenset(), (Operand(FLOAT32, (2,)),), 0, (Operand(FLOAT32, (1,)),), (), (0,))
    divided = over_extents(nest, (4, 6))
    assert divided is not None and divided.inputs[0].strides == (12, 2) and divided.outputs[0].strides == (6, 1)
    assert over_extents(nest, (5, 5)) is None and over_extents(nest, (48,)) is None and over_extents(nest, (4, 6, 1)) is None


def test_walk__leaves_out_nests_whose_elements_depend_on_others() -> None:
    row = Operand(FLOAT32, (1,))
    nest = Nest((8,), frozenset(), (row,), 0, (row,), (), (0,))
    regions = [BUFFERS[0].region, BUFFERS[1].region]
    assert isinstance(walk_of(compute(nest, regions)), JointWalk)
    repeated = Nest((8,), frozenset(), (row,), 0, (Operand(FLOAT32, (0,)),), (), (0,))
    fold = Nest((8,), frozenset({0}), (row,), 0, (Operand(FLOAT32, (0,)),), (Step("alu", FLOAT32, (0, 1), "add"),), (2,))
    assert walk_of(compute(repeated, regions)) is None and walk_of(compute(fold, regions)) is None
