# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels give: conventions of outputs, and the errors of parameters and outputs."""

import numpy as np
import pytest

from nki_mlir.capture.errors import ImmutableParameter, MutableNotReturned
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.require_written import OutputNotWritten
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.results import BadResult

from .conftest import EXECUTORS
from .running import check, compare, numbers, output_of, run

X, Y = numbers(16, 8), numbers(16, 8, seed=1)


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
        with pytest.raises(OutputNotWritten, match="the kernel returns no tensor and writes none of its parameters"):
            run(on, kernel, X)


def test_results_must_be_whole_tensors(on):
    @nki.jit
    def number(x):
        return 3

    @nki.jit
    def part(x):
        return output_of(nl.load(x))[0:4]
    for kernel in (number, part):
        assert failing(on, BadResult, kernel, X).at.line == kernel.__wrapped__.__code__.co_firstlineno + 2


def test_a_kernel_returns_what_a_store_gives(on):
    """The tensor, also where a part of it was written; nothing of a parameter, which is updated."""
    def full(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        return nl.store(out, nl.load(x))

    def in_parts(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:4, :], nl.load(x[4:8, :]))
        return nl.store(out[4:8, :], nl.load(x[0:4, :]))

    def in_place(x, out):
        return nl.store(out, nl.load(x))
    x = numbers(8, 6)
    compare(run(on, nki.jit(full), x), x)
    compare(run(on, nki.jit(in_parts), x), np.concatenate([x[4:], x[:4]]))
    compare(run(on, nki.jit(in_place), x, np.zeros_like(x)), x)
