# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decorating, launching and simulating kernels."""

import dataclasses
import enum
import re

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current import typing as nt
from nki_mlir.language.current.compiler import compile_kernel

from .running import numbers, run


def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


def test_decorators():
    x = numbers(16, 8)
    bare, called = nki.jit(doubled), nki.jit()(doubled)
    assert nki.jit(bare) is bare
    for kernel in (bare, called, nki.simulate(doubled), nki.simulate(bare[1]), nki.simulate(bare)[1],
                   nki.cpu_simulate(bare)[1]):
        np.testing.assert_array_equal(kernel(x), x * 2)
    np.testing.assert_array_equal(nki.simulate(nki.jit(mode="anything")(doubled))(x), x * 2)


def test_outputs_that_are_not_asked_for_are_none(on):
    def kernel(x, squares):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        also = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) if squares else None
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        if squares:
            nl.store(also, nl.square(nl.load(x)))
        return out, [also]
    x = numbers(16, 8)
    for squares, expected in ((True, x * x), (False, None)):
        out, (also,) = nki.jit(kernel).on(on)(x, squares)
        np.testing.assert_array_equal(out, x * 2)
        np.testing.assert_array_equal(also, expected)


def test_simulator_by_environment(monkeypatch):
    def kernel(x):
        assert nl.load(x).sim_value is not None         # only the simulator has values
        return doubled(x)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    x = numbers(16, 8)
    np.testing.assert_array_equal(nki.jit(kernel)(x), x * 2)


def test_loops_are_pythons(on):
    def kernel(x):
        out = nl.ndarray((8, 1), x.dtype, buffer=nl.shared_hbm)
        count, tiles = 0, []
        for i in nl.affine_range(8):
            count += 1
            tiles.append(nl.load(x[i:i + 1]))
            assert isinstance(i, int)
        while count > 6:
            count -= 1
        for i, t in enumerate(reversed(tiles)):
            nl.store(out[i:i + 1], nl.multiply(t, float(count)))
        return out
    x = numbers(8, 1)
    np.testing.assert_array_equal(run(on, kernel, x), x[::-1] * 6)


def test_two_cores(on):
    def kernel(x):
        assert (nl.program_ndim(), nl.num_programs()) == (1, 2)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, n = nl.program_id(0), x.shape[0] // 2
        scale = 2.0 if i == 0 else 3.0                  # a branch of Python
        nl.store(out[i * n:(i + 1) * n], nl.multiply(nl.load(x[i * n:(i + 1) * n]), scale))
        return out
    x = numbers(32, 8)
    np.testing.assert_array_equal(run(on, kernel, x, cores=2), np.concatenate([x[:16] * 2, x[16:] * 3]))


@pytest.mark.parametrize("cores, expected", [(None, (0, 1, 0)), (1, (1, 1, 0))])
def test_one_core(on, cores, expected):
    observed = []

    def kernel(x):
        observed.append((nl.program_ndim(), nl.num_programs(0), nl.program_id(0)))
        nisa.core_barrier(x, (0,))
        return doubled(x)
    run(on, kernel, numbers(4, 4), cores=cores)
    assert observed[-1] == expected


def test_launches_that_do_not_exist(monkeypatch):
    kernel = nki.jit(doubled)
    for cores in (0, 3, 8):
        with pytest.raises(AssertionError, match="1 to 2 cores"):
            kernel[cores]
    with pytest.raises(TypeError, match="an integer number of cores"):
        kernel[2.5]
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(AssertionError, match="1 to 1 cores"):
        kernel[2]
    with pytest.raises(AssertionError, match="invalid program axis -1"):
        nki.simulate(lambda x: nl.program_id(-1))(numbers(2, 2))


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
@pytest.mark.parametrize("cores", [2, (3, 2)])
def test_launch_of_a_kernel_that_gets_its_grid_as_an_argument(on, cores):
    """Each program of a migrated kernel would compute the part of the first one, because it loops over them itself."""
    def kernel(x, grid=(1,)):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in range(grid[0]):
            nl.store(out[i:i + 1], nl.multiply(nl.load(x[i:i + 1]), 2.0))
        return out
    x = numbers(6, 8)
    argument = "(2,)" if cores == 2 else "(3, 2)"
    rule = r"kernel is launched with \[.*\], but its parameter grid is \(1,\)"
    with pytest.raises(AssertionError, match=rule) as error:
        nki.jit(kernel).on(on)[cores](x)
    assert error.value.at is not None and f"kernel(..., grid={argument})" in str(error.value)
    np.testing.assert_array_equal(run(on, kernel, x, (6,)), x * 2)
    np.testing.assert_array_equal(run(on, kernel, x, (6,), cores=2), x * 2)


@pytest.mark.parametrize("read", [lambda: nl.program_id(0), lambda: nl.num_programs(0)])
def test_launch_of_a_kernel_with_a_parameter_named_grid(on, read):
    def kernel(x, grid=(1, 1)):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) if read() >= 0 else x)
        return out
    x = numbers(6, 8)
    np.testing.assert_array_equal(run(on, kernel, x, cores=2), x)


def exchange(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i, n = nl.program_id(0), x.shape[0] // 2
    mine, theirs = nl.load(x[i * n:(i + 1) * n]), nl.ndarray((n, x.shape[1]), x.dtype)
    nisa.sendrecv(mine, theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
    nl.store(out[i * n:(i + 1) * n], theirs)
    return out


def test_cores_exchange_tiles(on):
    x = numbers(32, 8)
    np.testing.assert_array_equal(run(on, exchange, x, cores=2), np.concatenate([x[16:], x[:16]]))


def test_a_barrier_makes_writes_of_the_other_core_visible(on):
    def kernel(x):
        out = nl.ndarray((2, 8), x.dtype, buffer=nl.shared_hbm)
        shared = nl.ndarray((2, 8), x.dtype, buffer=nl.shared_hbm, name="shared")
        i = nl.program_id(0)
        nl.store(shared[i:i + 1], nl.multiply(nl.load(x[i:i + 1]), 2.0))
        nisa.core_barrier(shared, (0, 1))
        nl.store(out[i:i + 1], nl.load(shared[1 - i:2 - i]))
        return out
    x = numbers(2, 8)
    np.testing.assert_array_equal(run(on, kernel, x, cores=2), x[::-1] * 2)


def test_a_barrier_in_a_loop_counts_its_iterations(on):
    """Each core adds what the other has, again and again: one that runs ahead would read an old value."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="shared")
        i = nl.program_id(0)
        mine = nl.load(x[i:i + 1])
        for _ in range(5):
            nl.store(shared[i:i + 1], mine)
            nisa.core_barrier(shared, (0, 1))
            mine = nl.add(mine, nl.load(shared[1 - i:2 - i]))
            nisa.core_barrier(shared, (0, 1))
        nl.store(out[i:i + 1], mine)
        return out
    x = numbers(2, 8)
    expected = x.copy()
    for _ in range(5):
        expected = expected + expected[::-1]
    np.testing.assert_array_equal(run(on, kernel, x, cores=2), expected)


def test_a_barrier_that_only_one_core_reaches(on):
    def kernel(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))
        return doubled(x)
    with pytest.raises(NkiMlirError) as caught:
        run(on, kernel, numbers(4, 4), cores=2)
    assert re.search(r"core 0 waits in nisa.core_barrier for core 1 \(.*test_kernels.py:\d+:\d+\); core 1 has ended",
                     caught.value.headline)
    assert caught.value.at.file == __file__


def test_cores_that_come_to_different_meetings(on):
    def kernel(x):
        shared, tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
        if nl.program_id(0) == 0:
            nisa.core_barrier(shared, (0, 1))
        else:
            nisa.sendrecv(tile, tile, send_to_rank=0, recv_from_rank=0, pipe_id=0)
        nl.store(shared, tile)
        return shared
    with pytest.raises(NkiMlirError, match=r"core 0 waits in nisa.core_barrier .*core 1 waits in nisa.sendrecv"):
        run(on, kernel, numbers(4, 4), cores=2)


def test_cores_that_do_not_send_to_each_other(on):
    def kernel(x):
        out, tile, got = doubled(x), nl.load(x), nl.ndarray(x.shape, x.dtype)
        nisa.sendrecv(tile, got, send_to_rank=nl.program_id(0), recv_from_rank=1 - nl.program_id(0), pipe_id=0)
        nl.store(out, got)
        return out
    with pytest.raises(NkiMlirError, match=r"core (\d) receives from core (\d), which sends to core \2"):
        run(on, kernel, numbers(4, 4), cores=2)


def test_cores_that_exchange_unlike_tiles(on):
    def kernel(x):
        out, n = doubled(x), 1 + nl.program_id(0)
        got = nl.ndarray((n, x.shape[1]), x.dtype)
        other = 1 - nl.program_id(0)
        nisa.sendrecv(nl.load(x[0:n]), got, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        nl.store(out[0:n], got)
        return out
    with pytest.raises(NkiMlirError, match=r"sendrecv: .*\[1, 4\], .*\[2, 4\]"):
        run(on, kernel, numbers(4, 4), cores=2)


def test_inputs_are_updated_in_place(on):
    def kernel(x, y):
        nl.store(x, nl.add(nl.load(x), nl.load(y)))
    x, y = numbers(16, 8), numbers(16, 8, seed=1)
    copy_of_x = x.copy()
    nki.jit(kernel).on(on)(copy_of_x, y)
    np.testing.assert_array_equal(copy_of_x, x + y)
    strided = np.asfortranarray(x)
    assert nki.simulate(kernel)(strided, y) is None
    np.testing.assert_array_equal(strided, x + y)


def test_structures_of_results(on):
    def kernel(x):
        a, b = doubled(x), doubled(x)
        return {"first": a, "others": [b, (a,)]}
    x = numbers(4, 4)
    results = run(on, kernel, x)
    assert list(results) == ["first", "others"] and isinstance(results["others"][1], tuple)
    np.testing.assert_array_equal(results["others"][0], x * 2)


def test_fresh_memory_holds_sentinels():
    def kernel(x):
        assert np.isnan(nl.ndarray((2, 2), nl.bfloat16).sim_value.astype(np.float32)).all()
        assert (nl.ndarray((2, 2), nl.int16, buffer=nl.psum).sim_value == 4).all()
        out, places = (nl.ndarray((2, 3), t, buffer=nl.shared_hbm) for t in (nl.float32, nl.uint8))
        nisa.dma_copy(out[:, 0:2], x)
        nisa.dma_copy(places, nl.ndarray((2, 3), nl.uint8))
        return out, places
    x = numbers(2, 2)
    a, b = nki.simulate(kernel)(x)
    assert np.array_equal(a[:, :2], x) and np.isnan(a[:, 2]).all() and (b == 4).all()


class Mode(enum.Enum):
    TWICE, THRICE = 2, 3


@dataclasses.dataclass(frozen=True)
class Config(nl.NKIObject):
    mode: Mode
    dtype: object = nl.float32


def test_arguments_that_are_no_tensors(on):
    def kernel(x, config, names=None, function=nl.add, pair=(1, 2)):
        assert names is None and config.mode == Mode.THRICE and config != None  # noqa: E711
        out = nl.ndarray(x.shape, config.dtype, buffer=nl.shared_hbm)
        nl.store(out, function(nl.load(x), float(config.mode.value + pair[1])))
        return out
    x = numbers(4, 4)
    np.testing.assert_array_equal(run(on, kernel, x, Config(Mode.THRICE)), x + 5)


def test_kernels_call_kernels(on):
    inner = nki.jit(doubled)

    def kernel(x):
        return inner(inner(x))
    x = numbers(4, 4)
    np.testing.assert_array_equal(run(on, kernel, x), x * 4)


def test_schedules():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        a = nisa.tensor_scalar(t, t, nl.multiply, 2.0, name="scale")
        b = nisa.dma_copy(out, t, name="store")
        assert b.depends_on(a) is b
        return out
    compiled = nki.jit(kernel)
    x = numbers(4, 4)
    np.testing.assert_array_equal(nki.simulate(compiled.with_schedule([("store", ["scale"])])[1])(x), x * 2)
    for edges, text in (([("store", "other")], "'other'"), ([("store",)], "must be a pair"),
                        ([("store", 1)], "a string")):
        with pytest.raises(AssertionError, match=text):
            nki.simulate(compiled.with_schedule(edges))(x)


def test_annotated_parameters(on):
    """Annotations of parameters change nothing."""
    def kernel(x: nt.tensor[4, 4], y: nt.tensor[[8192, 4096], nl.bfloat16], flag: nki.dtype = None):
        return doubled(x)
    for x in (numbers(4, 4), numbers(4, 5)):
        np.testing.assert_array_equal(nki.jit(kernel).on(on)(x, x), 2 * x)
        np.testing.assert_array_equal(nki.simulate(kernel)(x, y=x), 2 * x)


def test_tensors_that_are_described_by_shape_and_dtype(on):
    """In place of arrays: what kernels that are only measured are called with."""
    def kernel(x):
        assert x.shape == (128, 32) and x.dtype == nl.bfloat16
        out = nl.ndarray(x.shape, nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out
    described = nt.tensor[[128, 32], nl.bfloat16]
    for result in (nki.jit(kernel).on(on)(described), nki.jit(kernel).on(on)(x=described), nki.simulate(kernel)(described)):
        np.testing.assert_array_equal(result, np.zeros((128, 32), np.float32))


def test_a_users_assertion_keeps_its_message(on):
    def kernel(x):
        assert x.shape[0] == 5, "[NCC_INKI016] Kernel validation exception: five rows"
    with pytest.raises(AssertionError, match=r"\[NCC_INKI016\] Kernel validation exception: five rows"):
        run(on, kernel, numbers(4, 4))


def test_compiled_apart():
    compiled = compile_kernel(doubled, [((4, 4), np.float32)])
    assert "nki.binary_scalar" in str(compiled.module)


def test_addresses_and_names():
    def kernel(x):
        t = nl.ndarray((32, 4), nl.float32, name="mine", address=(64, 256))
        assert t.name == "mine" and t.address == (64, 256)
        return doubled(x)
    nki.simulate(kernel)(numbers(4, 4))

    def twice(x):
        nl.ndarray((2, 2), nl.float32, name="a"), nl.ndarray((2, 2), nl.float32, name="a")
    with pytest.raises(AssertionError, match=r"(?s)Tensor name 'a' already in use.*test_kernels\.py:\d+ created a tensor"):
        nki.simulate(twice)(numbers(4, 4))

    def in_a_loop(x):
        for _ in range(2):
            nl.ndarray((2, 2), nl.float32, name="a")
    with pytest.raises(AssertionError, match="this call created a tensor of that name before"):
        nki.simulate(in_a_loop)(numbers(4, 4))
    for address, text in (((5, 0), "must be 0, 32, 64, or 96"), ((96, 0), "do not fit"),
                          ((0, 4), "start of a PSUM bank")):
        with pytest.raises(AssertionError, match=text):
            nki.simulate(lambda x, a=address: nl.ndarray((64, 4), nl.float32, buffer=nl.psum, address=a))(numbers(4, 4))


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.arange(32, dtype=torch.bfloat16).reshape(4, 8)
    result = nki.simulate(doubled)(x)
    assert result.dtype is torch.bfloat16 and torch.equal(result, x * 2)


def test_results_say_what_was_compiled(on):
    """An on-chip tensor of one dimension is a column."""
    def kernel(x):
        out = nl.ndarray((4,), x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((4,), x.dtype)
        nisa.dma_copy(t, x)
        nisa.dma_copy(out, t)
        return out
    x = numbers(4, 1)
    np.testing.assert_array_equal(run(on, kernel, x), x[:, 0])
