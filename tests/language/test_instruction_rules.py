# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented rules of each instruction: broken once on every executor, beside the nearest call that keeps it."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.diagnostics import DeviceRuleWarning, KernelError
from nki_mlir.language import instructions
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import unwrap

from .running import floats, run

X = floats(32, 32)
BROKEN = "broken"
UNCERTAIN = "uncertain"


def full(shape, value=1.0, dtype=nl.float32):
    return nisa.memset(shape, value, dtype)


def column(dtype=nl.float32):
    return full((32, 1), 1, dtype)


def psum(t):
    return nl.matmul(t, t, transpose_x=True)


def in_psum(value, dtype=nl.float32):
    tile = nl.ndarray((32, 32), dtype, buffer=nl.psum)
    tile[...] = value
    return tile


def rows(length):
    tile = nl.ndarray((2, 2, length), nl.int8)
    tile[...] = 1
    return tile


def select(t, predicate, on_true=None, **keywords):
    dst = nl.ndarray((32, 32), nl.float32)
    nisa.select_reduce(dst=dst, predicate=predicate, on_true=t if on_true is None else on_true, on_false=0.0, **keywords)
    return dst


def predicated(t, predicate, src=None):
    dst = full((32, 32))
    nisa.tensor_copy_predicated(src=t if src is None else src, dst=dst, predicate=predicate)
    return dst


def ranges(t, **keywords):
    return nisa.range_select(**{"on_true_tile": t, "comp_op0": np.greater_equal, "comp_op1": np.less,
                                "bound0": column(), "bound1": column()} | keywords)


def reduced(t, op, **keywords):
    rows = nl.ndarray((32, 1), nl.float32)
    return nisa.tensor_scalar_reduce(data=t, op0=np.add, operand0=1.0, reduce_op=op, reduce_res=rows, **keywords)


def summed(t, op, fn=np.exp):
    rows = nl.ndarray((32, 1), nl.float32)
    nisa.activation(fn, t, reduce_op=op, reduce_res=rows, reduce_cmd=nisa.reduce_cmd.reset_reduce)
    return rows


def copied(t, **keywords):
    dst = nl.ndarray((32, 32), nl.float32)
    nisa.dma_copy(dst=dst, src=t, **keywords)
    return dst


def dma_transposed(t, axes):
    return nisa.dma_transpose(nl.ndarray((8, 4, 16), nl.float32, buffer=nl.private_hbm), axes=axes)


def dma_transposed_rank(rank):
    source = nl.ndarray((2,) * rank, nl.float32, buffer=nl.private_hbm)
    return nisa.dma_transpose(source, axes=None)


def integers(t, dtype):
    return nl.copy(full((32, 32), 1, dtype), dtype=nl.float32)


# name: (verdict, text, the call that breaks the rule, the one that keeps it, target)
RULES = {
    "tensor_scalar operand": (
        BROKEN, "operand 'operand0' of 'tensor_scalar' has 32 values in each partition; it must have one",
        lambda t: nisa.tensor_scalar(t, np.add, t), lambda t: nisa.tensor_scalar(t, np.add, column()), "trn2"),
    "tensor_scalar second operand": (
        BROKEN, "operand 'operand1' of 'tensor_scalar' has 32 values",
        lambda t: nisa.tensor_scalar(t, np.add, 1.0, op1=np.multiply, operand1=t),
        lambda t: nisa.tensor_scalar(t, np.add, 1.0, op1=np.multiply, operand1=column()), "trn2"),
    "scalar_tensor_tensor operand": (
        BROKEN, "operand 'operand0' of 'scalar_tensor_tensor' has 32 values",
        lambda t: nisa.scalar_tensor_tensor(data=t, op0=np.add, operand0=t, op1=np.add, operand1=t),
        lambda t: nisa.scalar_tensor_tensor(data=t, op0=np.add, operand0=column(), op1=np.add, operand1=t), "trn2"),
    "tensor_scalar_reduce reduce_op": (
        BROKEN, "'tensor_scalar_reduce': reduces by add, subtract, multiply, maximum, minimum, got logical_and",
        lambda t: reduced(t, np.logical_and), lambda t: reduced(t, np.max), "trn2"),
    "tensor_scalar_reduce reversed": (
        UNCERTAIN, "'tensor_scalar_reduce': reverse0 is documented as not supported",
        lambda t: reduced(t, np.max, reverse0=True), lambda t: reduced(t, np.max), "trn2"),
    "bits on GpSimd": (
        BROKEN, "the gpsimd engine has no bitwise_and, which 'tensor_scalar' needs",
        lambda t: nisa.tensor_scalar(full((32, 32), 1, nl.int32), np.bitwise_and, 1, engine=nisa.gpsimd_engine),
        lambda t: nisa.tensor_scalar(full((32, 32), 1, nl.int32), np.bitwise_and, 1), "trn2"),
    "operators without an entry": (
        UNCERTAIN, "'tensor_scalar': divide is not in the documents' table of operators",
        lambda t: nisa.tensor_scalar(t, np.divide, 2.0), lambda t: nisa.tensor_scalar(t, np.multiply, 0.5), "trn2"),
    "steps of a pattern": (
        BROKEN, "operand 'data' of 'reciprocal' steps by 32768 elements",
        lambda t: nisa.reciprocal(rows(32768)[:, :, 0], dtype=nl.float32),
        lambda t: nisa.reciprocal(rows(32767)[:, :, 0], dtype=nl.float32), "trn2"),
    "activation bias": (
        UNCERTAIN, "operand 'bias' of 'activation' has 32 values in each partition",
        lambda t: nisa.activation(np.exp, t, bias=t), lambda t: nisa.activation(np.exp, t, bias=column()), "trn2"),
    "activation function": (
        BROKEN, "'cos' is not an activation function of the Scalar engine",
        lambda t: nisa.activation(np.cos, t), lambda t: nisa.activation(np.tanh, t), "trn2"),
    "activation_reduce function": (
        BROKEN, "'floor' is not an activation function of the Scalar engine",
        lambda t: summed(t, np.add, nl.floor), lambda t: summed(t, np.add), "trn2"),
    "activation with registers, generation 2": (
        BROKEN, "'activation_accumulate' with reduce_op 'maximum' needs generation 3",
        lambda t: summed(t, np.max), lambda t: summed(t, np.add), "trn1"),
    "reciprocal with a bias, generation 2": (
        BROKEN, "the activation 'reciprocal' with a bias needs generation 3",
        lambda t: nisa.activation(nl.reciprocal, full((32, 32)), bias=column()),
        lambda t: nisa.activation(nl.reciprocal, full((32, 32))), "trn1"),
    "tensor_copy_predicated predicate": (
        BROKEN, "operand 'predicate' of 'tensor_copy_predicated' has dtype float32; it must have uint8, uint16, uint32, bool",
        lambda t: predicated(t, full((32, 32))), lambda t: predicated(t, full((32, 32), 1, nl.uint16)), "trn2"),
    "tensor_copy_predicated in PSUM": (
        BROKEN, "at most one of src and predicate may be in PSUM",
        lambda t: predicated(t, in_psum(1, nl.uint8), psum(t)),
        lambda t: predicated(t, full((32, 32), 1, nl.uint8), psum(t)), "trn2"),
    "select_reduce predicate": (
        BROKEN, "operand 'predicate' of 'select_reduce' has dtype float32; it must have int8, uint8, int16, uint16",
        lambda t: select(t, full((32, 32))), lambda t: select(t, full((32, 32), 1, nl.int16)), "trn2"),
    "select_reduce on_true": (
        BROKEN, "'select_reduce': selects floats and integers of 8 and 16 bits, got int32 as on_true",
        lambda t: select(t, full((32, 32), 1, nl.uint8), full((32, 32), 1, nl.int32)),
        lambda t: select(t, full((32, 32), 1, nl.uint8), full((32, 32), 1, nl.int16)), "trn2"),
    "range_select of integers": (
        BROKEN, "'range_select': selects floats, got int32",
        lambda t: ranges(full((32, 32), 1, nl.int32), dtype=nl.float32), ranges, "trn2"),
    "range_select of too many": (
        BROKEN, "'range_select': counts elements up to 1.67772e+07",
        lambda t: ranges(t, range_start=(1 << 24) - 8), lambda t: ranges(t, range_start=1 << 23), "trn2"),
    "range_select elsewhere": (
        UNCERTAIN, "'range_select': writes -3.40282e+38 outside of the range, got 0",
        lambda t: ranges(t, on_false_value=0.0), lambda t: ranges(t, on_false_value=nl.fp32.min), "trn2"),
    "affine_select of integers": (
        UNCERTAIN, "'affine_select': selects floats and integers of 8 and 16 bits, got int32",
        lambda t: nisa.affine_select(nl.arange(32)[:, None] >= nl.arange(32)[None, :], full((32, 32), 1, nl.int32), 0),
        lambda t: nisa.affine_select(nl.arange(32)[:, None] >= nl.arange(32)[None, :], full((32, 32), 1, nl.int16), 0),
        "trn2"),
    "sequence_bounds of halves": (
        BROKEN, "operand 'segment_ids' of 'sequence_bounds' has dtype bfloat16; it must have float32, int32",
        lambda t: nl.copy(nisa.sequence_bounds(segment_ids=full((1, 32), 1, nl.bfloat16), dtype=nl.float32)),
        lambda t: nisa.sequence_bounds(segment_ids=full((1, 32), 1, nl.float32)), "trn2"),
    "local_gather of too many": (
        BROKEN, "size of dimension 1 in 'index[32, 257]' of 'local_gather' exceed architecture limitation of 256.",
        lambda t: nisa.local_gather(t, full((32, 257), 0, nl.uint16)),
        lambda t: nisa.local_gather(t, full((32, 256), 0, nl.uint16)), "trn2"),
    "dropout of integers": (
        BROKEN, "operand 'prob' of 'dropout' has dtype bfloat16; it must have float32",
        lambda t: nisa.dropout(full((32, 32), 1, nl.int32), column(nl.bfloat16)),
        lambda t: nisa.dropout(full((32, 32), 1, nl.int32), column()), "trn2"),
    "dma_copy by the hardware, generation 2": (
        BROKEN, "dma_copy with dge_mode hwdge needs generation 3",
        lambda t: copied(t, dge_mode=nisa.dge_mode.hwdge), lambda t: copied(t, dge_mode=nisa.dge_mode.swdge), "trn1"),
    "dma_copy of PSUM": (
        BROKEN, "to be in address space 'hbm|sbuf'", lambda t: copied(psum(t)), copied, "trn2"),
    "dma_transpose axes": (
        BROKEN, "dma_transpose axes (1, 2, 0) of a tensor of 3 dimensions: (1, 0), (2, 1, 0) and (3, 1, 2, 0) are "
        "supported",
        lambda t: dma_transposed(t, (1, 2, 0)), lambda t: dma_transposed(t, (2, 1, 0)), "trn2"),
    "dma_transpose of 5 dimensions": (
        BROKEN, "dma_transpose axes () of a tensor of 5 dimensions: (1, 0), (2, 1, 0) and (3, 1, 2, 0) are supported",
        lambda t: dma_transposed_rank(5), lambda t: dma_transposed_rank(4), "trn2"),
    "nc_matmul of integers": (
        BROKEN, "operand 'moving' of 'nc_matmul' has dtype int8, which must be a float type",
        lambda t: nisa.nc_matmul(nl.copy(t, dtype=nl.bfloat16), full((32, 32), 1, nl.int8)),
        lambda t: nisa.nc_matmul(nl.copy(t, dtype=nl.bfloat16), full((32, 32), 1, nl.bfloat16)), "trn2"),
    "nc_matmul of e4m3fn": (
        BROKEN, "nc_matmul of float8_e4m3fn needs generation 4",
        lambda t: nisa.nc_matmul(*(full((32, 32), 1, "float8_e4m3fn") for _ in range(2))),
        lambda t: nisa.nc_matmul(*(full((32, 32), 1, "float8_e4m3") for _ in range(2))), "trn2"),
    "nc_matmul in PSUM": (
        BROKEN, "Expected operand 'moving' of 'nc_matmul' to be in address space 'sbuf'",
        lambda t: nisa.nc_matmul(t, in_psum(1.0)), lambda t: nisa.nc_matmul(t, t), "trn2"),
    "nc_transpose on the vector engine": (
        UNCERTAIN, "nc_transpose of 32 x 33 on the vector engine is 2 instructions [NKI-TRANSPOSE-BLOCKS]; use "
        "nisa.tensor_engine, or leave the engine to the compiler",
        lambda t: nisa.nc_transpose(full((32, 33)), engine=nisa.vector_engine),
        lambda t: nisa.nc_transpose(full((32, 32)), engine=nisa.vector_engine), "trn2"),
    "tensor_tensor in PSUM": (
        BROKEN, "at most one of data1 and data2 may be in PSUM", lambda t: nisa.tensor_tensor(psum(t), psum(t), np.add),
        lambda t: nisa.tensor_tensor(psum(t), t, np.add), "trn2"),
    "tensor_tensor_scan in PSUM": (
        BROKEN, "at most one of data0 and data1 may be in PSUM",
        lambda t: nisa.tensor_tensor_scan(psum(t), psum(t), 0.0, np.multiply, np.add),
        lambda t: nisa.tensor_tensor_scan(psum(t), t, 0.0, np.multiply, np.add), "trn2"),
    "bit operations of floats": (
        BROKEN, "which must be an integer type", lambda t: nisa.tensor_scalar(t, np.bitwise_and, 1),
        lambda t: nisa.tensor_scalar(full((32, 32), 1, nl.int32), np.bitwise_and, 1), "trn2"),
    "bn_stats of too many": (
        BROKEN, "size of dimension 1 in 'data[32, 513]' of 'bn_stats' exceed architecture limitation of 512.",
        lambda t: nisa.bn_stats(full((32, 513))), lambda t: nisa.bn_stats(full((32, 512))), "trn2"),
    "bn_aggr": (BROKEN, "'bn_aggr': takes triples, got 8 values", lambda t: nisa.bn_aggr(full((32, 8))),
                lambda t: nisa.bn_aggr(full((32, 9))), "trn2"),
    "max8": (BROKEN, "'max8': takes 8 to 16384 values a partition in src, got 7", lambda t: nisa.max8(src=full((32, 7))),
             lambda t: nisa.max8(src=full((32, 8))), "trn2"),
}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_DEVICE_RULES", raising=False)


def outcome(on, body, target):
    """The error that the kernel raises, or the warnings it shows."""
    def kernel(x):
        result = nl.copy(body(nl.load(x)))
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DeviceRuleWarning)
        try:
            run(on, replace(unwrap(nki.jit(kernel)), target=target), X)
        except KernelError as error:
            assert error.at is not None and error.at.file == __file__
            return BROKEN, error.headline
    return UNCERTAIN, "\n".join(str(w.message) for w in shown if w.category is DeviceRuleWarning)


@pytest.mark.parametrize("name", RULES)
def test_broken(on, name):
    verdict, text, broken, _, target = RULES[name]
    kind, message = outcome(on, broken, target)
    assert text in message
    assert kind == verdict


@pytest.mark.parametrize("name", RULES)
def test_kept(on, name):
    _, _, _, correct, target = RULES[name]
    assert outcome(on, correct, target) == (UNCERTAIN, "")


class Elements(np.ndarray):
    """An array with the methods of a tile."""

    def broadcast_to(self, shape):
        return np.broadcast_to(self, shape)


@pytest.mark.parametrize("shape", [(4, 6), (4, 2, 3), (1, 5)])
def test_operand_of_one_element_a_partition__is_spread_over_its_elements(shape):
    """One element may be for all partitions; tiles of other shapes stay as they are, for the operation to refuse."""
    assert instructions.over_row(None, shape) is None
    for other in (shape, (shape[0], 7), (2 * shape[0], 3), (9,)):
        tile = np.zeros(other).view(Elements)
        assert instructions.over_row(tile, shape) is tile
    for small in {(shape[0], 1), (shape[0], 1, 1), (shape[0],), (1, 1), (1,)}:
        tile = np.arange(np.prod(small)).reshape(small).view(Elements) + 1
        expected = np.broadcast_to(tile.reshape((-1, *[1] * (len(shape) - 1))), shape)
        np.testing.assert_array_equal(instructions.over_row(tile, shape), expected)


@pytest.mark.parametrize("counts, first, refused", [
    ("find", 0, False), ("find", 1, True), ("replace", 1, False), ("indices", 0, False), ("indices", 1, True)])
def test_masks_of_instructions_that_count__begin_at_the_first_element(counts, first, refused):
    """Those that write positions count from the first element. Values alone may be replaced under any mask."""
    def kernel(x):
        out = nl.ndarray((4, 16), nl.float32, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:4, 0:16]
        t = nl.load(x)
        eight, mask = nisa.max8(src=t), j >= first
        if counts == "find":
            nisa.nc_find_index8(data=t[i, j], vals=eight, mask=mask)
        else:
            indices = nl.ndarray((4, 8), nl.uint32) if counts == "indices" else None
            nisa.nc_match_replace8(data=t[i, j], vals=eight, imm=0.0, dst_idx=indices, mask=mask)
        nl.store(out, t)
        return out
    x = floats(4, 16)
    if refused:
        with pytest.raises(KernelError, match="which counts from the first element, excludes the first elements"):
            nki.simulate_kernel(nki.jit(kernel), x)
    else:
        np.testing.assert_array_equal(nki.simulate_kernel(nki.jit(kernel), x), x)
