# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every operation that has a loop form means the same as its class's reference once it is lowered to linalg."""

from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.analysis.mask_boxes import UnderMask
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Constraint, Linear, Tile
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.scalar.dtypes import BFLOAT16, BOOL, FLOAT32, INT8, INT32, TFLOAT32, UINT8, UINT64

from ..property_counts import FUZZ
from .lowering import buffers_of, dtype_at, equal, lower, module_of, run_module, run_reference
from .samples import MATRIX, UNMASKED, Sampler, classes

SAMPLES = 40 if FUZZ else 12         # of each class
ORDER_BOUND = 1e-6       # of the largest value: NumPy's pairwise sum of n - 1 elements against one of n


def agrees(op, values=()):
    """Whether both ways leave the same bytes in all buffers."""
    return same_buffers(op, run_reference(op, values), run_module(lower(op), op, values))


def same_buffers(op, expected, after):
    """Whether the buffers after the nest equal those after the reference.

    A sum starts from 0, so that the sum of negative zeros is 0; NumPy's is a negative zero.
    """
    folds = op.iteration().reduced or hasattr(op, "reduce_cmd")
    fold = getattr(op, "reduce_op", getattr(op, "op", "")) if folds else ""
    # Under a mask that does not select a box of elements the elements that are summed lie closer together in NumPy's order.
    ordered = fold == "subtract" or (op.mask and (op.name in ("matmul", "nc_matmul") or fold == "average" or len(
        op.targets()) > 1))
    ordered = ordered or op.name in ("bn_stats", "bn_aggr")
    # The reference adds float32 where an operand that op1 ignores is a float, the nest exact integers.
    ordered = ordered or op.name == "activate2"
    bound, sums = ORDER_BOUND if ordered else 0.0, fold in ("add", "average", "subtract")
    return all(equal(a, b, dtype_at(op, x), bound, not sums, hasattr(op, "reduce_cmd"))
               for a, b, x in zip(expected, after, buffers_of(op)))


def check_samples(cls, vary, count, alike=False):
    """Random operations of a class, varied; those that one side refuses are refused by name."""
    compared = 0
    for seed in range(count):
        sampler = Sampler(np.random.default_rng(seed), alike=alike)
        op = vary(sampler, sampler.operation(cls))
        if op is None:
            continue
        values = [int(sampler.rng.integers(0, n)) for n in sampler.extents]
        try:
            expected = run_reference(op, values)
            module = lower(op)
        except Unsupported as refused:
            assert "no box" in str(refused) or "does not select a box" in str(refused)
            continue
        except UnderMask as refused:
            assert "under its mask" in str(refused)
            continue
        after = run_module(module, op, values)
        tiles = [(n.name, t.describe()) for n, t in op.operands()]
        assert same_buffers(op, expected, after), f"seed {seed}: {op.attribute_values()} {tiles} {op.mask}"
        compared += 1
    return compared


CLASSES = pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.full_name())


def test_classes__that_have_no_loop_form_stay_instructions():
    assert {"nki.binary", "nki.reduce", "nki.matmul", "nisa.activation_reduce", "nisa.dma_transpose"} <= {
        cls.full_name() for cls in classes()}
    assert REGISTRY["nki.device_print"] not in classes()


@CLASSES
def test_lowered__patterns_and_dtypes(cls):
    assert check_samples(cls, lambda sampler, op: op, SAMPLES) > 3 * SAMPLES // 4


@pytest.mark.parametrize("cls", [cls for cls in classes() if cls.name not in UNMASKED], ids=lambda cls: cls.full_name())
def test_lowered__masks(cls):
    assert check_samples(cls, Sampler.masked, SAMPLES) > SAMPLES // 4


@CLASSES
def test_lowered__overlap(cls):
    if len(cls.tiles) > 1 and cls.name not in ("load", "store", *MATRIX):
        fits_seldom = cls.name in ("bn_stats", "bn_aggr")               # the result's shape is not the source's
        assert check_samples(cls, Sampler.overlapping, 40, alike=True) > (0 if fits_seldom else 2)


@pytest.mark.parametrize("name", ["nki.copy", "nki.binary", "nki.reduce", "nisa.tensor_copy_predicated"])
def test_lowered__overlap_under_a_mask(name):
    def vary(sampler, op):
        op = sampler.overlapping(op)
        return op and sampler.masked(op)
    assert check_samples(REGISTRY[name], vary, 40, alike=True) > 5


# -- single forms ------------------------------------------------------------------------------------------------------
def tile(array, space, dtype, dims, free=0, partition=0, base=None):
    start = None if space == HBM else Linear(partition) if isinstance(partition, int) else partition
    access = Access(dtype, start, Linear(free) if isinstance(free, int) else free, dims)
    return Tile(array, space, array.shape, base or dtype, access, "t")


def rows(p, f, dtype=FLOAT32, space=SBUF, value=None):
    """A tile that is a whole buffer, of random or given values."""
    noise = np.random.default_rng(p * 1000 + f).standard_normal((p, f)) * 10
    values = noise if value is None else np.full((p, f), value)
    return tile(values.astype(dtype.numpy), space, dtype, ((1, p), (1, f)))


def symbolic(cls, *extents, **fields):
    return REGISTRY[cls](symbols=tuple(range(len(extents))), ranges=tuple((0, n - 1) for n in extents), **fields)


def test_mask__hides_elements_outside_the_buffer():
    src = tile(np.arange(20, dtype=np.float32), HBM, FLOAT32, ((4, 8), (1, 4)), Linear(0, ((0, 4),)))
    op = symbolic("nki.load", 4, dst=rows(8, 4, value=-1), src=src)
    op.mask = (Constraint(Linear(4, ((0, -1),), ((0, -1),))),)          # row + i <= 4, the last row that there is
    for i in range(4):
        assert agrees(op, (i,))
        after = run_module(lower(op), op, (i,))
        assert np.array_equal(after[0][:5 - i].ravel(), np.arange(4 * i, 20)) and (after[0][5 - i:] == -1).all()


def test_mask__that_is_no_box_hides_elements_outside_the_buffer():
    src = tile(np.arange(10, dtype=np.float32), HBM, FLOAT32, ((3, 4), (1, 4)))
    op = symbolic("nki.load", dst=rows(4, 4, value=-1), src=src)
    op.mask = (Constraint(Linear(9, (), ((0, -3), (1, -1)))),)
    assert agrees(op)
    assert "nki.mask" in str(lower(op))


def test_mask__known_here_leaves_a_smaller_loop():
    op = symbolic("nki.copy", dst=rows(8, 6), src=rows(8, 6, value=2))
    op.mask = (Constraint(Linear(4, (), ((0, -1),))), Constraint(Linear(-2, (), ((1, 1),))))
    text = str(lower(op))
    assert "nki.mask" not in text and "-> (0, 2)>" in text and text.count("[[1, 5], [1, 4]]>, masked}") == 2
    assert agrees(op)


def test_mask__that_holds_nowhere_leaves_nothing():
    op = symbolic("nki.copy", dst=rows(8, 6), src=rows(8, 6))
    op.mask = (Constraint(Linear(-8, (), ((0, 1),))),)
    assert "linalg" not in str(lower(op))


def test_mask__with_a_symbol_of_one_value_is_a_box():
    op = symbolic("nki.copy", 1, dst=rows(8, 6), src=rows(8, 6, value=2))
    op.mask = (Constraint(Linear(4, ((0, 1),), ((0, -1),))),)
    assert "nki.mask" not in str(lower(op))


def test_mask__on_a_product_leaves_other_elements():
    dst = rows(4, 5, space=PSUM, value=7)
    op = symbolic("nki.matmul", 3, dst=dst, stationary=rows(6, 4), moving=rows(6, 5), accumulate=False)
    op.mask = (Constraint(Linear(1, ((0, 1),), ((1, -1),))),)
    assert "nki.mask" in str(lower(op))
    for i in range(3):
        assert agrees(op, (i,))


def test_limits__left_to_run_time_are_checked():
    op = symbolic("nki.copy", 4, dst=rows(8, 6), src=rows(8, 6, value=2))
    op.limits = (Constraint(Linear(2, ((0, -1),))),)
    module = lower(op)
    assert "nki.limits = #set" in str(module) and "affine_set<(d0, d1)[s0] : (-s0 + 2 >= 0)>" in str(module)
    assert agrees(op, (2,))
    with pytest.raises(OutOfBounds, match="1 element outside"):
        run_module(module, op, (3,))


def test_overlap__same_pattern_is_in_place():
    buffer = rows(8, 6)
    op = symbolic("nki.binary", dst=buffer, lhs=buffer, rhs=replace(buffer, label="rhs"), op="add")
    text = str(lower(op))
    assert "memref.alloc" not in text and text.count("nki.view") == 1 and agrees(op)


def test_overlap__transposed_in_place_goes_through_a_temporary():
    buffer = rows(6, 6)
    op = symbolic("nki.transpose", dst=buffer, src=buffer)
    assert "memref.alloc" in str(lower(op)) and agrees(op)


def test_overlap__with_another_symbol_value_goes_through_a_temporary():
    array = np.arange(48, dtype=np.float32).reshape(4, 12)
    op = symbolic("nki.copy", 3, dst=tile(array, SBUF, FLOAT32, ((1, 4), (1, 4)), 4),
                  src=tile(array, SBUF, FLOAT32, ((1, 4), (1, 4)), Linear(0, ((0, 4),))))
    assert "memref.alloc" in str(lower(op))
    assert all(agrees(op, (i,)) for i in range(3))


def test_reduction__is_accumulated_in_float32_and_rounded_once():
    src = rows(2, 512, BFLOAT16, value=1.0)
    src.handle[:, 0] = 512
    op = symbolic("nki.reduce", dst=rows(2, 1, BFLOAT16), src=src, op="add", axes=(1,))
    assert run_module(lower(op), op, ())[0][0, 0] == 1024           # in bfloat16 every sum would stay 512
    assert agrees(op)


def test_reduction__empty_of_active_elements_keeps_the_destination():
    op = symbolic("nki.reduce", dst=rows(4, 1, value=5), src=rows(4, 4, value=1), op="add", axes=(1,))
    op.mask = (Constraint(Linear(-4, (), ((0, 2), (1, 1)))),)
    assert agrees(op)
    assert run_module(lower(op), op, ())[0].ravel().tolist() == [5, 2, 4, 4]


@pytest.mark.parametrize("fn", ["average", "subtract"])
def test_reduction__without_identity_under_a_mask_that_is_no_box(fn):
    """A mean counts its elements, a difference looks for the first of them; a row without any keeps its value."""
    op = symbolic("nki.reduce", 3, dst=rows(4, 1, value=77), src=rows(4, 4), op=fn, axes=(1,))
    op.mask = (Constraint(Linear(-3, ((0, 1),), ((1, 1),))), Constraint(Linear(2, (), ((0, -1),))))
    for i in range(3):
        assert agrees(op, (i,))
        after = run_module(lower(op), op, (i,))[0].ravel()
        active = op.src.handle[:, 3 - i:]
        expected = active.mean(1) if fn == "average" else 2 * active[:, 0] - active.sum(1)
        np.testing.assert_allclose(after, [*expected[:3], 77], rtol=1e-5)


def test_product__into_bfloat16_that_accumulates():
    op = symbolic("nki.matmul", dst=rows(4, 5, BFLOAT16, PSUM), stationary=rows(6, 4), moving=rows(6, 5),
                  accumulate=True)
    assert agrees(op)


@pytest.mark.parametrize("dtype, value", [(UINT8, 255), (UINT64, (1 << 64) - 2048), (INT32, 16777217), (INT32, -5e9),
                                          (BOOL, 3), (INT8, float("nan")), (TFLOAT32, 1 / 3), (FLOAT32, 1e300)])
def test_constant__is_what_the_dtype_holds(dtype, value):
    op = symbolic("nki.memset", dst=rows(2, 3, dtype, value=0), value=value)
    assert agrees(op)
    if dtype is INT32:
        assert (run_module(lower(op), op, ())[0] == max(value, -(1 << 31))).all()


def test_attributes__and_location_stay_on_the_generic():
    from nki_mlir.bindings import ir
    from nki_mlir.dialects.mlir_ops import shared_context
    with shared_context():
        named = {"nki.name": ir.StringAttr.get("scores"), "nki.no_reorder": ir.UnitAttr.get()}
    op = symbolic("nki.unary", dst=rows(4, 5), src=rows(4, 5), fn="exp")
    op.extra = named
    text = lower(op).operation.get_asm(enable_debug_info=True)
    assert 'nki.name = "scores"' in text and "nki.no_reorder" in text and 'loc("kernel.py":3:7)' in text


def test_device_print__stays():
    op = symbolic("nki.device_print", src=rows(4, 5), prefix="x")
    assert '"nki.device_print"' in str(lower(op))


def test_symbols__are_trailing_inputs_where_an_index_form_uses_them():
    op = symbolic("nki.iota", 3, 4, dst=rows(4, 5, INT32), expression=Linear(1, ((1, 10),), ((0, 2), (1, 1))))
    text = str(lower(op))
    assert "affine_map<(d0, d1) -> ()>" in text and "linalg.index 0" in text and "arith.index_cast" in text
    assert all(agrees(op, (0, j)) for j in range(4))


def test_reinterpreted__buffer_is_seen_as_other_elements():
    array = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    src = tile(array, SBUF, BFLOAT16, ((1, 4), (2, 8)), 1, base=FLOAT32)
    op = symbolic("nki.copy", dst=rows(4, 8), src=src)
    assert '[[1, 4], [2, 8]]>} : (memref<4x8xf32, "sbuf">) -> memref<4x8xbf16, strided<[16, 2], offset: 1>' in str(
        lower(op))
    assert agrees(op)


def test_module_of__round_trips_through_text():
    from nki_mlir.bindings import ir
    from nki_mlir.dialects.mlir_ops import shared_context
    op = symbolic("nki.binary", dst=rows(4, 5), lhs=rows(4, 5), rhs=rows(4, 5, BFLOAT16), op="add")
    assert str(module_of(op)).count("#nki.access") == 3
    with shared_context():
        again = ir.Module.parse(str(lower(op)))
    assert np.array_equal(run_module(again, op, ())[0], run_reference(op, ())[0])


@pytest.mark.parametrize("name, picked", [("nki.select", {"on_true": 16777217, "on_false": -5}),
                                          ("nisa.tensor_copy_predicated", {"src": 16777217})])
def test_selection__of_integers_keeps_all_bits(name, picked):
    condition = {"nki.select": "condition", "nisa.tensor_copy_predicated": "predicate"}[name]
    tiles = {k: rows(2, 4, INT32, value=v) for k, v in picked.items()}
    where = rows(2, 4, UINT8, value=0)
    where.handle[:, ::2] = 3
    op = symbolic(name, dst=rows(2, 4, INT32, value=2147483647), **tiles, **{condition: where})
    other = -5 if name == "nki.select" else 2147483647
    assert np.array_equal(run_module(lower(op), op, ())[0], [[16777217, other] * 2] * 2) and agrees(op)
