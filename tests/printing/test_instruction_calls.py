# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Each call of an instruction, with the arguments that are not its defaults, prints as it was written."""

import numpy as np
import pytest

from nki_mlir.dialects.access import Access, Linear, Tile, full_tile
from nki_mlir.dialects.nisa.elementwise import ScalarTensorTensorOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.machine import machine_named
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.statements import adapted
from nki_mlir.printing.tile_text import pattern_text
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32

from ..language.generated import kernel_from_text
from .reading import printed

TILES = {
    "a": "(128, 64), nl.float32", "b": "(128, 64), nl.float32", "d": "(128, 64), nl.float32", "c": "(128, 1), nl.float32",
    "c2": "(128, 1), nl.float32", "r": "(128, 1), nl.float32", "n": "(128, 64), nl.int32", "m": "(128, 64), nl.uint8",
    "e": "(128, 8), nl.float32", "u": "(128, 8), nl.uint32", "s": "(128, 6), nl.float32", "g": "(128, 2), nl.float32",
    "row": "(1, 64), nl.float32", "a32": "(32, 32), nl.float32", "d32": "(32, 32), nl.float32",
    "at": "(64, 32), nl.bfloat16", "dt": "(32, 64), nl.bfloat16", "h": "(128, 64), nl.bfloat16",
    "hc": "(128, 1), nl.bfloat16", "cube": "(128, 4, 16), nl.float32", "r4": "(128, 4), nl.float32",
    "i": "(128, 4), nl.uint16", "seg": "(1, 64), nl.int32", "sb": "(1, 2, 64), nl.int32"}
PRODUCTS = {"p": "(64, 64), nl.float32", "q": "(64, 128), nl.float32", "hq": "(64, 128), nl.bfloat16"}
SWAPPED = [1, 0, *range(2, 32)]
CALLS = f"""
nisa.tensor_copy(dst=d, src=a)
nisa.tensor_copy(dst=h, src=a, engine=nisa.engine.scalar)
nisa.tensor_tensor(dst=d, data1=a, data2=b, op=nl.add)
nisa.tensor_tensor(dst=d, data1=a, data2=b, op=nl.subtract, engine=nisa.engine.gpsimd)
nisa.tensor_scalar(dst=d, data=a, op0=nl.multiply, operand0=2.0)
nisa.tensor_scalar(dst=d, data=a, op0=nl.add, operand0=1e-05)
nisa.tensor_scalar(dst=d, data=a, op0=nl.minimum, operand0=float("inf"))
nisa.tensor_scalar(dst=d, data=a, op0=nl.subtract, operand0=c, reverse0=True)
nisa.tensor_scalar(dst=d, data=a, op0=nl.multiply, operand0=c, op1=nl.add, operand1=1.5)
nisa.tensor_scalar(dst=d, data=a, op0=nl.multiply, operand0=3.0, op1=nl.subtract, operand1=c, reverse1=True, engine=nisa.engine.vector)
nisa.tensor_scalar(dst=n, data=n, op0=nl.bitwise_and, operand0=3)
nisa.tensor_scalar(dst=n, data=n, op0=nl.left_shift, operand0=2, op1=nl.bitwise_or, operand1=1)
nisa.activation(dst=d, op=nl.exp, data=a)
nisa.activation(dst=d, op=nl.exp, data=a, bias=c, scale=0.5)
nisa.activation(dst=d, op=nl.tanh, data=a, scale=c)
nisa.activation(dst=d, op=nl.exp, data=a, bias=c2, scale=c)
nisa.activation(dst=d, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=r, reduce_cmd=nisa.reduce_cmd.reset_reduce)
nisa.tensor_reduce(dst=r, op=nl.maximum, data=a, axis=1)
nisa.tensor_reduce(dst=r, op=nl.add, data=a, axis=1, negate=True)
nisa.tensor_reduce(dst=r4, op=nl.add, data=cube, axis=2)
nisa.tensor_reduce(dst=r, op=nl.minimum, data=cube, axis=[1, 2])
nisa.memset(dst=d, value=1.5)
nisa.memset(dst=d, value=0.1)
nisa.memset(dst=n, value=-3)
nisa.memset(dst=d, value=0.0, engine=nisa.engine.gpsimd)
nisa.reciprocal(dst=d, data=a)
nisa.nc_matmul(dst=p, stationary=a, moving=b)
nisa.nc_transpose(dst=q, data=a)
nisa.nc_transpose(dst=hq, data=h)
nisa.nc_transpose(dst=d32, data=a32, engine=nisa.engine.vector)
nisa.dma_copy(dst=d, src=a)
nisa.dma_copy(dst=h, src=a)
nisa.dma_transpose(dst=dt, src=at)
nisa.scalar_tensor_tensor(dst=d, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=b)
nisa.scalar_tensor_tensor(dst=d, data=a, op0=nl.subtract, operand0=c, op1=nl.divide, operand1=b, reverse0=True, reverse1=True)
nisa.tensor_tensor_scan(dst=d, data0=a, data1=b, initial=0.0, op0=nl.multiply, op1=nl.add)
nisa.tensor_tensor_scan(dst=d, data0=a, data1=b, initial=c, op0=nl.add, op1=nl.maximum, reverse0=True)
nisa.affine_select(dst=d, pattern=[[1, 64]], offset=3, channel_multiplier=-1, on_true_tile=a, on_false_value=-2.0, cmp_op=nl.greater_equal)
nisa.affine_select(dst=d, pattern=[[-1, 64]], offset=0, channel_multiplier=2, on_true_tile=a, on_false_value=1.0, cmp_op=nl.equal)
nisa.iota(dst=n, pattern=[[2, 64]], offset=5, channel_multiplier=3)
nisa.max8(dst=e, src=a)
nisa.nc_find_index8(dst=u, data=a, vals=e)
nisa.nc_match_replace8(dst=d, data=a, vals=e, imm=0.5)
nisa.bn_stats(dst=s, data=a)
nisa.bn_aggr(dst=g, data=s)
nisa.dropout(dst=d, data=a, prob=0.25)
nisa.dropout(dst=d, data=a, prob=c)
nisa.tensor_partition_reduce(dst=row, op=nl.add, data=a)
nisa.tensor_copy_predicated(dst=d, src=a, predicate=m)
nisa.tensor_copy_predicated(dst=d, src=a, predicate=m, reverse_pred=True)
nisa.nc_stream_shuffle(dst=d, src=a, shuffle_mask={SWAPPED})
nisa.tensor_scalar_reduce(dst=d, data=a, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=r)
nisa.tensor_scalar_reduce(dst=d, data=a, op0=nl.subtract, operand0=c, reduce_op=nl.maximum, reduce_res=r, reverse0=True)
nisa.tensor_scalar_cumulative(dst=d, src=a, op0=nl.add, op1=nl.add, imm0=1.0)
nisa.local_gather(dst=d, src_buffer=a, index=i, num_elem_per_idx=1)
nisa.sequence_bounds(dst=sb, segment_ids=seg)
nisa.rng(dst=n, engine=nisa.engine.vector)
""".strip().splitlines()


def text_of(call):
    """The text that a kernel with one call prints as."""
    lines = [f"{name} = nl.ndarray({shape}, buffer=nl.{'psum' if name in PRODUCTS else 'sbuf'})"
             for name, shape in {**TILES, **PRODUCTS}.items() if f"={name}," in call or f"={name})" in call]
    filled = [line.split()[0] for line in lines if "psum" not in line]
    written = call.removeprefix(f"{call.partition('(')[0]}(dst=").partition(",")[0]
    body = ["def kernel(x):", "out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)", *lines,
            *(f"nisa.memset(dst={name}, value=1)" for name in filled), call]
    if written in filled:
        body += [f"nisa.dma_copy(dst=out[0:1, 0:1], src={written}[0:1, {'0, ' * (written == 'sb')}0:1])"]
    if written in PRODUCTS:
        body += ["copy = nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf)",
                 f"nisa.tensor_copy(dst=copy, src={written}[0:1, 0:1])", "nisa.dma_copy(dst=out[0:1, 0:1], src=copy)"]
    captured = kernel_from_text("\n    ".join([*body, "nisa.dma_copy(dst=out[1:2, 0:1], src=x[1:2, 0:1])",
                                               "return out\n"]), {"nl": nl, "nisa": nisa}, name="kernel", jit=nki.jit)
    return printed(captured, [np.ones((4, 4), np.float32)])


@pytest.mark.parametrize("call", CALLS)
def test_call_prints_as_it_was_written(call):
    assert call in [line.strip() for line in text_of(call).splitlines()], text_of(call)


def test_products_that_the_language_does_not_add_up__say_so():
    first, second = (f"nisa.nc_matmul(dst=p, stationary=a, moving={moving}, accumulate={accumulate})"
                     for moving, accumulate in (("b", "False"), ("d", "False")))
    text = text_of(f"{first}\n    nisa.tensor_copy(dst=d32, src=p[0:32, 0:32])\n    nisa.memset(dst=d, value=2.0)\n    "
                   f"nisa.dma_copy(dst=out[2:3, 0:1], src=d32[0:1, 0:1])\n    {second}")
    lines = [line.strip() for line in text.splitlines()]
    assert second in lines and first.replace(", accumulate=False", "") not in lines[lines.index(second):]


def tile(name, dtype, columns):
    """A tile of eight columns, whose buffer has as many or one."""
    dims = ((1, 4), (int(columns > 1), 8))
    return Tile(name, "sbuf", (4, columns), dtype, Access(dtype, Linear(0), Linear(0), dims), name)


NARROW = {                  # arguments of the operation: the class that prints for it, and its engine
    "one": (dict(op0="add", operand0="h"), TensorTensorOp, "unknown"),
    "reversed": (dict(op0="subtract", operand0="h", reverse0=True), TensorTensorOp, "unknown"),
    "gpsimd": (dict(op0="multiply", operand0="h", engine="gpsimd"), TensorTensorOp, "gpsimd"),
    "scalar": (dict(op0="add", operand0="h", engine="scalar"), TensorTensorOp, "vector"),
    "power": (dict(op0="power", operand0="h", engine="vector"), TensorTensorOp, "gpsimd"),
    "second": (dict(op0="multiply", operand0="c", op1="subtract", operand1="h"), ScalarTensorTensorOp, "unknown"),
    "second, reversed": (dict(op0="subtract", imm0=2.0, op1="subtract", operand1="h", reverse0=True, reverse1=True,
                              engine="vector"), ScalarTensorTensorOp, "vector"),
    "second, gpsimd": (dict(op0="subtract", imm0=2.0, op1="add", operand1="h", engine="gpsimd"), TensorScalarOp,
                       "gpsimd"),
    "second, scalar": (dict(op0="multiply", imm0=2.0, op1="add", operand1="h", engine="scalar"), ScalarTensorTensorOp,
                       "vector"),
    "both": (dict(op0="multiply", operand0="h", op1="subtract", operand1="h"), ScalarTensorTensorOp, "unknown"),
    "first of two": (dict(op0="multiply", operand0="h", op1="add", imm1=1.0), TensorScalarOp, "unknown"),
    "float32": (dict(op0="multiply", operand0="c"), TensorScalarOp, "unknown"),
}


@pytest.mark.parametrize("name", NARROW)
def test_scalar_operands_of_narrow_floats__print_as_tiles_of_the_same_values(name):
    """The optimizer reads a column of bfloat16 where the language takes a column of float32 alone."""
    attributes, cls, engine = NARROW[name]
    columns = {"c": tile("c", FLOAT32, 1), "h": tile("h", BFLOAT16, 1)}
    op = TensorScalarOp(**{"dst": tile("d", FLOAT32, 8), "src": tile("a", FLOAT32, 8), "engine": "unknown"}
                        | {key: columns.get(value, value) for key, value in attributes.items()})
    rng = np.random.default_rng(8)
    values = {name: rng.uniform(0.5, 2, (4, 1 if name in columns else 8)).astype(dtype) for name, dtype in (
        ("a", np.float32), ("c", np.float32), ("h", BFLOAT16.numpy))}

    def result(operation):
        return operation.reference(*[np.broadcast_to(values[t.handle], t.shape) for _, t in operation.sources()])
    form = adapted(op)
    assert (type(form), form.engine) == (cls, engine)
    np.testing.assert_array_equal(result(form), result(op))


@pytest.mark.parametrize("shape, axis", [((4, 1, 5), 1), ((4, 1, 5, 1), 3), ((4, 1, 1, 5), 2), ((1, 5, 1), 2)])
def test_reduction_over_no_axis__is_one_over_the_last_axis_of_one_element(shape, axis):
    """The axis of partitions is none."""
    full = full_tile("a", shape, FLOAT32, "sbuf")
    assert adapted(TensorReduceOp(dst=full, src=full, op="add", axes=())).axes == (axis,)
    with pytest.raises(Unprintable, match="a reduction over no axis"):
        adapted(TensorReduceOp(dst=tile("d", FLOAT32, 8), src=tile("a", FLOAT32, 8), op="add", axes=()))


def test_stride_of_one_element__is_1_except_of_partitions():
    in_hbm = Tile("x", "hbm", (64,), FLOAT32, Access(FLOAT32, None, Linear(0), ((32, 1), (5, 1), (3, 2))))
    on_chip = Tile("t", "sbuf", (4, 8), FLOAT32, Access(FLOAT32, Linear(0), Linear(0), ((1, 1), (5, 1), (3, 2))))
    assert [pattern_text(in_hbm), pattern_text(on_chip)] == ["[[1, 1], [1, 1], [3, 2]]", "[[8, 1], [1, 1], [3, 2]]"]


@pytest.mark.parametrize("after, is_unused", [
    ([], True), (["    u = nl.load(x)"], True), (["    u = f(t)"], False), (["    f(t=u)"], True),
    (["    for k in range(3):", "        f(t)"], False), (["    u = x.t"], True)], ids=str)
def test_allocation__goes_where_nothing_has_used_it(after, is_unused):
    """The result of a function then defines the tile. Lines of an outer block end the search."""
    allocation, other = "    t = nl.ndarray((4, 8), nl.float32)", "    other = nl.ndarray((4, 8), nl.float32)"
    for before in ([], [other]):
        text = KernelText(comments=False, machine=machine_named("trn2"), lines=[*before, allocation, *after])
        assert text._drop_allocation("t") is is_unused
        assert text.lines == [*before, *([] if is_unused else [allocation]), *after]
    inside = KernelText(comments=False, machine=machine_named("trn2"), depth=2, lines=["    " + allocation, "    f()", "        g()"])
    assert not inside._drop_allocation("t") and len(inside.lines) == 3
