# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Forms that public kernels under ``import nki`` use and no signature of their release lists, each with its values."""

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.capture.index import arange
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.current import compiler, nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.errors import NkiTypeError, NkiValidationError

from .running import check, floats, numbers, on_tiles, run

X, Y = floats(16, 8), floats(16, 8, seed=1)
ROW = floats(16, 1, seed=2)
BF16 = ml_dtypes.bfloat16


def tile(like=X, dtype=None, buffer=nl.sbuf):
    return nl.ndarray(like.shape, dtype or like.dtype, buffer=buffer)


def through_hbm(call):
    """Return a body that calls with a tensor in HBM as its source and a tile of ones as its destination."""
    def body(dst, source):
        copied = nl.ndarray(source.shape, source.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(copied, source)
        nisa.memset(dst, 1.0)
        call(dst, copied)
    return body


# -- calls in the beta generation's form: a new tile is returned -------------------------------------------------------
RETURNED = {
    "nc_transpose": (lambda x, y, r: nisa.nc_transpose(x), X.T),
    "nc_transpose of a region": (lambda x, y, r: nisa.nc_transpose(data=x, engine="vector"), X.T),
    "activation by name": (lambda x, y, r: nisa.activation(op=nl.copy, data=x, scale=2.0), X * 2),
    "activation by place": (lambda x, y, r: nisa.activation(np.copy if False else nl.relu, x), np.maximum(X, 0)),
    "activation with a bias": (lambda x, y, r: nisa.activation(nl.copy, x, bias=r), X + ROW),
    "tensor_tensor": (lambda x, y, r: nisa.tensor_tensor(x, y, op=nl.add), X + Y),
    "tensor_tensor by place": (lambda x, y, r: nisa.tensor_tensor(x, y, np.subtract), X - Y),
    "tensor_tensor with a dtype": (lambda x, y, r: nisa.tensor_tensor(x, y, nl.multiply, dtype=nl.float32), X * Y),
    "tensor_tensor_scan": (lambda x, y, r: nisa.tensor_tensor_scan(x, y, initial=0.0, op0=np.multiply, op1=np.add), None),
    "reciprocal": (lambda x, y, r: nisa.reciprocal(x), 1 / X),
    "tensor_scalar": (lambda x, y, r: nisa.tensor_scalar(x, np.multiply, 3.0), X * 3),
    "tensor_scalar of two": (lambda x, y, r: nisa.tensor_scalar(x, nl.multiply, 3.0, op1=nl.add, operand1=r), X * 3 + ROW),
    "tensor_scalar by place": (lambda x, y, r: nisa.tensor_scalar(x, nl.subtract, 3.0, True), 3 - X),
    "tensor_copy": (lambda x, y, r: nisa.tensor_copy(x, dtype=nl.float32), X),
    "tensor_reduce": (lambda x, y, r: nisa.tensor_reduce(nl.maximum, x, axis=[1]), X.max(1, keepdims=True)),
    "memset": (lambda x, y, r: nisa.memset((16, 8), 3, nl.float32), np.full((16, 8), 3, np.float32)),
    "iota": (lambda x, y, r: nisa.iota(arange(16)[:, None] * 8 + arange(8)[None, :], nl.int32),
             np.arange(128, dtype=np.int32).reshape(16, 8)),
    "tensor_copy in rows": (lambda x, y, r: nl.copy(x, dtype=nl.bfloat16, mask=True), X.astype(BF16)),
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_call_without_a_destination_returns_a_tile(on, name):
    body, expected = RETURNED[name]
    if expected is None:
        expected, state = np.empty_like(X), np.zeros(16, np.float32)
        for k in range(8):
            expected[:, k] = state = X[:, k] * state + Y[:, k]

    def call(dst, *tiles):
        result = body(*tiles)
        assert isinstance(result, nl.NkiTensor) and result.buffer in (nl.sbuf, nl.psum)
        nisa.tensor_copy(dst, result)
    check(on, call, expected, X, Y, ROW, rtol=1e-6, atol=1e-6)


def test_products_and_large_transposes_are_in_psum(on):
    a, b = floats(64, 48), floats(64, 40, seed=3)

    def body(product, turned, x, y):
        multiplied, other = nisa.nc_matmul(x, y), nisa.nc_transpose(x)
        assert multiplied.buffer is nl.psum and multiplied.dtype == nl.float32 and other.buffer is nl.psum
        nisa.tensor_copy(product, multiplied)
        nisa.tensor_copy(turned, other)
    product, turned = on_tiles(on, body, [((48, 40), nl.float32), ((48, 64), nl.float32)], a, b)
    np.testing.assert_allclose(product, a.T @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(turned, a.T)


def test_masks_of_loads_stores_and_copies(on):
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        rows = arange(16)[:, None]
        loaded = nl.load(x, mask=rows < 12)
        copied = nl.copy(loaded, mask=(rows < 10) & (arange(8)[None, :] < 6), dtype=nl.float32)
        nl.store(out, nl.multiply(x=loaded, y=1.0))
        nl.store(out, value=copied, mask=(rows < 10) & (arange(8)[None, :] < 6))
        return out
    got = run(on, kernel, X)
    np.testing.assert_array_equal(got[:12], X[:12])


def test_a_beta_form_into_an_indirect_place_is_refused():
    def body(dst, source):
        memory = nl.ndarray((16, 8), nl.float32, buffer=nl.private_hbm)
        start = nl.zeros((1, 1), nl.int32)
        nl.store(memory.ap([[8, 4], [1, 8]], scalar_offset=start), source, mask=True)
    with pytest.raises(NkiValidationError, match="has no run-time addresses"):
        on_tiles("eager", body, [((16, 8), nl.float32)], X)


# -- keywords ----------------------------------------------------------------------------------------------------------
def test_tensor_copy_with_a_dtype_rounds_to_it_first(on):
    check(on, lambda d, x: nisa.tensor_copy(dst=d, src=x, dtype=nl.bfloat16), X.astype(BF16).astype(np.float32), X)
    check(on, lambda d, x: nisa.tensor_copy(dst=d, src=x, dtype=nl.float32), X, X)
    check(on, lambda d, x, y: nisa.scalar_tensor_tensor(d, x, nl.multiply, 2.0, nl.add, y, dtype=nl.bfloat16),
          (X * 2 + Y).astype(BF16).astype(np.float32), X, Y)


@pytest.mark.parametrize("operator, function", [(nl.add, np.add), (np.add, np.add), ("add", np.add),
                                                (nl.maximum, np.maximum), (np.multiply, np.multiply)])
def test_dma_copy_onto_what_is_there(on, operator, function):
    check(on, through_hbm(lambda d, x: nisa.dma_copy(d, x, dst_rmw_op=operator, unique_indices=False)),
          function(np.ones_like(X), X), X)
    check(on, through_hbm(lambda d, x: nisa.dma_copy(d, x, operator)), function(np.ones_like(X), X), X)
    check(on, through_hbm(lambda d, x: nisa.dma_copy(d, x, dst_rmw_op=None, unique_indices=True)), X, X)


def test_dma_copy_onto_hbm(on):
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.full((16, 8), 2, nl.float32))
        nisa.dma_copy(dst=out, src=nl.load(x), dst_rmw_op=nl.add)
        return out
    np.testing.assert_array_equal(run(on, kernel, X), X + 2)


@pytest.mark.parametrize("options", [{"lazy_initialization": True}, {"name": None}, {"buffer": None}, {"buffer": "sbuf"}])
def test_tensors(on, options):
    def body(dst, x):
        zeros = nl.zeros([16, np.int64(8)], **options)
        assert zeros.dtype == nl.float32 == "float32" and str(zeros.dtype) == "float32" and zeros.shape == (16, 8)
        other = nl.ndarray((16, 8), **{k: v for k, v in options.items()})
        nisa.tensor_tensor(other, zeros, x, nl.add, name=None)
        nisa.tensor_copy(dst, other, name=None)
    check(on, body, X, X)


def test_addresses_and_names(on):
    def body(dst, x):
        at = nl.ndarray((16, 8), nl.float32, nl.sbuf, "at", address=(0, 1024))
        nisa.tensor_copy(at, x, "vector", "first")
        nisa.tensor_copy(dst, at, nisa.engine.unknown, None)
    check(on, body, X, X)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_ranges(on, count):
    bounds = (2, 8, 3)[:count]

    def body(dst, x):
        nisa.memset(dst, 0)
        for loop in (nl.affine_range, nl.sequential_range, nl.static_range):
            for i in loop(*bounds):
                nisa.tensor_tensor(dst[:, i:i + 1], dst[:, i:i + 1], x[:, i:i + 1], nl.add)
        for _ in nl.affine_range(2, precise_schedule=True):
            pass
        for _ in nl.sequential_range(2, directives=None):
            pass
    expected = np.zeros_like(X)
    for i in range(*bounds):
        expected[:, i] = X[:, i] * 3
    check(on, body, expected, X, rtol=1e-6)


# -- what newer releases refuse keeps its meaning ----------------------------------------------------------------------
def test_transfers_from_psum(on):
    def kernel(x):
        out, stored = (nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm) for _ in range(2))
        tile, other = nl.ndarray((16, 8), nl.float32, buffer=nl.psum), nl.ndarray((16, 8), nl.float32)
        nisa.tensor_copy(tile, nl.load(x))
        nisa.dma_copy(out, tile)
        nisa.dma_copy(other, tile)
        nl.store(stored, nl.rsqrt(tile))
        nisa.dma_copy(out, other)
        return out, stored
    x = np.abs(X) + 1
    copied, stored = run(on, kernel, x)
    np.testing.assert_array_equal(copied, x)
    np.testing.assert_allclose(stored, 1 / np.sqrt(x), rtol=1e-6)


def test_transposes_to_fewer_dimensions(on):
    x = numbers(5, 1, 8)

    def kernel(x):
        out, tile = nl.ndarray((8, 5), nl.float32, buffer=nl.shared_hbm), nl.ndarray((8, 5), nl.float32)
        nisa.dma_transpose(tile, x, (2, 1, 0))
        nisa.dma_copy(out, tile)
        return out
    np.testing.assert_array_equal(run(on, kernel, x), x[:, 0].T)


# -- values of parameters ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", [0, 1, 3, np.int32(3), "none", "swdge", None, nisa.dge_mode.none, beta_isa.dge_mode.none])
def test_who_makes_descriptors(on, mode):
    check(on, through_hbm(lambda d, x: nisa.dma_copy(d, x, dge_mode=mode, oob_mode=0)), X, X)


def test_numbers_of_dge_mode_are_those_of_the_package():
    take = nisa.dma_copy.record.kind("dge_mode").make(nisa.dma_copy.record.generation.values)
    assert [take(n) for n in range(4)] == [nisa.dge_mode.unknown, nisa.dge_mode.swdge, nisa.dge_mode.hwdge,
                                           nisa.dge_mode.none]
    take = beta_isa.dma_copy.record.kind("dge_mode").make(beta_isa.dma_copy.record.generation.values)
    assert [take(n) for n in range(4)] == [beta_isa.dge_mode.none, beta_isa.dge_mode.swdge, beta_isa.dge_mode.hwdge,
                                           beta_isa.dge_mode.unknown]
    assert take(nisa.dge_mode.none) is beta_isa.dge_mode.none


def test_what_depends_on_the_number_of_dge_mode():
    """0 leaves the choice, 3 has no run-time addresses: exchanged, both would be wrong."""
    def gathered(mode):
        def body(dst, x, rows):
            memory = nl.ndarray((16, 8), nl.float32, buffer=nl.private_hbm)
            nisa.dma_copy(memory, x)
            nisa.dma_copy(dst, memory.ap([[8, 4], [1, 8]], vector_offset=rows), dge_mode=mode)
        return on_tiles("eager", body, [((4, 8), nl.float32)], X, np.array([[3], [0], [9], [1]], np.int32))[0]
    np.testing.assert_array_equal(gathered(0), X[[3, 0, 9, 1]])
    with pytest.raises(NkiValidationError, match="dge_mode none has no run-time addresses"):
        gathered(3)


@pytest.mark.parametrize("engine", [0, 5, "vector", "vector_engine", None, nisa.vector_engine, beta_isa.engine.vector])
def test_engines(on, engine):
    check(on, lambda d, x: nisa.tensor_copy(d, x, engine=engine), X, X)


@pytest.mark.parametrize("command", [3, "reset_reduce", nisa.reduce_cmd.reset_reduce])
def test_reduce_commands(on, command):
    rows, = on_tiles(on, lambda r, x: nisa.activation(tile(), nl.copy, x, reduce_op=nl.add, reduce_res=r,
                                                      reduce_cmd=command), [((16, 1), nl.float32)], X)
    np.testing.assert_allclose(rows, X.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [nl.bfloat16, "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_dtypes(on, dtype):
    def body(dst, x):
        result = nl.ndarray((16, 8), dtype)
        assert result.dtype == nl.bfloat16 == dtype and result.dtype == "bfloat16" and str(result.dtype) == "bfloat16"
        nisa.tensor_copy(result, x)
        nisa.tensor_copy(dst, result)
    check(on, body, X.astype(BF16).astype(np.float32), X)


def test_dtypes_of_frameworks(on):
    torch = pytest.importorskip("torch")
    check(on, lambda d, x: nisa.tensor_copy(d, nl.copy(x, dtype=torch.bfloat16)), X.astype(BF16).astype(np.float32), X)
    jnp = pytest.importorskip("jax.numpy")
    check(on, lambda d, x: nisa.tensor_copy(d, nl.copy(x, dtype=jnp.bfloat16)), X.astype(BF16).astype(np.float32), X)


def test_regions_are_equal_to_their_names(on):
    def body(dst, x):
        other = nl.ndarray((16, 8), nl.float32, buffer="psum")
        assert other.buffer == nl.psum == "psum" and other.buffer is nl.psum and x.buffer != "psum"
        assert x.buffer in ("sbuf", nl.psum) and x.buffer in [nl.sbuf] and nl.hbm == "private_hbm" == nl.private_hbm
        assert nl.is_sbuf("sbuf") and nl.is_hbm("hbm") and nl.is_hbm(nl.shared_hbm) and not nl.is_on_chip("shared_hbm")
        assert {nl.sbuf: 1}["sbuf"] == 1 and nl.sbuf != 3
        nisa.tensor_copy(other, x)
        nisa.tensor_copy(dst, other)
    check(on, body, X, X)


@pytest.mark.parametrize("options", [
    {"op1": None, "operand1": None}, {"engine": None}, {"name": None}, {"reverse0": np.bool_(False), "reverse1": 0}])
def test_none_is_what_was_not_given(on, options):
    check(on, lambda d, x: nisa.tensor_scalar(d, x, nl.multiply, np.float32(2), **options), X * 2, X)


@pytest.mark.parametrize("scalar", [2, 2.0, True, np.float32(0.5), np.int64(3), ml_dtypes.bfloat16(1.5), np.array(4.0), 7 / 2])
def test_scalars(on, scalar):
    value = np.float32(scalar)
    check(on, lambda d, x: nisa.tensor_scalar(d, x, nl.multiply, scalar), X * value, X)
    check(on, lambda d, x: nisa.activation(d, nl.copy, x, scale=scalar, bias=None, reduce_op=None), X * value, X)
    check(on, lambda d, x: nisa.memset(d, scalar), np.full_like(X, value), X)


@pytest.mark.parametrize("value", [-np.inf, np.nan, 3, np.float32(2.5), nl.float32 and -3.4e38])
def test_fills(on, value):
    check(on, lambda d: nisa.memset(d, value), np.full((4, 8), value, np.float32))
    check(on, lambda d: nisa.tensor_copy(d, nl.full((4, 8), value, np.float32)), np.full((4, 8), value, np.float32))


def test_integral_floats_fill_integers(on):
    check(on, lambda d: nisa.memset(d, np.float32(7)), np.full((4, 8), 7, np.int32))


@pytest.mark.parametrize("axis", [1, -1, [1], (1,), (-1,), [1, 2], (2, 1), np.int64(1)])
def test_axes(on, axis):
    x = numbers(4, 3, 5)
    axes = tuple(np.atleast_1d(axis) % 3)
    if axes == (1,):
        x = x.reshape(4, 15)
    expected = x.sum(tuple(a for a in axes), keepdims=True).reshape(4, -1)
    if axes == (2,):
        expected = x.sum(2)
    check(on, lambda d, t: nisa.tensor_reduce(d, nl.add, t, axis), expected.astype(np.float32), x)


@pytest.mark.parametrize("cores", [(0, 1), [0, 1], (1, 0), range(2)])
def test_barriers(on, cores):
    def kernel(x):
        out, shared = (nl.ndarray((2, 16, 8), x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        core, loaded = nl.program_id(0), nl.load(x)
        nisa.dma_copy(shared[core], loaded)
        nisa.core_barrier(shared, cores)
        for one in (0, (0,), [1]):
            nisa.core_barrier(shared, one)
        nisa.core_barrier(loaded, cores)
        nisa.dma_copy(loaded, shared[1 - core])
        nisa.dma_copy(out[core], loaded)
        return out, shared
    got, _ = run(on, kernel, X, cores=2)
    np.testing.assert_array_equal(got, np.stack([X, X]))


def test_axes_beyond_the_launch(on):
    def kernel(x):
        out, sizes = nl.ndarray((1, 6), nl.int32, buffer=nl.shared_hbm), nl.ndarray((1, 6), nl.int32)
        values = (nl.program_id(1), nl.program_id(axis=2), nl.num_programs(1), nl.num_programs(axes=(0, 1)),
                  nl.num_programs(None), nl.program_ndim())
        for k, value in enumerate(values):
            nisa.memset(sizes[:, k:k + 1], value)
        nisa.dma_copy(out, sizes)
        return out
    assert run(on, kernel, X).tolist() == [[0, 0, 1, 1, 1, 0]]
    assert run(on, kernel, X, cores=2).tolist() == [[0, 0, 1, 2, 2, 1]]
    assert nl.program_ndim() == 0                               # outside of a kernel


@pytest.mark.parametrize("mark", [
    compiler.enable_stack_allocator, compiler.enable_stack_allocator(log_level=10), compiler.force_auto_alloc,
    compiler.skip_middle_end_transformations])
def test_directives_of_the_compiler(on, mark):
    @mark
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.load(x))
        return out
    np.testing.assert_array_equal(run(on, kernel, X), X)


# -- what no release had -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call, text", [
    (lambda d, x: nl.max(x, 1, keepdim=True), r"did you mean keepdims=\?"),
    (lambda d, x: nl.matmul(x, x, transpose_b=True), r"did you mean transpose_x=\?"),
    (lambda d, x: nisa.activation(d, nl.exp, x, scales=1.0), r"did you mean scale=\?"),
    (lambda d, x: nisa.tensor_copy(d, x, mask=None), "'mask' is a parameter of the releases 2.21 to 2.26.1"),
    (lambda d, x: nisa.tensor_tensor(d, x), "missing a required argument: 'data2'")])
def test_forms_that_no_release_had(call, text):
    with pytest.raises(NkiTypeError, match=text) as caught:
        on_tiles("eager", call, [((16, 8), nl.float32)], X)
    assert caught.value.at.file == __file__ and "fix: call it as" in str(caught.value)
