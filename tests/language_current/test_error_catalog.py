# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The current generation's documented errors: each one's class, its words, the kernel's own line; simulated and captured.

What Python says by itself (of names, lists, arguments of the kernel's own functions) stays as Python says it.
"""

import inspect
import warnings

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiTypeError, NkiWarning

X = np.zeros((4, 8), np.float32)
LAUNCHES = {"simulated": nki.simulate, "captured": lambda kernel: nki.jit(kernel).on("interpreter")}
CASES = {}


@pytest.fixture(params=LAUNCHES)
def launch(request):
    return LAUNCHES[request.param]


def tile(*shape, dtype=nl.float32, **more):
    return nl.ndarray(shape, dtype, **more)


def used(view):
    nisa.dma_copy(view, view)


def hbm(*shape, dtype=nl.float32):
    return tile(*shape, dtype=dtype, buffer=nl.private_hbm)


def psum(*shape, dtype=nl.float32, **more):
    return tile(*shape, dtype=dtype, buffer=nl.psum, **more)


def register(value=2):
    return nisa.register_alloc(value)


REFUSED, WRONG_KIND = nisa.NkiValidationError, NkiTypeError
OPERATORS = "binary operators on tensors not supported. Use nki.isa directly."
OUTSIDE = "index out of range of tensor dimension"

for name, calls, kind, words in [
    # tensors as Python values
    ("partitions", [lambda: nisa.tensor_copy(tile(128, 4), tile(256, 2))], REFUSED,
     "tensor_copy src partition dimension 256 exceeds maximum 128"),
    ("operators", [lambda: tile(4, 8) + tile(4, 8), lambda: 2 - tile(4, 8), lambda: -tile(4, 8), lambda: ~tile(4, 8),
                   lambda: tile(4, 8) == tile(4, 8), lambda: tile(4, 8) @ tile(8, 4), lambda: tile(4, 8) < 1,
                   lambda: tile(4, 8) % 2, lambda: tile(4, 8) << 1], WRONG_KIND, OPERATORS),
    ("numbers", [lambda: int(tile(4, 8)), lambda: float(tile(1, 1)), lambda: range(tile(1, 1))], WRONG_KIND,
     "a tensor is not a Python number"),
    ("arrays", [lambda: np.asarray(tile(4, 8)), lambda: np.array(tile(1, 1), np.float32)], WRONG_KIND,
     "a tensor is not a NumPy array"),
    # subscripts and views
    ("too many subscripts", [lambda: tile(4, 8)[0, 0, 0]], IndexError, "too many indexes for shape"),
    ("beyond", [lambda: tile(4, 8)[:, 0:9], lambda: tile(4, 8)[4], lambda: tile(4, 8)[-5], lambda: tile(4, 8)[:, -9:2],
                lambda: tile(4, 8)[:, nl.ds(6, 4)]], IndexError, OUTSIDE),
    ("beyond by name", [lambda: tile(4, 8).select(1, 9), lambda: tile(4, 8).slice(1, 3, 20)], REFUSED, OUTSIDE),
    ("nested", [lambda: tile(4, 8)[(0, 1), 0]], REFUSED, "nested tuple/list indexes not supported"),
    ("overflow", [lambda: used(tile(4, 8).ap([[8, 4], [1, 9]])), lambda: used(tile(4, 8).ap([[8, 5], [1, 8]])),
                  lambda: used(hbm(4, 8).ap([[8, 4], [1, 8]], offset=1))], IndexError, "index overflow"),
    ("step", [lambda: tile(4, 8)[:, ::0], lambda: tile(4, 8)[:, ::-1]], REFUSED,
     "slice step cannot be zero or negative"),
    ("scalar_offset", [lambda o=o: tile(4, 8).ap([[8, 4], [1, 1]], scalar_offset=o, indirect_dim=1)
                       for o in (1.5, 3, "x")], REFUSED, "scalar_offset requires scalar argument, got "),
    ("scalar_offset of a tile", [lambda: tile(4, 8).ap([[8, 4], [1, 1]], scalar_offset=tile(4, 1, dtype=nl.int32),
                                                       indirect_dim=1)], REFUSED, "scalar_offset requires scalar argument"),
    ("indirect twice", [lambda: hbm(8, 8).ap([[8, 4], [1, 8]], vector_offset=tile(4, 1, dtype=nl.int32)).ap(
        [[8, 4], [1, 8]], scalar_offset=tile(1, 1, dtype=nl.int32))], REFUSED, "already indexed"),
    ("reshape too large", [lambda: tile(4, 8).reshape((4, 16))], REFUSED,
     "shape has size 256 (bytes), which is too large for buffer of size 128 (bytes)"),
    ("reshape count", [lambda: tile(4, 8).reshape((4, 9)), lambda: hbm(4, 8).reshape((4, 4))], REFUSED,
     "cannot reshape [4, 8] with 32 elements"),
    ("reshape complex", [lambda: tile(4, 8, 4).permute((0, 2, 1)).reshape((4, 32))], REFUSED,
     "cannot reshape a complex access pattern"),
    ("partition stride", [lambda: tile(16, 32).ap([[64, 8], [1, 32]])], REFUSED, "partition stride 64"),
    # memory
    ("start partition", [lambda: tile(32, 8, address=(5, 0)), lambda: psum(16, 8, address=(16, 0))], REFUSED,
     "partition dimension must be 0, 32, 64, or 96"),
    ("PSUM bank", [lambda: psum(32, 8, address=(0, 4))], REFUSED, "not the start of a PSUM bank"),
    ("address", [lambda: tile(32, 8, address=(0, -4)), lambda: tile(32, 8, address=(0, 2))], REFUSED, "is not aligned to float32"),
    ("name in use", [lambda: (tile(4, 8, name="x"), tile(4, 8, name="x"))], REFUSED, "Tensor name 'x' already in use"),
    ("buffer", [lambda: tile(4, 8, buffer="ram"), lambda: tile(4, 8, buffer=1)], REFUSED, "expecting 'buffer type'"),
    ("raw enum", [lambda: nisa.tensor_copy(tile(4, 8), tile(4, 8), engine=7)], REFUSED, "expecting 'engine' for engine"),
    ("dtype", [lambda: tile(4, 8, dtype="float64"), lambda: tile(4, 8, dtype=np.complex64)], WRONG_KIND,
     "unsupported dtype '"),
    # arguments
    ("too many arguments", [lambda: nl.zeros((4, 8), nl.float32, nl.sbuf, "n", 1)], WRONG_KIND, "too many positional arguments"),
    ("unexpected keyword", [lambda: nl.zeros((4, 8), nl.float32, foo=1), lambda: nisa.tensor_copy(
        tile(4, 8), tile(4, 8), foo=1)], WRONG_KIND, "unexpected keyword argument 'foo'"),
    ("missing argument", [lambda: nisa.tensor_tensor(tile(4, 8), tile(4, 8), tile(4, 8))], WRONG_KIND, "'op'"),
    ("tensor expected", [lambda: nisa.tensor_copy(tile(4, 8), 3)], REFUSED, "expecting 'tensor', got 'int'"),
    ("integer expected", [
        lambda: nl.zeros((4, 2.5), nl.float32), lambda: nisa.iota(tile(4, 8, dtype=nl.int32), [[1, 8]], offset=1.5),
        lambda: nisa.iota(tile(4, 8, dtype=nl.int32), [[1, 8]], channel_multiplier=1.5), lambda: register(1.5),
        lambda: nisa.register_move(register(), 1.5), lambda: nl.sum(tile(4, 8), axis=1.5),
        lambda: nisa.tensor_reduce(tile(4, 1), nl.add, tile(4, 8), "x"), lambda: tile(4, 8).slice(1, "a", 3),
        lambda: nisa.nc_stream_shuffle(tile(32, 8), tile(32, 8), [0.5] * 32),
        lambda: nisa.range_select(tile(4, 8), tile(4, 8), nl.less, nl.less, tile(4, 1), tile(4, 1), range_start=1.5)],
     WRONG_KIND, "expecting 'integer', got "),
    ("float expected", [
        lambda: nisa.memset(tile(4, 8), "x"), lambda: nisa.memset(tile(4, 8), None), lambda: nl.full((4, 8), "x",
                                                                                                   nl.float32),
        lambda: nisa.activation(tile(4, 8), nl.exp, tile(4, 8), scale="x"),
        lambda: nisa.activation(tile(4, 8), nl.exp, tile(4, 8), bias="x"),
        lambda: nisa.tensor_scalar(tile(4, 8), tile(4, 8), nl.add, "x"),
        lambda: nisa.scalar_tensor_tensor(tile(4, 8), tile(4, 8), nl.add, "x", nl.add, tile(4, 8)),
        lambda: nisa.tensor_tensor_scan(tile(4, 8), tile(4, 8), tile(4, 8), "x", nl.add, nl.add),
        lambda: nisa.affine_select(tile(4, 8), [[1, 8]], 1, tile(4, 8), "x", nl.equal),
        lambda: nisa.select_reduce(tile(4, 8), tile(4, 8, dtype=nl.uint8), tile(4, 8), "x"),
        lambda: nisa.tensor_copy_predicated(tile(4, 8), "x", tile(4, 8, dtype=nl.uint8)),
        lambda: nisa.dropout(tile(4, 8), tile(4, 8), "x")], WRONG_KIND, "expecting 'number'"),
    ("axis", [lambda: nl.sum(tile(4, 8), axis=3), lambda: nl.softmax(tile(4, 8), axis=5),
              lambda: nl.var(tile(4, 8), axis=-3), lambda: nl.sum(tile(4, 8), axis=()),
              lambda: nisa.tensor_reduce(tile(4, 1), nl.add, tile(4, 8), 3)], REFUSED, "a tile of 2 dimensions has no axis"),
    ("dimension", [lambda: nl.expand_dims(tile(4, 8), 4), lambda: tile(4, 8).slice(2, 0, 1)], REFUSED,
     "of a tensor of 2 dimensions"),
    ("program axis", [lambda: nl.program_id(-1), lambda: nl.num_programs([0, -1])], REFUSED,
     "invalid program axis "),
    ("first generation", [lambda: nisa.tensor_copy(tile(4, 8), beta_nl.zeros((4, 8), beta_nl.float32))], REFUSED,
     "APIs from neuronxcc may not be used in Beta-2 kernels"),
    # loops of the device
    ("step of a loop", [lambda: nl.fori_loop(0, 4, lambda i: None, step=-1),
                        lambda: nl.fori_loop(0, 4, lambda i: None, step=register())], REFUSED,
     "step must be a positive int"),
    ("counter of a loop", [lambda: nl.fori_loop(0, register(), lambda i: nisa.register_move(i, 3) and None),
                           lambda: nl.fori_loop(0, register(), lambda i: nisa.register_load(
                               i, nl.zeros((1, 1), nl.int32)) and None)], REFUSED, "cannot be written"),
    ("register as a number", [lambda: int(register()), lambda: range(register()), lambda: register() + 1], WRONG_KIND,
     "not a Python number"),
    # values and transfers
    ("memset", [lambda: nisa.memset(tile(4, 8, dtype=nl.int32), np.inf)], REFUSED, "takes a finite number, got inf"),
    ("memset of packed", [lambda: nisa.memset(tile(4, 8, dtype=nl.float8_e5m2_x4), 1)], REFUSED, "takes only 0"),
    ("DMA from PSUM", [lambda: nisa.dma_copy(psum(4, 8), tile(4, 8))], REFUSED, "PSUM, which DMA cannot access"),
    ("hwdge converts", [lambda: nisa.dma_copy(tile(4, 8, dtype=nl.bfloat16), hbm(4, 8), dge_mode=nisa.dge_mode.hwdge)],
     REFUSED, "moves bytes"),
]:
    CASES |= {f"{name} {k}" if k else name: (call, kind, words) for k, call in enumerate(calls)}


@pytest.mark.parametrize("name", CASES)
def test_documented_error(launch, name, monkeypatch):
    call, kind, words = CASES[name]
    if words == OPERATORS:                  # of the newest release; older ones have most
        monkeypatch.setenv("NKI_MLIR_STRICT", "1")

    def kernel(x):
        call()
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    with pytest.raises(kind) as caught:
        launch(kernel)(X)
    error = caught.value
    assert words in f"{error.headline} {error}"
    assert isinstance(error, AssertionError) == (not isinstance(error, TypeError))
    lines, first = inspect.getsourcelines(call)
    helpers = [f.__code__.co_firstlineno for f in (tile, used, hbm, psum, register)]
    assert error.at.file == __file__
    assert first <= error.at.line < first + len(lines) or error.at.line - 1 in helpers



def test_loops_of_the_device_are_left_at_their_end():
    """In simulation Python's own loop runs, which may be left."""
    def broken(x):
        for _ in nl.dynamic_range(nisa.register_alloc(2)):
            break                                                           # here

    def returned(x):
        for _ in nl.dynamic_range(nisa.register_alloc(2)):
            return                                                          # here
    for kernel in (broken, returned):
        with pytest.raises(AssertionError, match="not allowed within dynamic loop") as caught:
            LAUNCHES["captured"](kernel)(X)
        assert caught.value.at.file == __file__


def test_no_loop_of_the_device_in_a_block_that_keeps_its_order(launch):
    def kernel(x):
        with nl.no_reorder():
            nl.fori_loop(0, 2, lambda i: None)
    with pytest.raises(AssertionError, match="Dynamic control-flow cannot be nested with a no_reorder block") as caught:
        launch(kernel)(X)
    assert caught.value.at.line == kernel.__code__.co_firstlineno + 2


def test_assertions_of_the_kernel(launch):
    def kernel(x):
        assert x.shape[0] == 5, "five rows"
    with pytest.raises(AssertionError, match="five rows") as caught:
        launch(kernel)(X)
    assert caught.traceback[-1].lineno + 1 == kernel.__code__.co_firstlineno + 1


def test_truth_of_tensors(launch):
    """A tensor is true; what a comparison gave is, in simulation, true where all its elements are."""
    def kernel(x, simulated):
        out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
        assert t and nl.equal(t, 0.0) and nl.all(nl.less(t, 1.0), 1)
        for wrong in (nl.equal(t, 1.0), nl.logical_not(nl.less(t, 1.0)), nl.all(t, 1), nl.greater(t, 0.0)[0:2]):
            assert bool(wrong) != simulated
        nisa.dma_copy(out, t)
        return out
    launch(kernel)(X, launch is nki.simulate)


def test_elements_as_conditions__are_reported(launch):
    """They are true, whatever they are, and an optional tensor is a complete one."""
    def kernel(x, scale):
        out, t = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
        if t[0:1, 1:2]:
            t = nl.add(t, 1.0)
        if scale:
            t = nl.multiply(t, 2.0)
        nisa.dma_copy(out, t)
        return out
    with pytest.warns(NkiWarning, match="an element of t is always true as a condition") as caught:
        result = launch(kernel)(0 * X, np.zeros((1, 1), np.float32))
    assert len(caught) == 1 and caught[0].lineno == kernel.__code__.co_firstlineno + 2
    np.testing.assert_array_equal(result, 0 * X + 2)


@pytest.mark.parametrize("use, words", [
    (lambda: list(nl.affine_range(2)), "annotation has no effect"),
    (lambda: list(nl.sequential_range(2)), "annotation has no effect"),
    (lambda: list(nl.static_range(2)), "annotation has no effect"), (lambda: nl.par_dim(4), "par_dim is deprecated"),
    (lambda: nl.dynamic_range(2), "nl.dynamic_range is deprecated"),
    (lambda: nl.tile_size.psum_fmax, "psum_fmax is deprecated"),
    (lambda: nl.tile_size.total_available_sbuf_size, "total_available_sbuf_size is deprecated")])
def test_deprecated__is_reported_where_asked(launch, use, words, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")

    def kernel(x):
        use()
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        launch(kernel)(X)
    warned = [w for w in caught if words in str(w.message)]
    assert warned and issubclass(warned[0].category, NkiWarning) and warned[0].filename == __file__
