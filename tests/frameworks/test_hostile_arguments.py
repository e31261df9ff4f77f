# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of JAX and PyTorch that kernels cannot read: each gives the right values, or one error at the user's line."""

import traceback
import warnings
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
jnp = jax.numpy

from nki_mlir.capture.locations import is_toolchain  # noqa: E402
from nki_mlir.capture.mutable_state import ABSENT  # noqa: E402
from nki_mlir.diagnostics import NkiMlirError  # noqa: E402
from nki_mlir.language.current import language as nl  # noqa: E402
from nki_mlir.language.current import nki  # noqa: E402
from nki_mlir.language.read_tensors import state_of_tensor  # noqa: E402

from ..caught_errors import error_of  # noqa: E402

ONES = np.ones((4, 8), np.float32)
NUMBERS = np.arange(32, dtype=np.float32).reshape(4, 8)


@nki.jit
def incremented(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), 1))
    return out


@nki.jit
def added(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(x), nl.load(y)))
    return out


@nki.jit
def updated(x):
    nl.store(x, nl.add(nl.load(x), 1))
    return x


@nki.jit
def updated_by(x, y):
    nl.store(x, nl.add(nl.load(x), nl.load(y)))
    return x


@pytest.fixture(autouse=True)
def short_tracebacks(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)


def described(call: Callable[[], object]) -> str:
    """Return the headline and the fix of a call's error."""
    error = error_of(call)
    return f"{error.headline}; {error.advice[1]}"


def values(result: object) -> np.ndarray:
    return result.detach().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)


# -- JAX ---------------------------------------------------------------------------------------------------------------
def deleted() -> object:
    x = jnp.ones((4, 8))
    x.delete()
    return x


def donated() -> object:
    x = jnp.ones((4, 8)) + 0
    jax.jit(lambda x: x * 2, donate_argnums=0)(x)
    return x


DELETED = "parameter x is an array of JAX that has been deleted; pass a copy of it to the other function"
OF_JAX = {
    "complex": (lambda: incremented(jnp.ones((4, 8), jnp.complex64)), "complex64 is not an element type; the device has no"),
    "complex, traced": (lambda: jax.jit(incremented)(jnp.ones((4, 8), jnp.complex64)), "two tensors of float32"),
    "4 bits": (lambda: incremented(jnp.ones((4, 8), jnp.int4)), "int4 is not an element type; the nearest is int8; convert"),
    "a key": (lambda: incremented(jax.random.key(0)), "key<fry> is not an element type; the language has floats of 8, 16"),
    "a number": (lambda: incremented(jnp.float32(3)), "argument x of kernel incremented is an array without dimensions"),
    "empty": (lambda: incremented(jnp.ones((0, 8))), "a tile of shape [0, 8] has an empty dimension; give each dimension"),
    "deleted": (lambda x=deleted(): incremented(x), DELETED),
    "donated": (lambda x=donated(): incremented(x), DELETED),
    "differentiated": (lambda: jax.grad(lambda x: incremented(x).sum())(jnp.ones((4, 8))), "jax.custom_vjp"),
    "no values": (lambda: incremented(jax.ShapeDtypeStruct((4, 8), jnp.float32)),
                  "got 'ShapeDtypeStruct'; pass a dense array with values to the kernel; kernel.lower takes arrays without"),
    "masked": (lambda: added(jnp.ones((4, 8)), np.ma.masked_array(ONES, mask=True)), "a masked array is passed to a kernel"),
    "objects": (lambda: added(jnp.ones((4, 8)), np.array([[object()]])), "its elements are Python objects, and have to be"),
    "texts": (lambda: added(jnp.ones((4, 8)), np.array([["a"]])), "its elements are text, and have to be numbers"),
    "records": (lambda: added(jnp.ones((4, 8)), np.zeros((4, 8), [("a", "f4")])), "its elements are records, and have to be"),
    "64 bits": (lambda: added(jnp.ones((4, 8)), np.ones((4, 8))), "float64 is not an element type; the nearest is float32"),
    "byte order": (lambda: added(jnp.ones((4, 8)), ONES.astype(">f4")), "float32 in the byte order of this machine is one"),
    "of PyTorch": (lambda: added(jnp.ones((4, 8)), torch.ones(4, 8)),
                   "kernel added is called with arrays of PyTorch and of JAX: argument x is of JAX; convert it first: "
                   "torch.from_numpy(np.array(x)), or call the kernel with NumPy arrays alone"),
}


@pytest.mark.parametrize("name", OF_JAX)
def test_arguments_of_jax(name):
    call, text = OF_JAX[name]
    assert text in described(call)


def test_sparse_arrays_of_jax():
    sparse = pytest.importorskip("jax.experimental.sparse")
    assert "got 'BCOO'; pass a dense array" in described(lambda: incremented(sparse.BCOO.fromdense(jnp.ones((4, 8)))))


@pytest.mark.parametrize("leave", [
    lambda kept: jax.jit(kept.append)(jnp.ones((4, 8))), lambda kept: jax.vmap(kept.append)(jnp.ones((1, 4, 8))),
    lambda kept: jax.grad(lambda x: (kept.append(x), x.sum())[1])(jnp.ones((4, 8)))], ids=["jit", "vmap", "grad"])
@pytest.mark.parametrize("call", [incremented, lambda x: added(ONES, x)], ids=["alone", "beside an array"])
def test_tracers_that_left_their_function(leave, call):
    kept: list = []
    leave(kept)
    with pytest.raises(jax.errors.UnexpectedTracerError, match="Encountered an unexpected tracer") as caught:
        call(kept[0])
    assert not [frame for frame in traceback.extract_tb(caught.value.__traceback__) if is_toolchain(frame.filename)]


RIGHT_IN_JAX = {
    "one copy for each part": (lambda: jax.vmap(incremented)(jnp.ones((3, 4, 8))), np.full((3, 4, 8), 2)),
    "parts along the second axis": (lambda: jax.vmap(incremented, in_axes=1, out_axes=1)(jnp.ones((4, 3, 8))),
                                    np.full((4, 3, 8), 2)),
    "one argument for all parts": (lambda: jax.vmap(added, in_axes=(0, None))(jnp.ones((3, 4, 8)), jnp.ones((4, 8))),
                                   np.full((3, 4, 8), 2)),
    "no part": (lambda: jax.vmap(incremented)(jnp.ones((0, 4, 8))), np.ones((0, 4, 8))),
    "parts of parts": (lambda: jax.vmap(jax.vmap(incremented))(jnp.ones((2, 3, 4, 8))), np.full((2, 3, 4, 8), 2)),
    "parts of an update": (lambda: jax.vmap(updated)(jnp.ones((3, 4, 8))), np.full((3, 4, 8), 2)),
    "donated to the kernel": (lambda: jax.jit(updated, donate_argnums=0)(jnp.ones((4, 8)) + 0), ONES * 2),
    "backwards": (lambda: added(jnp.zeros((4, 8)), NUMBERS[::-1]), NUMBERS[::-1]),
    "one element for all": (lambda: added(jnp.zeros((4, 8)), np.broadcast_to(np.float32(3), (4, 8))), ONES * 3),
    "each second row": (lambda: added(jnp.zeros((2, 8)), NUMBERS[::2]), NUMBERS[::2]),
}


@pytest.mark.parametrize("name", RIGHT_IN_JAX)
def test_right_values_in_jax(name):
    call, expected = RIGHT_IN_JAX[name]
    assert np.array_equal(values(call()), expected)


# -- PyTorch -----------------------------------------------------------------------------------------------------------
def freed(size: int, *shape: int) -> torch.Tensor:
    tensor = torch.ones(*shape or (4, 8))
    tensor.untyped_storage().resize_(size)
    return tensor


def freed_behind(view: Callable[[torch.Tensor], torch.Tensor], size: int, dtype: torch.dtype = torch.float32
                 ) -> torch.Tensor:
    """Return a view of a matrix that has lost its memory after the first ``size`` bytes."""
    matrix = torch.ones(8, 8, dtype=dtype)
    result = view(matrix)
    matrix.untyped_storage().resize_(size)
    return result


def fake() -> torch.Tensor:
    from torch._subclasses.fake_tensor import FakeTensorMode
    with FakeTensorMode():
        return torch.ones(4, 8)


def left_vmap() -> torch.Tensor:
    kept: list = []
    torch.vmap(lambda x: (kept.append(x), x)[1])(torch.ones(1, 4, 8))
    return kept[0]


def with_warnings_off(create: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Return a tensor of a kind that PyTorch announces to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create()


REPEATED = ("the kernel writes its parameter x, but elements of the tensor passed for it share memory (shape {}, strides {}); "
            "pass a tensor that has memory for each element: x.contiguous(), which has the new values after the call")
T = torch.ones(4, 8)
OF_TORCH = {
    "complex": (lambda: incremented(T.to(torch.complex64)), "two tensors of float32"),
    "64 bits": (lambda: incremented(T.double()), "the nearest is float32: the device has no 64-bit floats; convert it"),
    "other 8 bits": (lambda: incremented(T.to(torch.float8_e4m3fnuz)),
                     "float8_e4m3fnuz is not an element type; the nearest is float8_e4m3fn; convert it first"),
    "a number": (lambda: incremented(torch.tensor(3.0)), "argument x of kernel incremented is an array without dimensions"),
    "empty": (lambda: incremented(torch.ones(4, 0)), "a tile of shape [4, 0] has an empty dimension; give each dimension"),
    "freed": (lambda: incremented(freed(0)), "a tensor whose storage has 0 bytes is passed to kernel incremented; its "
                                             "elements take 128; call it while the tensor has its memory, or"),
    "freed, updated": (lambda: updated(freed(0)), "a tensor whose storage has 0 bytes is passed to kernel updated"),
    "freed, in parts": (lambda: torch.vmap(incremented)(freed(0, 3, 4, 8)), "a tensor whose storage has 0 bytes"),
    "freed in part": (lambda: incremented(freed(124)),
                      "a tensor whose storage has 124 bytes is passed to kernel incremented; its elements take 128; call it "
                      "while the tensor has its memory, or with a copy that was made then"),
    "freed in part, beside": (lambda: added(T, freed(64)), "a tensor whose storage has 64 bytes is passed to kernel added"),
    "freed in part, updated": (lambda: updated(freed(1)), "a tensor whose storage has 1 byte is passed to kernel updated"),
    "freed in part, by name": (lambda: incremented(x=freed(64)), "a tensor whose storage has 64 bytes is passed"),
    "freed in part, transposed": (lambda: incremented(freed_behind(lambda x: x.t(), 252)),
                                  "storage has 252 bytes is passed to kernel incremented; its elements take 256"),
    "freed in part, rows": (lambda: incremented(freed_behind(lambda x: x[2:6], 191)),
                            "storage has 191 bytes is passed to kernel incremented; its elements take 192"),
    "freed in part, parts": (lambda: torch.vmap(incremented)(freed(128, 3, 4, 8)), "its elements take 384"),
    "freed in part, interpreter": (lambda: incremented.on("interpreter")(freed(4)), "storage has 4 bytes is passed"),
    "freed in part, simulated": (lambda: nki.simulate(incremented)(freed(64)),
                                 "a tensor whose storage has 64 bytes is passed to a kernel; its elements take 128"),
    "freed in part, bfloat16": (lambda: nki.simulate(incremented)(freed_behind(lambda x: x, 127, torch.bfloat16)),
                                "a tensor whose storage has 127 bytes is passed to a kernel; its elements take 128"),
    "fake beside real": (lambda: added(T, fake()), "kernel added is called with fake tensors, which have no values, and"),
    "masked": (lambda: incremented(with_warnings_off(lambda: torch.masked.masked_tensor(T, T.bool()))),
               "a masked tensor is passed to kernel incremented; kernels read dense tensors of numbers; convert it first"),
    "sparse": (lambda: incremented(T.to_sparse()), "a tensor of layout torch.sparse_coo is passed to kernel incremented"),
    "left torch.vmap": (lambda: incremented(left_vmap()),
                        "kernel incremented is called with a tensor of a torch.vmap that has ended; return the tensor"),
    "left torch.vmap, by name": (lambda: incremented(x=left_vmap()), "a tensor of a torch.vmap that has ended"),
    "requires grad": (lambda: incremented(torch.ones(4, 8, requires_grad=True)), "a tensor that requires grad"),
    "repeated elements": (lambda: updated(torch.ones(1, 8).expand(4, 8)), REPEATED.format((4, 8), (0, 1))),
    "repeated elements, simulated": (lambda: nki.simulate(updated)(torch.ones(1, 8).expand(4, 8)),
                                     REPEATED.format((4, 8), (0, 1))),
    "elements that overlap": (lambda: updated(torch.ones(16).as_strided((4, 8), (2, 1))), REPEATED.format((4, 8), (2, 1))),
    "repeated parts": (lambda: torch.vmap(updated)(torch.ones(1, 4, 8).expand(3, 4, 8)),
                       REPEATED.format((3, 4, 8), (0, 8, 1))),
    "not mapped": (lambda: torch.vmap(updated_by, (None, 0))(torch.ones(4, 8), torch.ones(3, 4, 8)),
                   "torch.vmap maps a call of kernel updated_by, which updates its parameter x, and that tensor is not mapped; "
                   "map a tensor with a part for each call: x.expand(n, *x.shape).clone()"),
    "masked array": (lambda: added(T, np.ma.masked_array(ONES, mask=True)), "a masked array is passed to a kernel"),
    "objects": (lambda: added(T, np.array([[object()]])), "its elements are Python objects, and have to be numbers"),
    "byte order": (lambda: added(T, ONES.astype(">f4")), "float32 in the byte order of this machine is one"),
    "4 bits": (lambda: added(T, np.ones((4, 8), ml_dtypes.uint4)), "uint4 is not an element type; the nearest is uint8"),
    "a list": (lambda: incremented([T]), "and the kernel reads its shape; pass np.array(the list, np.float32)"),
    "of JAX": (lambda: added(T, jnp.ones((4, 8))), "argument y is of JAX; convert it first: torch.from_numpy(np.array(y))"),
    "of JAX, in a list": (lambda: added(T, [jnp.ones((4, 8))]), "argument y_0 is of JAX"),
}


@pytest.mark.parametrize("name", OF_TORCH)
def test_arguments_of_torch(name):
    call, text = OF_TORCH[name]
    assert text in described(call)
    assert text in described(call), "the second call has a memo"


@pytest.mark.parametrize("size", [0, 127])
@pytest.mark.parametrize("kernel", [incremented, updated])
def test_a_compiled_program_reads_no_freed_memory(kernel, size):
    x = torch.ones(4, 8)
    compiled = torch.compile(lambda x: kernel(x) * 1, backend="aot_eager", fullgraph=True)
    assert np.array_equal(values(compiled(x)), ONES * 2)
    x.untyped_storage().resize_(size)
    with pytest.raises(NkiMlirError, match=f"a tensor whose storage has {size} bytes is passed to kernel {kernel.__name__}"):
        compiled(x)


def test_a_program_of_values_refuses_repeated_elements():
    compiled = torch.compile(updated, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match="the kernel writes its parameter x, but elements of the tensor passed for it"):
        compiled(torch.ones(1, 8).expand(4, 8))


def test_memory_that_comes_back_is_read_again():
    x = torch.ones(4, 8)
    for size in (64, 128):
        x.untyped_storage().resize_(size)
        if size == 64:
            assert "storage has 64 bytes" in described(lambda: incremented(x))
        else:
            x.fill_(3)
            assert np.array_equal(values(incremented(x)), ONES * 4)


SCALES = torch.arange(1.0, 5.0)


@nki.jit
def scaled_by_a_kept_tensor(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), float(SCALES[1])))
    return out


def test_kept_tensors_without_memory_are_not_compared(monkeypatch):
    """Python reads the tensor, which PyTorch refuses, not the toolchain's search for changes of its contents."""
    monkeypatch.setattr(f"{__name__}.SCALES", SCALES.clone())
    assert np.array_equal(values(scaled_by_a_kept_tensor(T)), ONES * 2)
    SCALES.untyped_storage().resize_(8)
    assert state_of_tensor(SCALES) is ABSENT


RIGHT_IN_TORCH = {
    "transposed": (lambda: incremented(torch.from_numpy(NUMBERS).t()), NUMBERS.T + 1),
    "each second row": (lambda: incremented(torch.from_numpy(NUMBERS)[::2]), NUMBERS[::2] + 1),
    "expanded": (lambda: incremented(torch.ones(1, 8).expand(4, 8)), ONES * 2),
    "stands for zeros": (lambda: incremented(torch._efficientzerotensor((4, 8))), ONES),
    "of a subclass": (lambda: incremented(T.as_subclass(type("Named", (torch.Tensor,), {}))), ONES * 2),
    "a parameter": (lambda: incremented(torch.nn.Parameter(T, requires_grad=False)), ONES * 2),
    "parts along the second axis": (lambda: torch.vmap(incremented, in_dims=1, out_dims=1)(torch.ones(4, 3, 8)),
                                    np.full((4, 3, 8), 2)),
    "one argument for all parts": (lambda: torch.vmap(added, in_dims=(0, None))(torch.ones(3, 4, 8), T),
                                   np.full((3, 4, 8), 2)),
    "no part": (lambda: torch.vmap(incremented)(torch.ones(0, 4, 8)), np.ones((0, 4, 8))),
    "backwards": (lambda: added(torch.zeros(4, 8), NUMBERS[::-1]), NUMBERS[::-1]),
    "one element for all": (lambda: added(torch.zeros(4, 8), np.broadcast_to(np.float32(3), (4, 8))), ONES * 3),
    "without gradient": (lambda: torch.no_grad()(incremented)(torch.ones(4, 8, requires_grad=True)), ONES * 2),
}


@pytest.mark.parametrize("name", RIGHT_IN_TORCH)
def test_right_values_in_torch(name):
    """The first call makes a plan, the second finds it; neither warns, also of arrays that must not be written."""
    call, expected = RIGHT_IN_TORCH[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(values(call()), expected) and np.array_equal(values(call()), expected)


def test_updates_of_strided_tensors():
    tensor = torch.zeros(8, 8)
    updated(tensor[::2])
    updated(tensor.t()[:, 1::2])
    expected = np.zeros((8, 8), np.float32)
    expected[::2] += 1
    expected[1::2] += 1
    assert np.array_equal(tensor.numpy(), expected)


def test_read_only_arrays_beside_tensors():
    read_only = NUMBERS.copy()
    read_only.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(values(added(torch.zeros(4, 8), read_only)), NUMBERS)
