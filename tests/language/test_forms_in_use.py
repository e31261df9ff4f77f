# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms that public kernels under ``neuronxcc.nki`` use and no signature of their release lists, each with its values."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.calls import BadCall, OlderFormWarning
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.functions import BadGridAxis

from .running import check, floats, kernel_of, output_of, run

X, Y, ROW = floats(16, 8), floats(16, 8, seed=1), floats(16, 1, seed=2)
BF16 = ml_dtypes.bfloat16


def into(call, like=(16, 8), dtype=np.float32, buffer=None):
    """What a destination holds after a call with it."""
    def body(*tiles):
        dst = nl.zeros(like, dtype, buffer=buffer)
        call(dst, *tiles)
        return dst
    return kernel_of(body)


CUMULATIVE = np.empty_like(X)
for _k in range(8):
    CUMULATIVE[:, _k] = X[:, _k] * 2 + (CUMULATIVE[:, _k - 1] if _k else 0)
COUNTS = np.arange(16)[:, None] * 3 + np.arange(8)[None, :] * 2 + 1
DESTINATIONS = {
    "tensor_scalar_cumulative": (lambda d, x, y: nisa.tensor_scalar_cumulative(
        d, x, np.multiply, np.add, 2.0, None, nisa.reduce_cmd.reset_reduce), CUMULATIVE),
    "tensor_scalar_cumulative by name": (lambda d, x, y: nisa.tensor_scalar_cumulative(
        dst=d, src=x, op0=np.multiply, op1=np.add, imm0=2.0), CUMULATIVE),
    "tensor_copy": (lambda d, x, y: nisa.tensor_copy(dst=d, src=x, name="copy"), X),
    "tensor_copy by place": (lambda d, x, y: nisa.tensor_copy(d, x), X),
    "tensor_tensor": (lambda d, x, y: nisa.tensor_tensor(dst=d, data1=x, data2=y, op=nl.add), X + Y),
    "tensor_tensor by place": (lambda d, x, y: nisa.tensor_tensor(d, x, y, nl.add), X + Y),
    "activation": (lambda d, x, y: nisa.activation(dst=d, op=nl.copy, data=x, scale=3.0), X * 3),
    "activation by place": (lambda d, x, y: nisa.activation(d, nl.copy, x), X),
    "tensor_scalar": (lambda d, x, y: nisa.tensor_scalar(d, x, nl.multiply, 2.0), X * 2),
    "reciprocal": (lambda d, x, y: nisa.reciprocal(d, x), 1 / X),
    "memset": (lambda d, x, y: nisa.memset(d, 3.0), np.full((16, 8), 3, np.float32)),
    "affine_select": (lambda d, x, y: nisa.affine_select(
        d, pattern=[[-1, 8]], channel_multiplier=1, on_true_tile=x, on_false_value=-1.0, cmp_op=nl.greater_equal),
        np.where(np.arange(16)[:, None] >= np.arange(8), X, np.float32(-1))),
    "tensor_copy_predicated": (lambda d, x, y: nisa.tensor_copy_predicated(
        d, x, nl.ones((16, 8), np.uint8)), X),
    "scalar_tensor_tensor": (lambda d, x, y: nisa.scalar_tensor_tensor(d, x, nl.multiply, 2.0, nl.add, y), X * 2 + Y),
    "nl.copy in rows": (lambda d, x, y: nisa.dma_copy(dst=d, src=x, mask=None, name="label"), X),
}


@pytest.mark.parametrize("name", DESTINATIONS)
def test_a_call_with_a_destination(on, name):
    call, expected = DESTINATIONS[name]
    check(on, into(call), expected.astype(np.float32), X, Y, rtol=1e-6, atol=1e-6)


def test_iota_and_products_with_a_destination(on):
    check(on, into(lambda d: nisa.iota(d, [[2, 8]], 1, 3), dtype=np.int32), COUNTS.astype(np.int32))
    a, b = floats(32, 16), floats(32, 8, seed=1)

    def body(x, y):
        dst = nl.zeros((16, 8), np.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, x, y, accumulate=False)
        return nl.copy(dst)
    check(on, kernel_of(body), a.T @ b, a, b, rtol=1e-5, atol=1e-5)
    with pytest.raises(BadCall, match=r"nc_matmul\(\) with dst needs accumulate=False here"):
        run(on, into(lambda d, x, y: nisa.nc_matmul(d, x, y), (32, 8)), a, b)


def test_transfers_with_a_destination(on):
    @nki.jit
    def kernel(x):
        tile, turned = nl.zeros((16, 8), np.float32), nl.zeros((8, 16), np.float32)
        nisa.dma_copy(dst=tile, src=x, dge_mode=0, oob_mode=0, name="a")
        nisa.dma_transpose(dst=turned, src=x, name="b")
        return output_of(tile), output_of(turned)
    check(on, kernel, (X, X.T.copy()), X)


# -- positions of the first release ------------------------------------------------------------------------------------
FIRST = {
    "activation": (lambda x, y, r: nisa.activation(nl.copy, x, r, 2.0), X * 2 + ROW),
    "sum": (lambda x, y, r: nl.sum(x, 1, None, None, True), X.sum(1, keepdims=True, dtype=np.float32)),
    "copy": (lambda x, y, r: nl.copy(x, None, nl.bfloat16), X.astype(BF16)),
    "add": (lambda x, y, r: nl.add(x, y, nl.bfloat16), (X + Y).astype(BF16)),
    "tensor_tensor": (lambda x, y, r: nisa.tensor_tensor(x, y, np.add, nl.bfloat16), (X + Y).astype(BF16)),
    "zeros": (lambda x, y, r: nl.zeros((16, 8), np.int32, nl.sbuf, "label"), np.zeros((16, 8), np.int32)),
    "reciprocal with an engine": (lambda x, y, r: nisa.reciprocal(x, engine=0), 1 / X),
    "transpose with an engine": (lambda x, y, r: nisa.nc_transpose(x, None, None, None), X.T.copy()),
    "memset with an engine": (lambda x, y, r: nisa.memset((16, 8), 2, np.float32, engine=0), np.full_like(X, 2)),
}


@pytest.mark.parametrize("name", FIRST)
def test_positions_of_the_first_release(on, name):
    body, expected = FIRST[name]
    check(on, kernel_of(body), expected, X, Y, ROW, rtol=1e-5, atol=1e-5)


def test_two_positions_of_dma_copy_are_source_and_destination(on):
    @nki.jit
    def kernel(x):
        tile = nl.zeros((16, 8), np.float32)
        nisa.dma_copy(x, tile)
        return output_of(tile)
    check(on, kernel, X, X)


# -- keywords and values -----------------------------------------------------------------------------------------------
def test_keywords_without_effect(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray([16, np.int64(8)], buffer=nl.shared_hbm, name=None, lazy_initialization=True)
        total = nl.zeros(shape=(16, 8), lazy_initialization=False, name=None)
        for _ in nl.sequential_range(2, directives=None):
            total += nl.multiply(nl.load(x, name="a"), 1.0, max_free_vec_size=8)
        for _ in nl.affine_range(1, precise_schedule=True):
            nl.store(out, nisa.tensor_copy(total, name="b"))
        return out
    check(on, kernel, X * 2, X)


def test_activation_in_a_buffer(on):
    def body(x):
        activated = nisa.activation(nl.copy, x, scale=2.0, buffer=nl.psum)
        assert activated.buffer == "psum"
        return nl.copy(activated)
    check(on, kernel_of(body), X * 2, X)


@pytest.mark.parametrize("skip", [nisa.oob_mode.skip, 1, "skip", current_isa.oob_mode.skip])
@pytest.mark.parametrize("keyword", ["mode", "oob_mode"])
def test_rows_that_are_not_there_are_skipped(on, skip, keyword):
    places = np.array([[3], [99], [0], [7]], np.int32)

    @nki.jit
    def kernel(table, rows):
        i, f = nl.load(rows), nl.arange(8)[None, :]
        loaded, copied = nl.zeros((4, 8), np.float32), nl.zeros((4, 8), np.float32)
        loaded[...] = nl.load(table[i, f], mode=skip)
        nisa.dma_copy(dst=copied, src=table[i, f], **{keyword: skip})
        out = nl.ndarray((16, 8), np.float32, buffer=nl.shared_hbm)
        nl.store(out, 0)
        nl.store(out[i, f], copied, mode=skip if places[0, 0] == 3 else None)
        return output_of(copied), out
    expected = np.zeros((4, 8), np.float32)
    expected[[0, 2, 3]] = X[[3, 0, 7]]
    scattered = np.zeros_like(X)
    scattered[[3, 0, 7]] = X[[3, 0, 7]]
    check(on, kernel, (expected, scattered), X, places)


def test_numbers_of_enumerations(on):
    assert [nisa.dge_mode(n).name for n in (0, 3)] == ["none", "unknown"]
    check(on, kernel_of(lambda x: nisa.tensor_copy(x, engine=5)), X, X)
    check(on, kernel_of(lambda x: nisa.tensor_copy(x, engine=current_isa.engine.vector)), X, X)
    check(on, kernel_of(lambda x: nisa.activation(nl.copy, x, reduce_op=np.add, reduce_cmd=3)), X, X)


@pytest.mark.parametrize("op", [nl.add, np.add, "add", current_nl.add])
def test_operators(on, op):
    check(on, kernel_of(lambda x, y: nisa.tensor_tensor(x, y, op)), X + Y, X, Y)


@pytest.mark.parametrize("scalar", [2, True, np.float32(0.5), ml_dtypes.bfloat16(1.5), np.array(4.0), 7 / 2])
def test_scalars(on, scalar):
    check(on, kernel_of(lambda x: nisa.tensor_scalar(x, np.multiply, scalar, op1=None, operand1=None)),
          X * np.float32(scalar), X)


@pytest.mark.parametrize("dtype", [nl.bfloat16, "bfloat16", BF16, np.dtype(BF16)])
def test_dtypes(on, dtype):
    def body(x):
        converted = nl.copy(x, dtype=dtype)
        assert converted.dtype == dtype and converted.dtype == nl.bfloat16 and converted.dtype == "bfloat16"
        assert str(converted.dtype) == "bfloat16"
        return converted
    check(on, kernel_of(body), X.astype(BF16), X)


def test_dtypes_of_frameworks(on):
    torch = pytest.importorskip("torch")
    check(on, kernel_of(lambda x: nl.copy(x, dtype=torch.bfloat16)), X.astype(BF16), X)


def test_axes_beyond_the_grid_are_refused(on):
    for call in (lambda: nl.program_id(1), lambda: nl.num_programs(1)):
        with pytest.raises(BadGridAxis, match="a launch grid of 0 dimensions has no axis 1"):
            run(on, kernel_of(lambda x, call=call: nl.multiply(x, call())), X)
    assert nl.program_id.record.newest.text == "(axis)"


def test_other_forms_are_reported_where_asked(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    with pytest.warns(OlderFormWarning, match=r"the form of release 2\.20; the newest is add\(x, y, \*, dtype"):
        run("eager", kernel_of(lambda x, y: nl.add(x, y, nl.float32)), X, Y)
    with pytest.warns(OlderFormWarning, match=r"load\(mode=\) is of another release"):
        run("eager", nki.jit(lambda x: output_of(nl.load(x, mode=nisa.oob_mode.error))), X)


@pytest.mark.parametrize("module, name, text", [
    (nl, "outer_product", "nl.multiply broadcasts"), (nki, "compile", "nki.jit"), (nl, "exq", "did you mean exp"),
    (nisa, "tensor_tensr", "did you mean tensor_tensor")])
def test_names_that_no_release_had(module, name, text):
    with pytest.raises(AttributeError, match=rf"(?s)has no attribute '{name}'.*{text}"):
        getattr(module, name)


def test_bounds_of_loops_by_keyword(on):
    """The form of the releases from 2.27 on, which the beta generation takes, too."""
    @nki.jit
    def kernel(x):
        o = nl.ndarray((5, 8, 4), x.dtype, buffer=nl.shared_hbm)
        for k in nl.static_range(5):
            nl.store(o[k], nl.zeros((8, 4), x.dtype))
        for i in nl.affine_range(start=0, stop=5, step=2):
            nl.store(o[i], nl.load(x) * (i + 1))
        for i in nl.sequential_range(1, stop=2):
            nl.store(o[i], nl.load(x) * 10)
        for i in nl.static_range(3, 4, step=3):
            nl.store(o[i], nl.load(x) * 20)
        return o
    x = floats(8, 4)
    check(on, kernel, np.stack([x, x * 10, x * 3, x * 20, x * 5]), x)
