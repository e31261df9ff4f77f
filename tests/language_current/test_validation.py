# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What instructions do not allow: the documented texts, at the call, on both builders."""

import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiWarning

from .running import run


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype, buffer=buffer)


def psum(*shape, dtype=nl.float32):
    return tile(*shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape, dtype=nl.float32):
    return tile(*shape, dtype=dtype, buffer=nl.private_hbm)


CASES = {
    "partitions": (lambda: nisa.tensor_tensor(tile(128, 4), tile(256, 512), tile(128, 4), nl.add),
                   "tensor_tensor data1 partition dimension 256 exceeds maximum 128"),
    "partition mismatch": (lambda: nisa.tensor_copy(tile(64, 4), tile(32, 8)), "src has 32 partitions, dst has 64"),
    "free mismatch": (lambda: nisa.tensor_copy(tile(64, 4), tile(64, 5)),
                      "src has 5 elements per partition, dst has 4"),
    "both in PSUM": (lambda: nisa.tensor_tensor(tile(8, 4), psum(8, 4), psum(8, 4), nl.add), "at most one of"),
    "GpSimd and PSUM": (lambda: nisa.tensor_copy(tile(8, 4), psum(8, 4), engine=nisa.gpsimd_engine), "sbuf"),
    "DMA and PSUM": (lambda: nisa.dma_copy(psum(8, 4), tile(8, 4)), "PSUM, which DMA cannot access"),
    "HBM operand": (lambda: nisa.tensor_copy(tile(8, 4), hbm(8, 4)),
                    "address space 'psum|sbuf', but got a tile in 'hbm'"),
    "no tensor": (lambda: nisa.tensor_copy(tile(8, 4), 3.0), "expecting 'tensor', got 'float'"),
    "raw enum": (lambda: nisa.tensor_copy(tile(8, 4), tile(8, 4), engine=7), "expecting 'engine' for engine, got 7"),
    "string buffer": (lambda: nl.ndarray((8, 4), nl.float32, buffer="sbof"), "expecting 'buffer type'"),
    "matmul contraction": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8), tile(32, 4)),
                           r"contracts axis 0 of both operands, got \[16, 8\] and \[32, 4\]"),
    "matmul result": (lambda: nisa.nc_matmul(psum(8, 5), tile(16, 8), tile(16, 4)), "which must be 8 x 4"),
    "matmul destination": (lambda: nisa.nc_matmul(tile(8, 4), tile(16, 8), tile(16, 4)), "to be in address space 'psum'"),
    "matmul operand": (lambda: nisa.nc_matmul(psum(8, 4), psum(16, 8), tile(16, 4)), "Expected operand 'stationary'"),
    "matmul mixes": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8), tile(16, 4, dtype=nl.bfloat16)), "float32 only"),
    "matmul of integers": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8, dtype=nl.int32), tile(16, 4, dtype=nl.int32)),
                           "must be a float type"),
    "matmul of two fp8": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8, dtype=nl.float8_e4m3),
                                                 tile(16, 4, dtype=nl.float8_e4m3fn)),
                          "cannot mix"),
    "matmul columns": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 129), tile(16, 4)), "129 columns, more than 128"),
    "tile position": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8), tile(16, 4), tile_size=(64, 64)),
                      "both must be given"),
    "tile size": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8), tile(16, 4), tile_position=(0, 16),
                                         tile_size=(64, 64)),
                  "must be a multiple"),
    "double row": (lambda: nisa.nc_matmul(psum(8, 4), tile(16, 2, 8), tile(16, 2, 4), perf_mode="double_row"),
                   r"got \[16, 2, 8\] float32"),
    "operand1 alone": (lambda: nisa.tensor_scalar(tile(8, 4), tile(8, 4), nl.add, 1.0, operand1=2.0), "has no op1"),
    "bits and arithmetic": (lambda: nisa.tensor_scalar(tile(8, 4, dtype=nl.int32), tile(8, 4, dtype=nl.int32), nl.add,
                                                       1,
                                                       op1=nl.bitwise_and, operand1=1), "both be bit operations"),
    "operand shape": (lambda: nisa.tensor_scalar(tile(8, 4), tile(8, 4), nl.add, tile(8, 2)), "has 2 values in each partition"),
    "unary operand": (lambda: nisa.tensor_scalar(tile(8, 4), tile(8, 4), nl.abs, 3.0), "must be None or 0"),
    "no operator": (lambda: nisa.tensor_tensor(tile(8, 4), tile(8, 4), tile(8, 4), nl.softmax), "is not an operator"),
    "no activation": (lambda: nisa.activation(tile(8, 4), nl.maximum, tile(8, 4)), "is not an activation function"),
    "scale type": (lambda: nisa.activation(tile(8, 4), nl.exp, tile(8, 4), scale=tile(8, 1, dtype=nl.bfloat16)),
                   "float32"),
    "reduce axis": (lambda: nisa.tensor_reduce(tile(8, 5), nl.add, tile(8, 4, 5), axis=1), "last contiguous free axes"),
    "reduce partition": (lambda: nisa.tensor_reduce(tile(8, 4), nl.add, tile(8, 4), axis=0), "partition axis"),
    "negated bits": (lambda: nisa.tensor_reduce(tile(8, 1, dtype=nl.int32), nl.bitwise_or, tile(8, 4, dtype=nl.int32),
                                                1, True),
                     "negate is for arithmetic"),
    "bn_stats length": (lambda: nisa.bn_stats(tile(8, 6), tile(8, 513)), "exceed architecture limitation of 512"),
    "bn_aggr triples": (lambda: nisa.bn_aggr(tile(8, 2), tile(8, 4)), "triples"),
    "max8 length": (lambda: nisa.max8(tile(8, 8), tile(8, 7)), "8 to 16384"),
    "index type": (lambda: nisa.nc_find_index8(tile(8, 8), tile(8, 16), tile(8, 8)), "uint16 or uint32"),
    "shuffle mask": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4), [32] * 32), "32 entries of 0..31 or 255"),
    "shuffle source": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(4, 4), [5] * 32),
                       "the mask must name partitions of src, 0 to 3, or 255"),
    "shuffle type": (lambda: nisa.nc_stream_shuffle(tile(32, 4), tile(32, 4, dtype=nl.int32), [0] * 32),
                     "have the same dtype"),
    "iota pattern": (lambda: nisa.iota(tile(8, 4), [[1, 5]]), "has 5 elements, dst 4"),
    "iota memory": (lambda: nisa.iota(psum(8, 4), [[1, 4]]), "to be in address space 'sbuf'"),
    "local_gather type": (lambda: nisa.local_gather(tile(16, 16), tile(16, 4), tile(16, 1, dtype=nl.uint32)), "uint16"),
    "local_gather size": (lambda: nisa.local_gather(tile(16, 15), tile(16, 4), tile(16, 1, dtype=nl.uint16)),
                          "must be 16 x 1"),
    "memset type": (lambda: nisa.memset(tile(8, 4, dtype=nl.int32), np.nan), "takes a finite number"),
    "memset packed": (lambda: nisa.memset(tile(8, 4, dtype=nl.float8_e5m2_x4), 1), "takes only 0"),
    "predicate type": (lambda: nisa.tensor_copy_predicated(tile(8, 4), tile(8, 4), tile(8, 4)),
                       "uint8, uint16, uint32"),
    "transpose size": (lambda: nisa.nc_transpose(tile(64, 8), tile(8, 64)), "up to 32 x 32"),
    "transpose type": (lambda: nisa.nc_transpose(psum(4, 8), tile(8, 4, dtype=nl.bfloat16)), "must be equal"),
    "dma sizes": (lambda: nisa.dma_copy(tile(8, 4), hbm(8, 5)), "moves 40 elements"),
    "hwdge converts": (lambda: nisa.dma_copy(tile(8, 4, dtype=nl.bfloat16), hbm(8, 4), dge_mode=nisa.dge_mode.hwdge),
                       "moves bytes"),
    "dma engine": (lambda: nisa.dma_copy(tile(8, 4), hbm(8, 4), engine=nisa.scalar_engine), "only with dge_mode hwdge"),
    "dma priority": (lambda: nisa.dma_copy(tile(8, 4), hbm(8, 4), priority=7), "none of 0, 1, 2, 3"),
    "dma_transpose axes": (lambda: nisa.dma_transpose(tile(8, 4), hbm(4, 8), axes=(0, 1)), "are supported"),
    "dma_transpose shape": (lambda: nisa.dma_transpose(tile(8, 5), hbm(4, 8)), r"must be \[8, 4\]"),
    "dma_compute op": (lambda: nisa.dma_compute(hbm(8, 4), [hbm(8, 4), hbm(8, 4)], nl.multiply), "reduce_op must be nl.add"),
    "dma_compute scales": (lambda: nisa.dma_compute(hbm(8, 4), [hbm(8, 4), hbm(8, 4)], nl.add, [1.0, 2.0]),
                           "scales must be 1.0"),
    "quantize type": (lambda: nisa.quantize_mx(tile(32, 2, dtype=nl.uint32), tile(32, 8, dtype=nl.bfloat16),
                                               tile(4, 2, dtype=nl.uint8)), "packed type"),
    "quantize rows": (lambda: nisa.quantize_mx(tile(16, 2, dtype=nl.float8_e5m2_x4), tile(16, 8, dtype=nl.bfloat16),
                                               tile(4, 2, dtype=nl.uint8)), "32, 64, 96 or 128 partitions"),
    "sendrecv alone": (lambda: nisa.sendrecv(tile(8, 4), tile(8, 4), 1, 1, 0), "a launch of 2 cores"),
    "pools": (lambda: nisa.activate2(tile(8, 4), nl.exp, tile(8, 4), 1.0, 1.0, nl.add, nl.add), "none of"),
    "load of a tile": (lambda: nl.load(tile(8, 4)), "not in HBM"),
    "load too many rows": (lambda: nl.load(hbm(256, 4)), "load src partition dimension 256 exceeds maximum 128"),
    "shapes": (lambda: nl.add(tile(8, 4), tile(8, 5)), "tiles of one shape"),
    "an empty tensor": (lambda: nl.ndarray((8, 0), nl.float32), "empty dimension"),
}


@pytest.mark.parametrize("name", CASES)
def test_instructions_refuse(name, on):
    body, text = CASES[name]

    def kernel(x):
        body()
    with pytest.raises(nisa.NkiValidationError, match=text) as caught:
        run(on, kernel, np.zeros((2, 2), np.float32))
    assert isinstance(caught.value, AssertionError) and caught.value.at is not None
    assert "test_validation.py" in str(caught.value)


GATED = {
    "activate2": lambda: nisa.activate2(tile(8, 4), nl.exp, tile(8, 4), 1.0, 0.0, nl.multiply, nl.add),
    "exponential": lambda: nisa.exponential(tile(8, 4), tile(8, 4)),
    "rand2": lambda: nisa.rand2(tile(8, 4), 0.0, 1.0),
    "abs_max": lambda: nl.abs_max(tile(8, 4), 1.0),
    "priority": lambda: nisa.dma_copy(tile(8, 4), hbm(8, 4), priority=1),
    "float8_e4m3fn": lambda: nisa.nc_matmul(psum(8, 4), tile(16, 8, dtype=nl.float8_e4m3fn),
                                            tile(16, 4, dtype=nl.float8_e4m3fn)),
}


@pytest.mark.parametrize("name", GATED)
def test_older_targets_refuse_what_came_later(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(AssertionError, match="needs generation 4 of the core, and trn2 is generation 3"):
        nki.simulate(lambda x: GATED[name]() and None)(np.zeros((2, 2), np.float32))


def test_wide_matmuls_are_of_the_newest_target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(AssertionError, match="600 columns, more than 512 on trn2"):
        nki.simulate(lambda x: nisa.nc_matmul(psum(8, 600), tile(16, 8), tile(16, 600)) and None)(np.zeros((2, 2),
                                                                                                           np.float32))


def test_calls_that_no_signature_takes():
    for use, text in ((lambda: nisa.tensor_tensor(tile(8, 4), tile(8, 4)), "missing a required argument: 'data2'"),
                      (lambda: nl.exp(tile(8, 4), of=1), "unexpected keyword argument 'of'")):
        with pytest.raises(TypeError, match=text) as caught:
            nki.simulate(lambda x, use=use: use() and None)(np.zeros((2, 2), np.float32))
        assert "fix: call it as" in str(caught.value) and caught.value.at.file == __file__


def test_errors_point_into_the_kernel(on):
    def wide(x):
        nisa.nc_matmul(psum(256, 4), tile(8, 4), tile(8, 4))

    def spread(x):
        nisa.dma_copy(tile(256, 4), hbm(256, 4))

    def number(x):
        int(nl.load(x))
    for kernel, text in ((wide, "nc_matmul dst partition dimension 256 exceeds maximum 128"),
                         (spread, "dma_copy dst partition dimension 256 exceeds maximum 128"),
                         (number, "a tensor is not a Python number")):
        with pytest.raises((AssertionError, TypeError), match=text) as caught:
            run(on, kernel, np.zeros((2, 2), np.float32))
        assert caught.value.at.line == kernel.__code__.co_firstlineno + 1
    with pytest.raises((TypeError, SyntaxError), match="missing a required argument") as caught:
        run(on, lambda x, y: None, np.zeros((2, 2), np.float32))
    assert "running.py" in str(caught.value)


def test_a_kernel_without_a_result_is_named(on):
    def kernel(x):
        nl.load(x)
    with pytest.warns(NkiWarning, match="the kernel returns no tensor and writes none of its parameters") as caught:
        assert run(on, kernel, np.zeros((2, 2), np.float32)) is None
    assert any(w.lineno == kernel.__code__.co_firstlineno for w in caught)


def test_a_tensor_that_is_written_and_not_returned_is_named(on):
    def kernel(x):
        copied = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(copied, nl.load(x))
    with pytest.warns(NkiWarning, match="parameters: it writes copied, and ends without `return copied`"):
        assert run(on, kernel, np.zeros((2, 2), np.float32)) is None


def test_lengths_and_indices_are_integers():
    for use in (lambda: tile(128, 512 / 4), lambda: tile(8, 4)[:, 0:8 / 2], lambda: tile(8, 4)[:, nl.ds(0, 8 / 2)],
                lambda: tile(8, 4).ap([[4, 8], [1, 8 / 2]])):
        with pytest.raises(TypeError, match="expecting 'integer', got") as caught:
            nki.simulate(lambda x, use=use: use() and None)(np.zeros((2, 2), np.float32))
        assert "divide with //" in str(caught.value) and caught.value.at.file == __file__


def test_values_are_named_as_they_are_written():
    for use, text in ((lambda: nisa.tensor_tensor(tile(8, 4), tile(8, 4), tile(8, 4), nl.softmax), "op: softmax is not"),
                      (lambda: nisa.tensor_copy(tile(8, 4), tile(8, 4), engine="vectors"), "nisa.engine.vector"),
                      (lambda: nisa.iota(tile(8, 4), [1, 4]), r"\[step, count\] pairs, got \[1, 4\]")):
        with pytest.raises(AssertionError, match=text):
            nki.simulate(lambda x, use=use: use() and None)(np.zeros((2, 2), np.float32))


def test_names_that_are_meant():
    def missing(x):
        assert getattr(nl.load(x), "T", None) is None and not hasattr(nl.load(x), "assert_shape")
        return nl.load(x).T
    with pytest.raises(AttributeError, match=r"(?s)'T'.*fix: transpose tiles with nisa\.nc_transpose"):
        nki.simulate(missing)(np.zeros((2, 2), np.float32))
    for use, text in ((lambda: nl.loop_reduce, "keep a tile"), (lambda: nl.expp, "did you mean exp?"),
                      (lambda: nisa.tensor_tensr, "did you mean tensor_tensor"), (lambda: nki.benchmarks, "did you mean benchmark")):
        with pytest.raises(AttributeError, match=text):
            use()


def test_keywords_of_the_beta_generation_are_unexpected():
    for use in (lambda: nisa.tensor_copy(tile(8, 4), tile(8, 4), mask=None),
                lambda: nisa.dma_copy(tile(8, 4), hbm(8, 4), mask=1)):
        with pytest.raises(TypeError, match="unexpected keyword argument 'mask'"):
            nki.simulate(lambda x, use=use: use() and None)(np.zeros((2, 2), np.float32))


def test_older_call_forms_are_accepted(on):
    def kernel(x):
        out = nl.ndarray((4, 4), nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        nisa.dma_copy(out, t, dst_rmw_op=None)
        nisa.dma_compute(out, [out, t], [1.0, 1.0], nl.add)
        nisa.dma_copy(t, out, nisa.oob_mode.error, nisa.dge_mode.unknown)
        nisa.dma_copy(out, t, dst_rmw_op=nl.add)
        return out
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(run(on, kernel, x), 4 * x)


def test_functions_need_a_kernel():
    with pytest.raises(Exception, match="was called outside of a kernel"):
        nl.ndarray((2, 2), nl.float32)
    with pytest.raises(AssertionError, match="outside of a kernel"):
        nl.program_id()


def test_unsupported_dtypes():
    with pytest.raises(TypeError, match="unsupported dtype 'float64'"):
        nki.simulate(lambda x: nl.ndarray((2, 2), "float64"))(np.zeros((2, 2), np.float32))
    with pytest.raises(TypeError, match="dtype float64 is passed to a kernel"):
        nki.simulate(lambda x: x)(np.zeros((2, 2)))
    nki.simulate(lambda x: nl.ndarray((2, 2), np.float16) and nl.ndarray((2, 2), ml_dtypes.bfloat16) and None)(
        np.zeros((2, 2), np.float32))


FIRST = "; the first product of a sum has accumulate=False"
SUMS = {        # what is in PSUM before, the columns and accumulate= of the product, the warning
    "nothing": (lambda p, t: None, 8, True, f"nc_matmul accumulates onto PSUM that nothing has written{FIRST}"),
    "another instruction": (
        lambda p, t: nisa.tensor_copy(p, t), 8, True,
        f"nc_matmul accumulates onto PSUM that an instruction other than a product has written{FIRST}"),
    "zeros": (
        lambda p, t: nisa.memset(p, 0), 8, True,
        f"nc_matmul accumulates onto PSUM that an instruction other than a product has written{FIRST}"),
    "another instruction, implicitly": (
        lambda p, t: nisa.tensor_copy(p, t), 8, None,
        f"nc_matmul adds to PSUM that an instruction other than a product has written, which trn2 does not define{FIRST}"),
    "overlap": (
        lambda p, t: nisa.nc_matmul(p[:, 0:6], t, t[:, 0:6]), 8, True,
        "nc_matmul accumulates onto 48 of the 64 elements of its destination, and nothing has written the others: the "
        "hardware computes wrong sums for regions that overlap in part; give all products of a sum the same region"),
    "overlap, implicitly": (
        lambda p, t: nisa.nc_matmul(p[:, 0:2], t, t[:, 0:2]), 4, None,
        "nc_matmul accumulates onto 16 of the 32 elements of its destination, and nothing has written the others: the "
        "hardware computes wrong sums for regions that overlap in part; give all products of a sum the same region"),
    "zeros, implicitly": (lambda p, t: nisa.memset(p, 0), 8, None, ""),
    "a part": (lambda p, t: nisa.nc_matmul(p, t, t), 4, True, ""),
    "a product": (lambda p, t: nisa.nc_matmul(p, t, t, accumulate=False), 8, True, ""),
    "apart": (lambda p, t: nisa.nc_matmul(p[:, 4:8], t, t[:, 4:8]), 4, None, ""),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_that_the_hardware_computes_wrong_warn(on, name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    before, columns, accumulate, text = SUMS[name]

    def kernel(x):
        out, t, product = nl.ndarray((8, columns), x.dtype, buffer=nl.shared_hbm), nl.load(x), psum(8, 8)
        before(product, t)
        nisa.nc_matmul(product[:, 0:columns], t, t[:, 0:columns], accumulate=accumulate)        # here
        nl.store(out, nl.copy(product[:, 0:columns]))
        return out
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        run(on, kernel, np.eye(8, dtype=np.float32))
    sums = [w for w in shown if "nc_matmul" in str(w.message)]
    assert {str(w.message) for w in sums} == ({text} if text else set())
    lines = Path(__file__).read_text().splitlines()
    assert all(w.filename == __file__ and lines[w.lineno - 1].endswith("# here") for w in sums)


def test_reading_what_nobody_wrote_warns():
    def kernel(x):
        out, u = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), tile(2, 2)
        t = tile(2, 2)
        nisa.memset(u[:, 0:1], 1.0)                     # a part is written: no warning
        nisa.tensor_tensor(u, u, t, nl.add)
        nl.store(out, u)
        return out
    with pytest.warns(UserWarning, match=r"element \[0, 0\] of t, allocated at line \d+, is read before it is written"):
        run("interpreter", kernel, np.zeros((2, 2), np.float32))


def test_an_instruction_in_place_on_what_nobody_wrote_warns():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = tile(2, 2)
        nisa.tensor_scalar(t, t, nl.add, 2.0)           # follows the tile at once, and writes all of it
        nl.store(out, t)
        return out
    with pytest.warns(UserWarning, match=r"element \[0, 0\] of t, allocated at line \d+, is read before it is written"):
        got = run("interpreter", kernel, np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(got, np.full((2, 2), 2.0))


def test_a_second_sum_on_the_first_warns(on):
    def kernel(x, fresh):
        out, p = nl.ndarray((2, 4, 4), x.dtype, buffer=nl.shared_hbm), psum(4, 4)
        t = nl.load(x)
        for i in range(2):
            nisa.nc_matmul(p, t, t, accumulate=False if fresh else None)
            nisa.nc_matmul(p, t, t)
            nisa.dma_copy(out[i], nl.copy(p))
        return out
    x = np.eye(4, dtype=np.float32)
    with pytest.warns(UserWarning, match="was read after its last product"):
        np.testing.assert_array_equal(run(on, kernel, x, False), [2 * x, 4 * x])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(run(on, kernel, x, True), [2 * x, 2 * x])
