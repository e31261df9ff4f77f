# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels take and give: nested tensors, constants, output conventions, launch forms."""

import dataclasses
import enum
import functools
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.written import OutputNotWritten
from nki_mlir.frontend.errors import ImmutableParameter, MutableNotReturned
from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.results import BadResult

from . import outside
from .conftest import EXECUTORS
from .running import check, compare, numbers, run

X, Y = numbers(16, 8), numbers(16, 8, seed=1)
FACTOR = 3


def output_of(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


# -- arguments ---------------------------------------------------------------------------------------------------------
class Pair(NamedTuple):
    left: Any
    right: Any
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class Config:
    tile: int
    scale: float
    dtype: Any = np.float32


@dataclasses.dataclass
class Holder:
    weights: Any
    config: Config


class Mode(enum.Enum):
    SUM, DIFFERENCE = 1, 2


@nki.jit
def combine(tensors, mode=Mode.SUM, *, scale=1.0):
    a, b = tensors
    x, y = nl.load(a), nl.load(b)
    return output_of((x + y if mode is Mode.SUM else x - y) * scale)


def test_tensors_in_tuples_and_lists(on):
    check(on, combine, X + Y, (X, Y))
    check(on, combine, (X - Y) * 2, [X, Y], Mode.DIFFERENCE, scale=2.0)
    check(on, combine, X - Y, (X, Y), mode=Mode.DIFFERENCE)


def test_tensors_in_named_tuples_dicts_and_dataclasses(on):
    @nki.jit
    def kernel(pair, table, holder):
        assert isinstance(pair, Pair) and holder.config.tile == 16
        total = nl.load(pair.left) * pair.scale + nl.load(pair.right)
        total += nl.load(table["inner"][0]) * holder.config.scale + nl.load(holder.weights)
        return output_of(total)
    expected = X * 2 + Y + Y * 0.5 + X
    check(on, kernel, expected, Pair(X, Y), {"inner": [Y], "n": 3}, Holder(X, Config(16, 0.5)))


def test_constants_of_all_kinds(on):
    def double(t):
        return t * 2

    @nki.jit
    def kernel(x, config, dtype, function, shape, nothing=None, flag=True, names=("a", "b"), table=None):
        assert nothing is None and flag is True and names == ("a", "b") and table == {"k": [1, 2]}
        assert shape == (16, 8)
        return output_of(nl.copy(function(nl.load(x)) * config.scale, dtype=dtype))
    check(on, kernel, (X * 6).astype(ml_dtypes.bfloat16), X, Config(1, 3.0), nl.bfloat16, double, X.shape,
          table={"k": [1, 2]})
    check(on, kernel, (X * 1).astype(np.float16), X, Config(1, 0.5), np.float16, double, X.shape, table={"k": [1, 2]})


def test_variadic_and_keyword_only(on):
    @nki.jit
    def kernel(*arrays, scale, **others):
        total = nl.load(arrays[0])
        for a in arrays[1:]:
            total += nl.load(a)
        for name in sorted(others):
            total += nl.load(others[name])
        return output_of(total * scale)
    check(on, kernel, (X + Y + X + Y) * 2, X, Y, scale=2, b=X, a=Y)


def test_defaults_closures_and_globals(on):
    def made(scale):
        @nki.jit
        def kernel(x, offset=4):
            return output_of(nl.load(x) * scale * FACTOR + offset)
        return kernel
    check(on, made(2), X * 6 + 4, X)
    check(on, made(5), X * 15 + 1, X, offset=1)


def test_constants_are_read_at_each_call(on, monkeypatch):
    """A kernel that was captured for one value of a closure or global is captured again for another."""
    scale = 2

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * scale + FACTOR)
    check(on, kernel, X * 2 + 3, X)
    scale = 7
    check(on, kernel, X * 7 + 3, X)
    monkeypatch.setattr("tests.language.test_arguments.FACTOR", 11)
    check(on, kernel, X * 7 + 11, X)


def test_constants_of_helpers_are_read_at_each_call(on, monkeypatch):
    """What a helper reads in its own module counts as the kernel's own: directly, in a closure, or by the module's name."""
    inner, traced = outside.weighted, nki.jit(outside.weighted)

    @nki.jit
    def directly(x):
        return output_of(outside.weighted(nl.load(x)))

    @nki.jit
    def in_closures(x):
        return output_of((lambda tile: inner(tile))(nl.load(x)))

    @nki.jit
    def of_a_module(x):
        return output_of(nl.load(x) * outside.WEIGHT)

    @nki.jit
    def of_a_kernel(x):
        return output_of(traced(nl.load(x)))

    def all_give(factor):
        for kernel in (directly, in_closures, of_a_module, of_a_kernel):
            check(on, kernel, X * factor, X)
    all_give(2)
    monkeypatch.setattr(outside, "WEIGHT", 5)
    all_give(5)


def test_methods_partials_and_callables(on):
    class Scaler:
        def __init__(self, scale):
            self.scale = scale

        def kernel(self, x):
            for i in nl.affine_range(2):
                tile = nl.load(x) * self.scale
            return output_of(tile * 1 if i is None else nl.load(x) * self.scale)

        def __call__(self, x):
            return output_of(nl.load(x) + self.scale)
    check(on, nki.jit(Scaler(3).kernel), X * 3, X)
    check(on, nki.jit(Scaler(3)), X + 3, X)

    def scaled(x, scale, offset):
        return output_of(nl.load(x) * scale + offset)
    check(on, nki.jit(functools.partial(scaled, scale=4, offset=1)), X * 4 + 1, X)


def test_numpy_scalars_are_constants(on):
    @nki.jit
    def kernel(x, n, s):
        assert isinstance(n, np.integer)
        return output_of(nl.load(x[0:n, :]) * s)
    check(on, kernel, X[:5] * 3, X, np.int64(5), np.float32(3))


def test_arrays_of_other_layouts(on):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) + 1)
    check(on, kernel, X[::2, ::-1] + 1, X[::2, ::-1])
    check(on, kernel, X.T[:8].T + 1, np.asfortranarray(X))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float16,
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2],
                         ids=lambda d: np.dtype(d).name)
def test_arguments_of_each_dtype(on, dtype):
    x = (np.abs(X) % 2).astype(dtype)

    @nki.jit
    def kernel(x):
        assert x.dtype == dtype and x.shape == (16, 8)
        return output_of(nl.load(x))
    check(on, kernel, x, x)


def test_bad_arguments(on):
    @nki.jit
    def kernel(x, n):
        return output_of(nl.load(x) * n)
    for arguments, part in (((X,), "n"), ((X, 1, 2), "too many"), ((X.astype(np.float64), 2), "float64")):
        with pytest.raises(BadArgument, match=part) as caught:
            run(on, kernel, *arguments)
        assert isinstance(caught.value, TypeError)
    with pytest.raises(BadArgument, match="kernel"):
        kernel.on(on)(x=X, m=2)


# -- results -----------------------------------------------------------------------------------------------------------
def test_results__one_tuple_list_nested(on):
    @nki.jit
    def kernel(x, how):
        tile = nl.load(x)
        a, b, c = output_of(tile), output_of(tile * 2), output_of(tile * 3)
        return {"one": a, "tuple": (a, b), "list": [a, b], "nested": (a, [b, (c,)]), "same": (a, a),
                "dict": {"first": a, "rest": (b, c)}, "single": (a,)}[how]
    check(on, kernel, X, X, "one")
    for how, expected in (("tuple", (X, X * 2)), ("list", [X, X * 2]), ("nested", (X, [X * 2, (X * 3,)])),
                          ("same", (X, X)), ("single", (X,))):
        got = run(on, kernel, X, how)
        compare(got, expected)
        assert isinstance(got, tuple) or how == "list"
    got = run(on, kernel, X, "dict")
    compare((got["first"], got["rest"]), (X, (X * 2, X * 3)))


def test_results__private_hbm(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
        for i in nl.affine_range(2):
            rows = nl.ds(i * 8, 8)
            nl.store(scratch[rows, :], nl.load(x[rows, :]) * 2)
            nl.store(out[rows, :], nl.load(scratch[rows, :]) + 1)
        return out
    check(on, kernel, X * 2 + 1, X)


def test_results__reshaped(on):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out.reshape((4, 32)), out[...]
    check(on, kernel, (X.reshape(4, 32), X), X)


def test_results__parameter_given_back(on):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * 2), x
    check(on, kernel, (X * 2, X), X)


def test_results__written_by_reference(on):
    @nki.trace
    def kernel(x, y, out):
        nl.store(out, nl.load(x) + nl.load(y))
    out = np.zeros_like(X)
    for launch in (kernel, nki.jit(kernel.func), nki.jit(kernel), nki.baremetal(kernel), kernel.func):
        out[...] = 0
        got = nki.simulate_kernel(launch, X, Y, out)
        compare(out, X + Y)
        assert got is out
    out[...] = 0
    got = kernel.on(on)(X, Y, out)
    compare(out, X + Y)
    assert got is out


def test_results__several_by_reference_in_parameter_order(on):
    @nki.trace
    def kernel(b, x, a):
        nl.store(a, nl.load(x) * 2)
        nl.store(b, nl.load(x) * 3)
    a, b = np.zeros_like(X), np.zeros_like(X)
    got = kernel.on(on)(b, X, a)
    compare(got, (X * 3, X * 2))
    compare((b, a), (X * 3, X * 2))


def test_results__by_reference_into_arrays_of_other_layouts(on):
    @nki.trace
    def kernel(x, out):
        nl.store(out, nl.load(x) * 2)
    out = np.zeros((8, 16), np.float32).T
    kernel.on(on)(X, out)
    compare(np.ascontiguousarray(out), X * 2)


def test_results__read_modify_write_of_a_parameter(on):
    @nki.trace
    def kernel(x):
        nl.store(x, nl.load(x) * 2 + 1)
    x = X.copy()
    got = kernel.on(on)(x)
    compare(x, X * 2 + 1)
    assert got is x


def test_results__mutable_parameter(on):
    @nki.jit
    def kernel(x, y: nt.mutable_tensor):
        nl.store(y[0:4, :], nl.load(x[0:4, :]))
        return y
    y = Y.copy()
    got = kernel.on(on)(X, y)
    expected = Y.copy()
    expected[:4] = X[:4]
    compare(got, expected)
    compare(y, expected)


def test_results__mutable_parameters_in_a_structure(on):
    @nki.jit
    def kernel(x, caches: nt.mutable_tensor):
        for k, cache in enumerate(caches):
            nl.store(cache, nl.load(x) * (k + 1))
        return caches
    a, b = np.zeros_like(X), np.zeros_like(X)
    kernel.on(on)(X, (a, b))
    compare((a, b), (X, X * 2))


def test_results__different_programs_write_different_outputs(on):
    @nki.jit
    def kernel(x):
        a = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        b = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scale = 2 if nl.program_id(0) == 0 else 3
        if scale == 2:
            nl.store(a, nl.load(x) * scale)
        else:
            nl.store(b, nl.load(x) * scale)
        return a, b
    check(on, kernel, (X * 2, X * 3), X, grid=2)


# -- errors ------------------------------------------------------------------------------------------------------------
def failing(on, error, kernel, *arguments, grid=None):
    with pytest.raises(KernelError) as caught:
        run(on, kernel, *arguments, grid=grid)
    assert type(caught.value) is error, caught.value
    assert caught.value.at is not None and caught.value.at.file == __file__, caught.value
    return caught.value


def statement(function, text):
    """The line of the statement in a function that has the text."""
    import inspect
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def test_input_is_immutable(on):
    @nki.jit
    def kernel(x):
        y = nl.load(x) + 1
        nl.store(x, y)
        return x
    error = failing(on, ImmutableParameter, kernel, X)
    assert error.name == "err_cannot_update_immutable_parameter"
    assert error.at.line == statement(kernel.func, "nl.store")


def test_input_is_immutable_beside_an_output(on):
    @nki.jit
    def kernel(x):
        out = output_of(nl.load(x))
        nl.store(x, 0.0)
        return out
    failing(on, ImmutableParameter, kernel, X)


def test_mutable_parameter_must_be_returned(on):
    @nki.jit
    def kernel(x, y: nt.mutable_tensor):
        nl.store(y, nl.load(x))
        return output_of(nl.load(x))
    assert failing(on, MutableNotReturned, kernel, X, Y).name == "err_mutable_parameter_not_returned"


def test_output_must_be_written(on):
    @nki.jit
    def never(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        return out

    @nki.jit
    def dead_loop(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(128 // 129):
            nl.store(out[i], nl.load(x[i]))
        return out

    @nki.jit
    def one_of_two(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        return output_of(nl.load(x)), out

    @nki.jit
    def under_conditions(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.sequential_range(8):
            if (i > 3) & (i % 8 < 3):
                nl.store(out, nl.load(x))
        return out

    @nki.jit
    def under_masks(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows = nl.arange(x.shape[0])[:, None]
        for i in nl.sequential_range(4):
            nl.store(out, nl.load(x), mask=(rows + i > 3) & (rows + i < 4))
        return out
    for kernel in (never, dead_loop, one_of_two, under_conditions, under_masks):
        error = failing(on, OutputNotWritten, kernel, X)
        assert error.name == "err_tensor_output_not_written_to"
        assert error.at.line == statement(kernel.func, "out = nl.ndarray")


def test_there_must_be_an_output():
    @nki.jit
    def kernel(x):
        nl.load(x)
    for on in EXECUTORS:
        with pytest.raises(OutputNotWritten):
            run(on, kernel, X)


def test_results_must_be_tensors_in_hbm(on):
    @nki.jit
    def tile(x):
        return nl.load(x)

    @nki.jit
    def number(x):
        return 3

    @nki.jit
    def part(x):
        return output_of(nl.load(x))[0:4]
    for kernel in (tile, number, part):
        assert failing(on, BadResult, kernel, X).at.line == kernel.__wrapped__.__code__.co_firstlineno + 1


# -- launch forms ------------------------------------------------------------------------------------------------------
@nki.jit
def doubled(x):
    return output_of(nl.load(x) * 2)


def test_launch_forms():
    plain = doubled.func
    for kernel in (plain, nki.jit(plain), nki.trace(plain), nki.baremetal(plain), nki.baremetal(doubled),
                   nki.jit(doubled, mode="simulation"), nki.jit(mode="simulation")(plain),
                   nki.jit(doubled, mode="simulation", platform_target="trn2"), nki.baremetal(doubled)[1],
                   nki.jit(experimental_flags="x", debug_kernel=True, kernel_return=True)(plain)):
        compare(nki.simulate_kernel(kernel, X), X * 2)
    compare(nki.jit(plain, mode="simulation")(X), X * 2)
    assert doubled.__name__ == "doubled" and doubled.func is plain


def test_kernels_have_the_names_of_their_functions_and_take_attributes(tmp_path):
    for kernel in (nki.jit(doubled.func), nki.benchmark(doubled.func),
                   nki.baremetal(doubled.func, artifacts_dir=tmp_path)):
        assert (kernel.__name__, kernel.__qualname__, kernel.__module__) == ("doubled", "doubled", __name__)
        assert kernel.__doc__ is doubled.func.__doc__ is None
        kernel.__name__, kernel.expected = "twice", lambda x: x * 2
        assert kernel[1].__name__ == "twice" and doubled.__name__ == "doubled"
        compare(kernel.on("eager")(X), kernel[1].expected(X))

    @functools.wraps(doubled)
    def caller(x):
        """Calls it."""
        return doubled(x)
    assert caller.__wrapped__ is doubled and functools.update_wrapper(nki.jit(doubled), caller).__name__ == "doubled"


def test_kernels_of_classes(on):
    class Scaled:
        def __init__(self, by):
            self.by = by

        @nki.jit
        def method(self, x, more=0):
            return output_of(nl.load(x) * self.by + more)

        @classmethod
        @nki.jit
        def of_class(cls, x):
            return output_of(nl.load(x) * (2 if cls is Scaled else 3))

        @nki.jit
        def plain(x):
            return output_of(nl.load(x) * 5)

        assigned = doubled
    one, two = Scaled(3), Scaled(4)
    for scaled in (one, two, one):
        compare(scaled.method.on(on)(X), X * scaled.by)
        compare(scaled.method[1].on(on)(X, more=1), X * scaled.by + 1)
    one.by = 7
    compare(one.method.on(on)(X), X * 7)
    compare(Scaled.method.on(on)(two, X), X * 4)
    compare(Scaled.of_class.on(on)(X), X * 2)
    compare(one.plain.on(on)(X), X * 5)
    compare(one.assigned.on(on)(X), X * 2)


def test_simulate_takes_keywords(on):
    @nki.jit
    def kernel(x, *, scale=1):
        return output_of(nl.load(x) * scale)
    compare(nki.simulate_kernel(kernel.on(on), x=X, scale=4), X * 4)


def test_target_is_read_at_launch(on, monkeypatch):
    from nki_mlir.language.beta import isa as nisa

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * int(nisa.get_nc_version()))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    check(on, kernel, X * 2, X)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    check(on, kernel, X * 3, X)


def test_specialisations_are_kept(on):
    if on == "eager":
        pytest.skip("executes without capturing")
    calls = []

    @nki.jit
    def kernel(x, scale):
        calls.append(scale)
        return output_of(nl.load(x) * scale)
    for scale in (2, 2, 3, 2):
        check(on, kernel, X * scale, X, scale)
    assert calls == [2, 3]
    check(on, kernel, X[:8] * 2, X[:8], 2)
    assert len(calls) == 3
