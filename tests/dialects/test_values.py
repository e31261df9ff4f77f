# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation against an independent float64 formula: sizes, dtypes, every attribute that changes the meaning."""

from typing import Any

import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.scalar_body import ArrayScalars
from nki_mlir.dialects.verification import verify
from nki_mlir.scalar.dtypes import ALL, BOOL, FLOAT32, INT32, DType

from .formulas import BINARY, BITS, FORMULAS, UNARY
from .samples import COLUMN, SAMPLES, A, arrays_of, column, run, tile

RANDOM = ("nisa.random_seed", "nisa.rand", "nisa.rng", "nisa.dropout")
TESTED = sorted(set(FORMULAS) & set(SAMPLES))
NARROW = [d for d in ALL if d.bits <= 32 and d is not BOOL]


def test_formulas__cover_every_op() -> None:
    assert {*FORMULAS, *RANDOM, "nki.device_print"} == set(REGISTRY), "give each op class a formula in formulas.py"


def expected(op: Op, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Float64 values of each destination."""
    sources = {}
    for field, t in op.operands():
        spread = arrays[field.name].astype(np.float64)
        sources[field.name] = np.broadcast_to(spread, t.shape) if spread.shape != t.shape else spread
    with np.errstate(all="ignore"):
        results = FORMULAS[op.full_name()](op, sources)
    results = results if isinstance(results, tuple) else (results,)
    names = [f.name for f, _ in op.operands() if f.writes]
    assert len(results) == len(names)
    return {name: np.asarray(value, np.float64) for name, value in zip(names, results)}


def compare(got: np.ndarray, wanted: np.ndarray, dtype: DType, terms: int = 1) -> None:
    """Rounded once to the destination; float32 inside, ``terms`` of it summed up."""
    assert got.shape == wanted.shape
    if dtype.is_integer:
        limits = np.iinfo(np.uint8 if dtype is BOOL else dtype.numpy)
        high = 1 if dtype is BOOL else limits.max
        np.testing.assert_array_equal(got.astype(np.float64), np.clip(np.rint(wanted), limits.min, high))
        return
    scale = np.abs(wanted).max(initial=1.0)         # a sum may cancel
    inside = 2.0 ** -23 * (2 + terms ** 0.5) * (scale if terms > 1 else 1.0)
    step = 2.0 ** -(dtype.mantissa + 1)
    least = {"float8_e4m3": 2.0 ** -9, "float8_e4m3fn": 2.0 ** -9, "float8_e5m2": 2.0 ** -16}.get(dtype.name, 1e-37)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=step * 1.01 + 2.0 ** -22, atol=inside + least)


# Arrays that mean something: counts are positive, indices lie in their rows, half of the searched values exist.
MEANT = {"nisa.bn_aggr": lambda a: {"src": abs(a["src"])},
         "nisa.local_gather": lambda a: {"index": a["index"] % max(1, a["src"].shape[1] - 1)},
         "nisa.gather_flattened": lambda a: {"index": a["index"] % a["src"].shape[1]},
         "nisa.nc_find_index8": lambda a: {"vals": searched(a)},
         "nisa.nc_match_replace8": lambda a: {"vals": searched(a)},
         "nisa.nc_matmul_mx": lambda a: {k: small_floats(v) for k, v in a.items() if k != "dst"},
         "nisa.nc_matmul_transpose": lambda a: {"moving": np.eye(len(a["moving"]), dtype=a["moving"].dtype)[::-1]}}
CONTRACTED = ("nki.matmul", "nisa.nc_matmul", "nisa.nc_matmul_mx", "nisa.nc_matmul_transpose",
              "nisa.tensor_partition_reduce")


def searched(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.where(np.arange(8) % 2, arrays["vals"], arrays["data"][:, :8])


def small_floats(array: np.ndarray) -> np.ndarray:
    """Packed elements without NaN, scales around 1."""
    rng = np.random.default_rng(array.size)
    if array.dtype == np.uint8:
        return rng.integers(122, 132, array.shape).astype(np.uint8)
    quads = rng.integers(0, 0x7B, (*array.shape, 4)) | rng.choice([0, 0x80], (*array.shape, 4))
    return quads.astype(np.uint8).view(np.uint32)[..., 0]


def check(op: Op, changed: dict[str, np.ndarray] | None = None) -> None:
    verify(op)
    name = op.full_name()
    arrays = arrays_of(op)
    arrays |= (MEANT[name](arrays) if name in MEANT else {}) | (changed or {})
    after = run(op, arrays)
    sums = op.iteration().reduced or name == "nisa.tensor_tensor_scan"
    summed = [t.partitions if name in CONTRACTED else t.free_elements for f, t in op.operands() if f.reads]
    for label, wanted in expected(op, arrays).items():
        compare(after[label], wanted, getattr(op, label).dtype, max(summed) if sums else 1)


SIZED = [(name, sizes) for name in TESTED for sizes in SAMPLES[name].sizes]


def case_id(value: Any) -> str:
    return "x".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("name", "sizes"), SIZED, ids=case_id)
def test_value__in_edge_sizes(name: str, sizes: dict[str, int]) -> None:
    check(SAMPLES[name].make(sizes=sizes))


def retyped(name: str, dtype: DType, writes: bool) -> Op | None:
    """The sample with its float32 sources (or destinations) in another dtype; None where that is refused."""
    sample = SAMPLES[name]
    fields = {f.name: f for f in REGISTRY[name].tiles}
    tiles = {label: text.removesuffix("xf32") + f"x{dtype.mlir}" for label, text in sample.tiles.items()
             if text.endswith("xf32") and fields[label].writes is writes}
    same = {"op": "add"} if sample.attributes.get("op") in ("subtract", "multiply") else {}
    op = sample.make(**tiles, **same)
    try:
        verify(op)
    except KernelError:
        return None
    return op if tiles else None


def typed(writes: bool) -> Any:
    cases = [(name, dtype) for name in TESTED for dtype in NARROW if retyped(name, dtype, writes) is not None]
    return pytest.mark.parametrize(("name", "dtype"), cases, ids=str)


@typed(writes=False)
def test_value__of_sources_in_each_dtype(name: str, dtype: DType) -> None:
    op = retyped(name, dtype, writes=False)
    assert op is not None
    if name == "nisa.reciprocal" and dtype.is_integer:
        check(op, {"src": np.arange(1, 25).reshape(4, 6).astype(dtype.numpy)})
    else:
        check(op)


@typed(writes=True)
def test_value__of_destinations_in_each_dtype(name: str, dtype: DType) -> None:
    op = retyped(name, dtype, writes=True)
    assert op is not None
    check(op)


# -- attributes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", BINARY)
@pytest.mark.parametrize(("name", "field"), [("nki.binary", "op"), ("nki.binary_scalar", "op"),
                                             ("nisa.tensor_tensor", "op"), ("nisa.tensor_scalar", "op0")])
def test_binary_functions(name: str, field: str, fn: str) -> None:
    in_sbuf = dict.fromkeys(("lhs", "rhs"), A) if (name, fn) == ("nisa.tensor_tensor", "power") else {}
    op = SAMPLES[name].make(**{field: fn}, **in_sbuf)
    arrays = arrays_of(op)
    if fn == "power":                               # real numbers only
        arrays = {k: abs(v) for k, v in arrays.items()}
    check(op, arrays)


@pytest.mark.parametrize("fn", BITS)
@pytest.mark.parametrize("dtype", ["i8", "ui8", "i16", "i32", "ui32"])
def test_bit_functions(fn: str, dtype: str) -> None:
    tiles = dict.fromkeys(("dst", "lhs", "rhs"), f"sbuf PxFx{dtype}")
    check(SAMPLES["nki.binary"].make(**tiles, op=fn))
    check(SAMPLES["nisa.tensor_tensor"].make(**tiles, op=fn))
    pair = {"dst": f"sbuf PxFx{dtype}", "src": f"sbuf PxFx{dtype}"}
    check(SAMPLES["nki.binary_scalar"].make(**pair, op=fn, scalar=2.0, reverse=False))
    check(SAMPLES["nisa.tensor_scalar"].make(**pair, op0=fn, imm0=1.0, op1="bitwise_xor", imm1=3.0))
    check(SAMPLES["nisa.scalar_tensor_tensor"].make(**pair, rhs=pair["src"], op0=fn, imm0=1.0, op1="bitwise_or"))


@pytest.mark.parametrize("fn", UNARY)
def test_unary_functions(fn: str) -> None:
    op = SAMPLES["nki.unary"].make(fn=fn)
    arrays = {"src": abs(arrays_of(op)["src"])} if fn in ("sqrt", "rsqrt", "log") else {}
    check(op, arrays)
    if fn in ("abs", "negative", "square", "relu", "bypass", "logical_not"):
        check(SAMPLES["nisa.tensor_scalar"].make(op0=fn, op1="multiply", imm1=2.0))


@pytest.mark.parametrize("fn", ["add", "maximum", "minimum", "multiply", "average", "logical_and", "logical_or"])
@pytest.mark.parametrize(("axes", "dst"), [((1,), "sbuf Px1xGx2xf32"), ((2, 3), "sbuf PxFx1x1xf32"),
                                           ((1, 2, 3), "sbuf Px1x1x1xf32")], ids=str)
def test_reductions(fn: str, axes: tuple[int, ...], dst: str) -> None:
    check(SAMPLES["nki.reduce"].make(dst=dst, src="sbuf PxFxGx2xf32", axes=axes, op=fn))
    check(SAMPLES["nisa.tensor_reduce"].make(dst=dst, src="sbuf PxFxGx2xf32", axes=axes, op=fn, negate=False))


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("nki.binary_scalar", {"op": "divide", "reverse": False}),
    ("nki.matmul", {"accumulate": True}),
    ("nki.matmul", {"stationary": "sbuf PxGxbf16", "moving": "sbuf PxFxbf16"}),
    ("nisa.nc_matmul", {"accumulate": True}),
    ("nki.select", {"condition": "sbuf PxFxf32"}),
    ("nki.memset", {"dst": "sbuf PxFxi32", "value": 16777217.0}),
    ("nki.memset", {"dst": "sbuf PxFxui8", "value": -3.0}),
    ("nki.memset", {"dst": "sbuf PxFxi1", "value": 7.0}),
    ("nki.iota", {"dst": A, "expression": Linear(5, (), ((0, -1), (1, 3)))}),
    ("nisa.tensor_scalar", {"reverse0": True, "reverse1": True}),
    ("nisa.tensor_scalar", {"operand0": column(), "operand1": column()}),
    ("nisa.tensor_scalar", {"operand1": column(), "engine": "gpsimd"}),
    ("nisa.scalar_tensor_tensor", {"operand0": column(), "reverse0": True, "op0": "subtract"}),
    ("nisa.scalar_tensor_tensor", {"reverse1": True}),
    ("nisa.activation", {"bias": column(), "fn": "tanh"}),
    ("nisa.activation", {"bias": column(), "scale": column(), "fn": "sigmoid"}),
    ("nisa.activation_reduce", {"bias": column(), "fn": "square"}),
    ("nisa.tensor_copy_predicated", {"reverse_pred": True}),
    ("nisa.affine_select", {"equal": True}),
    ("nisa.tensor_copy", {"engine": "scalar"}),
    ("nisa.tensor_copy", {"engine": "gpsimd", "src": A}),
    ("nisa.nc_transpose", {"engine": "vector", "dst": "sbuf FxPxf32"}),
    ("nisa.dma_copy", {"dst": "hbm PxFxbf16", "src": A}),
    ("nisa.tensor_partition_reduce", {"op": "maximum"}),
    ("nisa.tensor_scalar_reduce", {"operand0": column(), "op0": "subtract", "reverse0": True, "reduce_op": "add"}),
    ("nisa.tensor_tensor_scan", {"initial": "sbuf Px1xf32", "op0": "subtract", "reverse0": True, "reverse1": True,
                                 "op1": "subtract"}),
    ("nisa.nc_match_replace8", {"dst_idx": "sbuf Px8xui16"}),
    *(("nisa.activation_accumulate", {"reduce_cmd": command, "fn": "exp", "bias": column()})
      for command in ("idle", "reset", "reduce", "reset_reduce")),
    ("nisa.select_reduce", {"reverse_pred": True, "on_false": "sbuf Px1xf32", "reduce_res": "sbuf Px1xf32",
                            "reduce_cmd": "reduce"}),
    ("nisa.range_select", {"comp0": "equal", "comp1": "less_equal", "base": -1.0, "reduce_cmd": "idle"}),
    ("nisa.dma_scatter", {"rmw": "bypass"}),
    ("nisa.dma_gather", {"mode": "skip"}),
    ("nisa.dma_transpose", {"dst": "sbuf FxGxPxf32", "permutation": (2, 1, 0)}),
    ("nisa.local_gather", {"dst": "sbuf 16x16x2xf32", "elements": 2}),
    ("nisa.tensor_copy_dynamic_src", {"position": Linear(1, (), ((1, 1),)), "first": Linear(1, (), ((1, 1),))}),
    ("nisa.tensor_copy_dynamic_dst", {"dst": "sbuf Px9x8xf32", "position": Linear(8, (), ((1, 1),)), "first": Linear(1),
                                      "scales": (8,), "extents": (9,)}),
    ("nisa.dma_dynamic_read", {"mode": "skip"}),
    ("nisa.dma_dynamic_read", {"src": "sbuf 3x8x9xf32"}),
    ("nisa.dma_dynamic_write", {"rmw": "bypass"}),
    ("nisa.dma_dynamic_write", {"offset": "sbuf 1x1xi32"}),
    ("nisa.activate2", {"fn": "prelu", "alpha": 0.25, "op0": "subtract", "op1": "bypass", "reverse0": True}),
    ("nisa.activate2", {"fn": "prelu", "slope": COLUMN, "operand0": COLUMN, "operand1": COLUMN, "op1": "subtract",
                        "reverse1": True, "reduce_cmd": "reset_reduce", "reduce_op": "maximum",
                        "reduce_res": COLUMN}),
    ("nisa.exponential", {"highest": COLUMN, "reduce_cmd": "reduce"}),
    ("nisa.tensor_scalar_accumulate", {"operand0": COLUMN, "op0": "subtract", "reverse0": True, "negate": False,
                                       "reduce_op": "maximum", "reduce_cmd": "reset_reduce"}),
    *(("nisa.tensor_scalar_cumulative", {"op1": op, "operand0": COLUMN, "reduce_cmd": command})
      for op in ("add", "subtract", "multiply", "maximum", "minimum") for command in ("reduce", "reset_reduce")),
    ("nisa.dynamic_read", {"src": "hbm 1x64xf32", "steps": (9, 2), "index": "sbuf Px1xi32", "scale": 4}),
    ("nisa.dynamic_write", {"dst": "sbuf PxKxf32", "steps": (0, 1), "index": "sbuf 1x1xi32", "scale": 1,
                            "rmw": "bypass"}),
    ("nisa.gather_columns", {"group": 32}),
    ("nisa.scatter_columns", {"group": 32}),
    ("nisa.nonzero_with_count", {"src": "sbuf Px6xf32", "base": 0, "padding": -7}),
    ("nisa.quantize_mx", {"element": "float8_e5m2", "src": "sbuf 32x8xf16"}),
    ("nisa.nc_matmul_double_row", {"accumulate": True, "moving": "sbuf Px2xFxf8E5M2"}),
    ("nisa.nc_matmul_mx", {"accumulate": True, "moving_element": "float8_e4m3fn"}),
    ("nisa.nc_matmul_transpose", {"stationary": "sbuf PxGxi32", "dst": "psum GxPxi32"}),
]


@pytest.mark.parametrize(("name", "changes"), VARIANTS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_attributes_and_optional_tiles(name: str, changes: dict[str, Any]) -> None:
    check(SAMPLES[name].make(**changes))


# -- what a mask leaves ------------------------------------------------------------------------------------------------
LOWER = Constraint(Linear(0, (), ((0, 1), (1, -1))))                    # p - f >= 0, no box
CORNER = (Constraint(Linear(2, (), ((0, -1),))), Constraint(Linear(3, (), ((1, -1),))))     # p <= 2, f <= 3
MASKED = ["nki.binary", "nki.binary_scalar", "nki.unary", "nki.select", "nki.load", "nki.store", "nki.copy",
          "nki.memset", "nki.iota", "nisa.tensor_tensor", "nisa.tensor_scalar", "nisa.scalar_tensor_tensor",
          "nisa.activation", "nisa.reciprocal", "nisa.tensor_copy_predicated", "nisa.affine_select",
          "nisa.tensor_copy", "nisa.memset", "nisa.iota", "nisa.dma_copy"]


@pytest.mark.parametrize("mask", [(LOWER,), CORNER], ids=["triangle", "box"])
@pytest.mark.parametrize("name", MASKED)
def test_masked_elements__are_neither_read_nor_written(name: str, mask: tuple[Constraint, ...]) -> None:
    op = SAMPLES[name].make(mask=mask)
    arrays = arrays_of(op)
    p, f = np.indices((4, 6))
    active = p >= f if mask == (LOWER,) else (p <= 2) & (f <= 3)
    for field, t in op.operands():
        if field.role.__name__ == "In" and t.dtype is FLOAT32:      # would show wherever it is read
            arrays[field.name][~active] = np.nan
    after = run(op, arrays)
    (target,) = (name for name, _ in op.targets())
    wanted = expected(op, arrays)[target]
    compare(after[target][active], wanted[active], getattr(op, target).dtype)
    assert np.array_equal(after[target][~active], arrays[target][~active])


# -- random numbers ----------------------------------------------------------------------------------------------------
def test_random_numbers__follow_the_state() -> None:
    op = SAMPLES["nisa.rand"].make(sizes={"P": 128, "F": 512})
    state = run(SAMPLES["nisa.random_seed"].make(), {"state": np.zeros((1, 2), np.uint32),
                                                     "seed": np.full((1, 1), 42, np.uint32)})["state"]
    first = run(op, {"dst": np.zeros((128, 512), np.float32), "state": state})
    again = run(op, {"dst": np.zeros((128, 512), np.float32), "state": state})
    second = run(op, {"dst": first["dst"], "state": first["state"]})
    assert np.array_equal(first["dst"], again["dst"])
    assert not np.array_equal(first["dst"], second["dst"])
    assert first["dst"].min() >= 0 and first["dst"].max() < 1
    # The standard deviations of a mean and of a variance of n uniform numbers, five times.
    n = first["dst"].size
    assert abs(first["dst"].mean() - 0.5) < 5 * np.sqrt(1 / 12 / n)
    assert abs(first["dst"].var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)


@pytest.mark.parametrize("dtype", ["ui8", "i8", "ui16", "i16", "ui32", "i32", "i1"])
def test_random_bits__are_even(dtype: str) -> None:
    op = SAMPLES["nisa.rng"].make(sizes={"P": 128, "F": 512}, dst=f"sbuf PxFx{dtype}")
    arrays = arrays_of(op)
    after = run(op, arrays)
    assert not np.array_equal(after["state"], arrays["state"])
    bits = np.unpackbits(after["dst"].view(np.uint8).reshape(-1, after["dst"].itemsize), axis=1)
    used = bits[:, -1:] if dtype == "i1" else bits
    assert np.all(abs(used.mean(0) - 0.5) < 5 * np.sqrt(1 / 4 / len(used)))         # five standard deviations
    assert dtype != "i1" or after["dst"].view(np.uint8).max() == 1


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_dropout__zeroes_that_share_and_rescales_nothing(probability: float) -> None:
    op = SAMPLES["nisa.dropout"].make(sizes={"P": 128, "F": 512}, imm=probability)
    arrays = arrays_of(op)
    after = run(op, arrays)["dst"]
    dropped = after == 0
    deviation = np.sqrt(probability * (1 - probability) / dropped.size)
    assert abs(dropped.mean() - probability) <= 5 * deviation
    assert np.array_equal(after[~dropped], arrays["src"][~dropped])


def test_device_print__hands_over_the_tile() -> None:
    from nki_mlir.dialects.nki.movement import print_sink
    observed: list[tuple[str, np.ndarray]] = []
    token = print_sink.set(lambda prefix, value: observed.append((prefix, value)))
    try:
        op = SAMPLES["nki.device_print"].make(src="sbuf PxFxi32")
        arrays = {"src": np.arange(24, dtype=np.int32).reshape(4, 6)}
        run(op, arrays)
    finally:
        print_sink.reset(token)
    ((prefix, value),) = observed
    assert prefix == "tile" and value.dtype == INT32.numpy and np.array_equal(value, arrays["src"])


def test_copy__that_overlaps_reads_first() -> None:
    buffer = np.arange(24, dtype=np.float32).reshape(4, 6)
    base = tile("sbuf 4x6xf32", "src")
    left, right = (type(base)(base.handle, "sbuf", (4, 6), FLOAT32, base.access.box((0, k), (4, 5)), label)
                   for k, label in ((0, "src"), (1, "dst")))
    op = SAMPLES["nki.copy"].make(dst=right, src=left)
    from nki_mlir.targets.interpreter.execute import compile_op
    compile_op(op)([buffer, buffer], ())
    assert np.array_equal(buffer[:, 1:], np.arange(24).reshape(4, 6)[:, :5])


def test_constants__keep_the_sign_of_zero_and_are_of_the_dtype() -> None:
    scalars = [ArrayScalars(dtype).constant(value) for dtype in (FLOAT32, INT32) for value in (0.0, -0.0, 2.6, np.nan)]
    assert [str(m) for m in scalars] == ["0.0", "-0.0", "2.6", "nan", "0", "0", "3", "0"]
    assert [m.dtype.name for m in scalars] == ["float32"] * 4 + ["int32"] * 4
