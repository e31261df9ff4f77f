# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls as older releases wrote them give what calls of today give; what no release has is refused."""

import numpy as np
import pytest

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiTypeError, NkiValidationError, NkiWarning, OlderNkiForm

from .running import check, floats, on_tiles, run

X = floats(4, 8)
ROWS, COLUMNS = np.mgrid[0:4, 0:8]
FIRST, SECOND = floats(64, 64, seed=1), floats(64, 8, seed=2)
BOUNDS = np.full((4, 1), 2, np.float32), np.full((4, 1), 5, np.float32)
IN_RANGE = np.where((COLUMNS >= 2) & (COLUMNS < 5), X, np.float32(-3.4028235e38))


def below(offset=0):
    return np.where(ROWS - COLUMNS + offset >= 0, X, -1).astype(np.float32)


def through_hbm(call):
    """A copy between tensors in HBM and on chip."""
    def body(dst, tile):
        copied = nl.ndarray(tile.shape, tile.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(copied, tile)
        call(dst, copied)
    return body


def onto_ones(call):
    def body(dst, source):
        nisa.memset(dst, 1.0)
        call(dst, source)
    return through_hbm(body)


def rows(call):
    """Rows 2, 5, 8 and 11 of four, onto sevens."""
    def body(dst, source):
        places = nl.ndarray((4, 1), nl.int32)
        nisa.iota(places, [[0, 1]], offset=2, channel_multiplier=3)
        nisa.memset(dst, 7.0)
        call(dst, source.ap([[8, 4], [1, 8]], vector_offset=places))
    return through_hbm(body)


def product(call):
    def body(dst, first, second):
        psum = nl.ndarray((64, 8), nl.float32, buffer=nl.psum)
        call(psum, first, second)
        nisa.tensor_copy(dst, psum)
    return body


GREATER_EQUAL, KEPT = nl.greater_equal, [[-1, 8]]
ERROR, SKIP, SWDGE, HWDGE = nisa.oob_mode.error, nisa.oob_mode.skip, nisa.dge_mode.swdge, nisa.dge_mode.hwdge
SKIPPED = np.full((4, 8), 7, np.float32)
SKIPPED[0] = X[2]

FORMS = {
    "affine_select": (lambda d, x: nisa.affine_select(d, KEPT, 0, 1, x, -1.0, GREATER_EQUAL), below()),
    "affine_select cmp_op": (lambda d, x: nisa.affine_select(d, KEPT, 2, 1, x, -1.0, cmp_op=GREATER_EQUAL), below(2)),
    "affine_select halves": (lambda d, x: nisa.affine_select(
        d, KEPT, 0, channel_multiplier=1, on_true_tile=x, on_false_value=-1.0, cmp_op=GREATER_EQUAL), below()),
    "affine_select default": (lambda d, x: nisa.affine_select(d, KEPT, 0, 1, x, -1.0),
                              np.where(ROWS == COLUMNS, X, -1).astype(np.float32)),
    "dma_copy rmw": (onto_ones(lambda d, x: nisa.dma_copy(d, x, nl.add)), X + 1),
    "dma_copy numpy rmw": (onto_ones(lambda d, x: nisa.dma_copy(d, x, np.add, ERROR)), X + 1),
    "dma_copy rmw by name": (onto_ones(lambda d, x: nisa.dma_copy(d, x, dst_rmw_op=nl.add, unique_indices=True)), X + 1),
    "dma_copy unique": (through_hbm(lambda d, x: nisa.dma_copy(d, x, None, ERROR, SWDGE, True)), X),
    "dma_copy mode": (through_hbm(lambda d, x: nisa.dma_copy(d, x, ERROR)), X),
    "dma_copy engine": (through_hbm(lambda d, x: nisa.dma_copy(d, x, ERROR, HWDGE, nisa.engine.sync)), X),
    "dma_copy skip": (rows(lambda d, x: nisa.dma_copy(d, x, SKIP, SWDGE)), SKIPPED),
    "dma_compute": (through_hbm(lambda d, x: nisa.dma_compute(d, [x, x], [1.0, 1.0], nl.add)), X + X),
    "dma_compute by name": (through_hbm(lambda d, x: nisa.dma_compute(d, [x, x], [1.0, 1.0], reduce_op=nl.add)), X + X),
    "dma_compute no scales": (through_hbm(lambda d, x: nisa.dma_compute(d, [x, x], None, nl.add)), X + X),
    "dma_transpose": (through_hbm(lambda d, x: nisa.dma_transpose(d, x, (1, 0), SWDGE, ERROR)), X.T),
    "range_select fill": (lambda d, x, low, high: nisa.range_select(
        d, x, nl.greater_equal, nl.less, low, high, on_false_value=0.0), IN_RANGE, *BOUNDS),
    "register_move": (lambda d, x: register_in(d, x), X),
    "sendrecv": (lambda d, x: nisa.sendrecv(x, d, 0, 0, 0, use_gpsimd_dma=True), X),
    "sendrecv by place": (lambda d, x: nisa.sendrecv(x, d, 0, 0, 0, False), X),
}


def register_in(dst, tile):
    """dst = tile, column by column."""
    column = nisa.register_alloc()
    for k in range(8):
        nisa.register_move(column, imm=k)
        nisa.tensor_copy(dst[:, k:k + 1], tile.ap([[8, 4], [1, 1]], scalar_offset=column, indirect_dim=1))


@pytest.mark.parametrize("name", FORMS)
def test_form_of_an_older_release(on, name):
    body, expected, *more = FORMS[name]
    check(on, body, expected, X, *more)


@pytest.mark.parametrize("name", FORMS)
def test_form_of_an_older_release_is_reported_where_asked(name, monkeypatch):
    body, expected, *more = FORMS[name]
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    with pytest.warns(NkiWarning, match="is the form of release|has no effect|is of another release"):
        check("eager", body, expected, X, *more)


@pytest.mark.parametrize("call", [
    lambda p, x, y: nisa.nc_matmul(p, x, y, False, False, False, (0, 0), (64, 64)),
    lambda p, x, y: nisa.nc_matmul(p, x, y, False, False, False, (), (), nisa.matmul_perf_mode.none),
    lambda p, x, y: nisa.nc_matmul(p, x, y, is_moving_zero=False),
    lambda p, x, y: nisa.nc_matmul(p, x, y, psumAccumulateFlag=3),
    lambda p, x, y: nisa.nc_matmul(p, x, y, psum_accumulate_flags=0, perf_mode="none"),
    lambda p, x, y: nisa.nc_matmul(dst=p, moving=y, stationary=x, tile_position=None, tile_size=None)],
    ids=["position", "mode", "hint", "flag", "flags", "no position"])
def test_product_of_an_older_release(on, call):
    check(on, product(call), FIRST.T @ SECOND, FIRST, SECOND, rtol=1e-5, atol=1e-5)


def test_range_select_resets_what_it_reads(on):
    """The first release's default was idle, which its compiler replaced."""
    def body(dst, x, low, high):
        nisa.range_select(nl.ndarray((4, 8), nl.float32), x, nl.greater_equal, nl.less, low, high,
                          reduce_cmd=nisa.reduce_cmd.idle, reduce_res=dst)
    check(on, body, IN_RANGE.max(axis=1, keepdims=True), X, *BOUNDS)


def test_a_float_for_a_tile_of_integers(on):
    check(on, lambda dst: nisa.memset(dst, 2.0), np.full((4, 8), 2, np.int32))
    for value, filled in ((np.float32(3.5), 4), (0.5, 0), (-2.6, -3)):
        with pytest.warns(NkiWarning, match=f"takes an integer, got .*, which becomes {filled}$"):
            check(on, lambda dst, value=value: nisa.memset(dst, value), np.full((4, 8), filled, np.int32))
    with pytest.raises(NkiValidationError, match="memset of int32 takes a finite number"):
        check(on, lambda dst: nisa.memset(dst, np.inf), np.zeros((4, 8), np.int32))


@pytest.mark.parametrize("call, error, text", [
    (lambda d, x: nisa.dma_copy(d, x, ERROR, SWDGE, nisa.engine.sync), NkiValidationError, "only with dge_mode hwdge"),
    (lambda d, x: nisa.dma_copy(d, x, foo=1), NkiTypeError, "unexpected keyword argument 'foo'"),
    (lambda d, x: nisa.tensor_copy(d, x, 7), NkiValidationError, "expecting 'engine' for engine, got 7"),
    (lambda d, x: nisa.tensor_copy(d, x, mask=None), NkiTypeError, "unexpected keyword argument 'mask'"),
    (lambda d, x: nisa.dma_transpose(d, x, (1, 0), SWDGE, ERROR, "name", 1), NkiTypeError, "too many positional arguments"),
])
def test_what_cannot_be_told_is_refused_with_the_form_of_today(call, error, text):
    with pytest.raises(error, match=text):
        on_tiles("eager", call, [((4, 8), nl.float32)], X)


def test_numbers_of_members_and_strings_of_memories_are_reported(recwarn, monkeypatch):
    def kernel(x):
        out, tile = nl.ndarray((4, 8), nl.float32, buffer="shared_hbm"), nl.ndarray((4, 8), nl.float32, buffer="sbuf")
        nisa.dma_copy(tile, x, dge_mode=3, oob_mode=nisa.oob_mode.error)
        nisa.dma_copy(out, tile)
        return out
    np.testing.assert_array_equal(run("eager", kernel, X), X)
    assert not recwarn
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    np.testing.assert_array_equal(run("eager", kernel, X), X)
    assert sorted(str(w.message) for w in recwarn if issubclass(w.category, OlderNkiForm)) == [
        "the newest release takes nisa.dge_mode.none, not the number 3",
        "the newest release takes nl.sbuf, not the string 'sbuf'",
        "the newest release takes nl.shared_hbm, not the string 'shared_hbm'"]


def test_calls_of_today_are_not_reported(recwarn, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")

    def body(dst, x):
        copied = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(copied, x, None, ERROR, SWDGE)
        nisa.dma_compute(dst, [copied, copied], nl.add, [1.0, 1.0])
        nisa.affine_select(dst, KEPT, 1, x, -1.0, GREATER_EQUAL, 0)
        nisa.memset(dst, 0)
    on_tiles("eager", body, [((4, 8), nl.float32)], X)
    assert not [w for w in recwarn if issubclass(w.category, OlderNkiForm)]


@pytest.mark.parametrize("buffer", [nl.hbm, nl.sbuf, nl.shared_hbm], ids=["hbm", "sbuf", "shared_hbm"])
@pytest.mark.parametrize("strict", ["", "0", "off", "1"], ids=["lenient", "0", "off", "strict"])
def test_results_that_are_not_in_shared_hbm(buffer, strict, recwarn, monkeypatch):
    """Releases until 0.2 took them; newer ones do not."""
    monkeypatch.setenv("NKI_MLIR_STRICT", strict)

    @nki.jit
    def kernel(x):
        result = nl.ndarray(x.shape, x.dtype, buffer=buffer, name="result")
        nisa.dma_copy(result, x)
        return result
    for on in ("eager", "interpreter"):
        np.testing.assert_array_equal(kernel.on(on)(X), X)
    texts = {str(w.message) for w in recwarn if issubclass(w.category, NkiWarning)}
    expected = f"the kernel returns result, which is in {buffer.value}: results must be in nl.shared_hbm"
    assert texts == ({expected} if strict == "1" and buffer is not nl.shared_hbm else set())


# -- outputs that nobody wrote -----------------------------------------------------------------------------------------
def nothing_written(x):
    return nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)


def one_of_two(x):
    first, second = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=n) for n in ("first", "second"))
    nisa.dma_copy(first, x)
    return [first, {"second": second}]


@pytest.mark.parametrize("kernel", [nothing_written, one_of_two])
def test_output_that_nobody_wrote(on, kernel):
    with pytest.raises(Exception, match="err_tensor_output_not_written_to") as raised:
        nki.jit(kernel).on(on)(X)
    assert raised.value.at.file == __file__
    assert raised.value.at.line == kernel.__code__.co_firstlineno + 1


def test_output_that_nobody_wrote_in_simulation_on_two_cores():
    with pytest.raises(Exception, match="err_tensor_output_not_written_to"):
        nki.simulate(nki.jit(nothing_written)[2])(X)

    def half(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 1:
            nisa.dma_copy(out, x)
        return out
    np.testing.assert_array_equal(nki.simulate(nki.jit(half)[2])(X), X)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e5m2", "float8_e4m3fn", "bool"])
def test_simulation_takes_and_gives_torch_tensors(dtype):
    torch = pytest.importorskip("torch")

    def same(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(getattr(torch, dtype))
    result = nki.simulate(same)(x)
    assert result.dtype is x.dtype and torch.equal(result.float(), x.float())


# -- regions of memory, sliced -----------------------------------------------------------------------------------------
def test_slices_of_memory_are_places_for_tensors(on):
    def body(dst, x):
        left = nl.sbuf[0:4, 0:128].view(nl.float32, (4, 8), name="left")
        half = nl.sbuf[32:64, 64:].view(nl.bfloat16, (4, 8))
        product = nl.psum[:, 2048:4096].view(nl.float32, (8, 4))
        nisa.tensor_copy(left, x)
        nisa.tensor_copy(half, left)
        nisa.tensor_copy(left, half)
        nisa.nc_transpose(product, left)
        other = nl.sbuf.view(nl.float32, (8, 4))
        nisa.tensor_copy(other, product)
        nisa.nc_transpose(dst, other, engine=nisa.engine.vector)
    check(on, body, X.astype(nl.bfloat16).astype(np.float32), X)


@pytest.mark.parametrize("slicing, text", [
    (lambda: nl.sbuf[0:4, 0:16].view(nl.float32, (4, 8)), r"shape has size 32 \(bytes\), which is too large for buffer "
                                                          r"of size 16 \(bytes\)"),
    (lambda: nl.sbuf[0:2, 0:64].view(nl.float32, (4, 8)), "4 partitions do not fit in a region of 2"),
    (lambda: nl.sbuf[16:48, 0:64].view(nl.float32, (4, 8)), "partition dimension must be 0, 32, 64, or 96"),
    (lambda: nl.sbuf[0:4, 1:64], "must begin at an even byte, got 1"),
    (lambda: nl.sbuf[0:4, ::2], "must be sliced with step 1"),
    (lambda: nl.sbuf[4:4], "is empty"),
    (lambda: nl.sbuf[0], "expecting one or two slices"),
    (lambda: nl.shared_hbm[0:4], "only nl.sbuf and nl.psum are sliced"),
])
def test_slices_of_memory_that_are_no_places(slicing, text):
    with pytest.raises((NkiTypeError, NkiValidationError), match=text):
        on_tiles("eager", lambda dst, x: slicing(), [((4, 8), nl.float32)], X)


@pytest.mark.parametrize("kind", ["vector_offset", "scalar_offset"])
def test_call_in_the_form_of_the_beta_generation__reads_at_run_time_offsets(on, kind):
    x = floats(32, 8)

    def kernel(x):
        out = nl.ndarray((4, 8), x.dtype, buffer=nl.shared_hbm)
        if kind == "vector_offset":
            places = nl.ndarray((4, 1), nl.int32)
            nisa.iota(places, [[0, 1]], offset=2, channel_multiplier=3)
            rows = x.ap([[8, 4], [1, 8]], vector_offset=places)
        else:
            start = nisa.register_alloc(2)
            rows = x.ap([[24, 4], [1, 8]], scalar_offset=start, indirect_dim=0)
        nisa.dma_copy(out, nl.copy(rows, mask=True))
        return out
    np.testing.assert_array_equal(run(on, kernel, x), x[2:12:3])


def test_patterns_of_repeated_dimensions():
    """A repeated dimension has stride 0, the others keep theirs."""
    patterns = []

    @nki.jit
    def kernel(x):
        tile = nl.ndarray((4, 1, 3, 2), x.dtype, buffer=nl.sbuf)
        patterns.extend(tile.broadcast_to(shape).pattern for shape in ((4, 1, 3, 2), (4, 5, 3, 2)))
        patterns.append(tile.pattern)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    kernel(X)
    unchanged, repeated, strides = patterns
    assert unchanged == strides and repeated == [strides[0], [0, 5], *strides[2:]]
    assert len({stride for stride, _ in strides}) == 3


def test_result_of_a_call_without_dst_is_a_new_tile_beside_what_the_call_writes(on):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        total = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.sbuf)
        exponentials = nisa.activation_reduce(op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        totals = nl.ndarray((x.shape[0], 1), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, exponentials)
        nl.store(totals, total)
        return out, totals
    out, totals = kernel.on(on)(X)
    np.testing.assert_allclose(out, np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(totals[:, 0], np.exp(X).sum(axis=1), rtol=1e-6)
