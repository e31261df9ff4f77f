# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls like one before take a short way; whatever a program depends on takes them off it."""

import dataclasses
import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language import call_cache
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.call_cache import CachedCall, CallCache, key_of_arrays, key_of_bound
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.language.kernel import is_array

FACTOR = 2.0


def scaled(x, factor=3.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * FACTOR + factor)
    return out


def of_current(x):
    out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
    tile = current_nl.load(x)
    current_nl.store(out, current_nl.add(tile, tile))
    return out


@pytest.fixture
def kernel():
    """Whose call with 4 x 8 numbers is a repeated one: the first captures it, the second finds the capture."""
    kernel = nki.jit(scaled)
    for _ in range(2):
        kernel(numbers(4, 8))
    assert len(short_calls(kernel)) == 1
    return kernel


def short_calls(kernel):
    """What is left of the calls that take the short way."""
    return [run for call in kernel.specializations.calls() for run in call.runs.values()]


def doubled(x, out: nt.mutable_tensor):
    nl.store(out, nl.load(x) * 2.0)


@pytest.mark.parametrize("mode, apart", [("auto", False), ("trace", False), ("baremetal", True), ("benchmark", True)])
def test_a_call_that_writes_a_parameter_is_short_in_each_mode(mode, apart, capsys):
    kernel = nki.jit(doubled, mode=mode)
    out = np.zeros((4, 8), np.float32)
    results = [kernel(numbers(4, 8) + k, out) for k in range(4)]
    assert len(short_calls(kernel)) == 1
    assert [np.shares_memory(result, out) for result in results] == [not apart] * 4
    for k, result in enumerate(results):
        assert np.array_equal(result, (numbers(4, 8) + (k if apart else 3)) * 2)


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_second_call_is_short_and_reads_its_own_arrays(kernel):
    [short] = short_calls(kernel)
    first, second = kernel(numbers(4, 8)), kernel(numbers(4, 8) + 1)
    assert short_calls(kernel) == [short] and first is not second
    assert np.array_equal(first, numbers(4, 8) * 2 + 3) and np.array_equal(second, numbers(4, 8) * 2 + 5)


def test_shapes_constants_and_dtypes_have_programs_of_their_own(kernel):
    half = kernel(numbers(2, 2).astype(np.float16))
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8), 1.0), numbers(4, 8) * 2 + 1)
        assert np.array_equal(kernel(numbers(4, 8), 1), numbers(4, 8) * 2 + 1)
        assert np.array_equal(kernel(numbers(2, 2)), numbers(2, 2) * 2 + 3)
        assert np.array_equal(kernel(numbers(2, 2).astype(np.float16)), half)
    assert half.dtype == np.float16 and len(short_calls(kernel)) == 5


def test_global_that_changes_is_seen(kernel, monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    for _ in range(2):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 5 + 3)
    monkeypatch.undo()
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 2 + 3)


def added(x, by):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) + by)
    return out


def repeated(function):
    """A kernel that was called until its calls are quick ones."""
    kernel = nki.jit(function)
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 1)
    return kernel


def test_defaults_that_change_are_seen():
    def shifted(x, by=1.0):
        return added(x, by)
    kernel = repeated(shifted)
    shifted.__defaults__ = (7.0,)
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 7)


def test_attributes_that_a_helper_is_given_are_seen():
    def helper():
        return getattr(helper, "by", 1.0)

    def shifted(x):
        return added(x, helper())
    kernel = repeated(shifted)
    helper.by = 7.0
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 7)
    del helper.by
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 1)


def test_globals_that_are_immutable_again_are_seen(monkeypatch):
    """What was seen at the quick calls is not what a later capture, of a list, saw."""
    monkeypatch.setitem(globals(), "BY", 1.0)

    def shifted(x):
        return added(x, BY[0] if isinstance(BY, list) else BY)          # noqa: F821
    kernel = repeated(shifted)
    monkeypatch.setitem(globals(), "BY", [7.0])
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 7)
    monkeypatch.setitem(globals(), "BY", 1.0)
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 1)


def test_keyword_defaults_that_change_in_place_are_seen():
    def shifted(x, *, by=1.0):
        return added(x, by)
    kernel = repeated(shifted)
    shifted.__kwdefaults__["by"] = 7.0
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 7)
    shifted.__kwdefaults__ = {"by": 2.0}
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) + 2)


def test_executor_and_target_of_the_environment_count(kernel, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "nowhere")
    with pytest.raises(ValueError, match="there is no executor named 'nowhere'"):
        kernel(numbers(4, 8))
    monkeypatch.delenv("NKI_MLIR_EXECUTOR")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn99")
    with pytest.raises(NkiMlirError, match="no target named 'trn99'"):
        kernel(numbers(4, 8))
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "loud")
    with pytest.raises(ValueError, match="NKI_MLIR_DEVICE_RULES cannot be 'loud'"):
        kernel(numbers(4, 8))


@pytest.mark.parametrize("array", [numbers(8, 4).T, numbers(4, 16)[:, ::2]])
def test_arrays_in_another_order_give_their_values(kernel, array):
    for _ in range(3):
        assert np.array_equal(kernel(array), array * 2 + 3)


def test_bytes_in_the_other_order_are_refused_still(kernel):
    with pytest.raises(TypeError, match=">f4 is not an element type"):
        kernel(numbers(4, 8).astype(">f4"))


def test_read_only_arrays(kernel):
    array = numbers(4, 8)
    array.flags.writeable = False
    for _ in range(3):
        assert np.array_equal(kernel(array), array * 2 + 3)


def test_parameters_that_are_updated_are_updated_each_time():
    @nki.jit
    def double(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) * 2.0)
        return x
    array = numbers(4, 8)
    for _ in range(4):
        assert double(array) is array
    assert np.array_equal(array, numbers(4, 8) * 16) and len(short_calls(double)) == 1
    columns, fixed = np.asfortranarray(numbers(4, 8)), numbers(4, 8)
    double(columns)
    assert np.array_equal(columns, numbers(4, 8) * 2)
    fixed.flags.writeable = False
    for executor in ("interpreter", "jit", "isa"):
        with pytest.raises(TypeError, match="writes its parameter x, and the array passed for it is read-only"):
            double.on(executor)(fixed)
    with pytest.raises(TypeError, match="read-only"):
        double(fixed)
    assert np.array_equal(fixed, numbers(4, 8))


def test_current_generation_and_its_simulation(monkeypatch):
    kernel = current_nki.jit(of_current)
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 2)
    assert len(short_calls(kernel)) == 1
    monkeypatch.setattr(call_cache.ArrayRun, "__call__", None)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 2)


def test_run_time_index_out_of_bounds_is_an_index_error_each_time():
    @nki.jit
    def rows(table, where):
        out = nl.ndarray((4, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
        at = nl.load(where)
        nl.store(out, nl.load(table[at[nl.arange(4)[:, None], 0], nl.arange(8)[None, :]]))
        return out
    table, inside = numbers(16, 8), np.array([[3], [1], [0], [15]], np.int32)
    for _ in range(2):
        assert np.array_equal(rows(table, inside), table[inside[:, 0]])
    assert len(short_calls(rows)) == 1
    for _ in range(2):
        with pytest.raises(IndexError, match="out of bounds") as caught:
            rows(table, inside + 1)
        assert type(caught.value) is IndexError


@pytest.mark.parametrize("value", [0.0, -0.0, float("nan"), (1, 2), [1], np.float32(1), np.zeros((2, 2), np.float32).T])
def test_values_that_equality_does_not_tell_apart_have_no_key(value):
    keys = [key_of_arrays([], scaled, (numbers(4, 8), v)) for v in (value, 0, False, None)]
    assert len({repr(key) for key in keys}) == 4 or keys[0] is None


def test_calls_are_kept_up_to_a_bound(kernel, monkeypatch):
    monkeypatch.setattr("nki_mlir.language.call_cache.MOST", 3)
    for n in (1, 1, 2, 2, 3, 3, 4, 4):
        assert np.array_equal(kernel(numbers(1, n)), numbers(1, n) * 2 + 3)
    assert len(short_calls(kernel)) == 3


@pytest.mark.usefixtures("only_new_garbage")
def test_the_environment_bounds_captures(monkeypatch):
    def weighted(x, weight):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), weight))
        return out
    monkeypatch.setenv("NKI_MLIR_CAPTURES", "2")
    kernel, x, captures = nki.jit(weighted), numbers(2, 3), []
    for n in (*range(7, 12), 7, 8):
        assert np.array_equal(kernel(x, n / 4), x * np.float32(n / 4))
        captures += [weakref.ref(c) for c in kernel.specializations.values() if all(c is not r() for r in captures)]
    gc.collect()
    assert len(captures) == 7 and sum(capture() is not None for capture in captures) == 2


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9" * 5000])
def test_a_limit_of_captures_is_a_number(kernel, monkeypatch, text):
    monkeypatch.setenv("NKI_MLIR_CAPTURES", text)
    with pytest.raises(NkiMlirError) as raised:
        kernel(numbers(1, 1))
    assert str(raised.value) == (f"error: NKI_MLIR_CAPTURES is '{text[:40]}', which must be an integer of 1 or more "
                                 "[NKI-CAPTURES]\n  fix: set it to the number of captures that the cache keeps of a kernel")


def test_captures_that_were_used_last_are_kept(kernel, monkeypatch):
    monkeypatch.setattr("nki_mlir.language.call_cache.MOST", 2)
    captured = []
    capture = type(kernel)._capture
    monkeypatch.setattr(type(kernel), "_capture", lambda self, bound: captured.append(bound.specs[0].shape[1]) or
                        capture(self, bound))
    for n in (1, 2, 1, 3, 1, 2, 3):
        on = kernel.on("interpreter" if n == 1 else "jit")
        assert np.array_equal(on(numbers(1, n)), numbers(1, n) * 2 + 3)
        assert len(kernel.specializations) <= 2
    assert captured == [1, 2, 3, 2, 3]


def test_entries_of_keys_that_were_used_last_are_kept(monkeypatch):
    monkeypatch.setattr("nki_mlir.language.call_cache.MOST", 3)
    cache, seen = CallCache(), SimpleNamespace(key="seen", holds=lambda: True)
    for key in "abc":
        cache.add((key,), CachedCall(seen, key.upper()))
    assert cache.find_equal(("a",), seen).capture == "A" and cache.find_equal(("x",), seen) is None
    cache.add(("d",), CachedCall(seen, "D"))
    assert cache.values() == ["C", "A", "D"]
    cache.add(("d",), CachedCall(seen, "again"))
    assert cache.values() == ["A", "again", "D"] and cache.find(("d",)).capture == "again"


def with_defaults(x, y, factor=3.0, *, shift=1, name=None):
    return scaled(x, factor)


@pytest.mark.parametrize("arguments", [(2.5,), (0.0,), (), (True,), (None,), ("text",), (float("nan"),)])
def test_key_of_arrays_is_the_key_of_bound_arguments(arguments):
    kernel = nki.jit(with_defaults)
    arguments = (numbers(4, 8), numbers(2, 2).astype(np.float16), *arguments)
    bound = kernel.bind(arguments, {}, is_array, kernel.describe)
    assert key_of_arrays(list(kernel.settings()), with_defaults, arguments) == key_of_bound(kernel.settings(), bound)


@pytest.mark.usefixtures("only_new_garbage")
def test_kernel_that_is_gone_takes_what_it_sees_along():
    def kernel_that_reads(table):
        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * float(table[0]))
            return out
        return kernel
    table = numbers(1000) + 4
    kernel, seen = kernel_that_reads(table), weakref.ref(table)
    for _ in range(3):
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 4)
    del kernel, table
    gc.collect()
    assert seen() is None


@dataclasses.dataclass
class Scaled:
    """Equal to others, and hence without a hash."""

    factor: float

    def __call__(self, x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * self.factor)
        return out

    @nki.jit
    def method(self, x):
        return self(x)


def test_objects_without_a_hash_are_kernels():
    scaled = Scaled(2.0)
    kernel = nki.jit(scaled)
    for factor in (2.0, 2.0, 3.0, 3.0, 2.0):
        scaled.factor = factor
        assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * factor)
        assert np.array_equal(scaled.method(numbers(4, 8)), numbers(4, 8) * factor)
        assert np.array_equal(Scaled.method(scaled, numbers(4, 8)), numbers(4, 8) * factor)


def test_memories_of_the_language_are_constants_that_a_call_need_not_read_again():
    kernel = repeated(lambda x: added(x, 1.0))
    [call] = kernel.specializations.calls()
    assert call.seen.objects == []
    with pytest.raises(AttributeError, match="shared"):
        nl.shared_hbm.shared = False
    assert [(region, region.space, region.shared) for region in (nl.sbuf, nl.psum, nl.hbm, nl.private_hbm)] == [
        ("sbuf", "sbuf", False), ("psum", "psum", False), ("hbm", "hbm", False), ("hbm", "hbm", False)]
    assert (nl.shared_hbm, nl.shared_hbm.space, nl.shared_hbm.shared) == ("shared_hbm", "hbm", True)


class Amount(float):
    """A number of the user's, to which a kernel's code may give attributes."""


def test_numbers_of_the_user_may_change(kernel):
    amount = Amount(1.0)
    amount.by = 1.0
    changing = repeated(lambda x: added(x, amount.by))
    amount.by = 7.0
    assert np.array_equal(changing(numbers(4, 8)), numbers(4, 8) + 7)


@pytest.mark.parametrize("shape", [(4, 8), (1, 1), (128, 2048)])
def test_arrays_of_any_kind_are_read_where_they_are(shape):
    kernel, x = nki.jit(scaled), numbers(*shape)
    fixed, shifted = x.copy(), np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(shape)
    shifted[...] = x
    fixed.flags.writeable = False
    for array in (x, x, fixed, shifted, x.view(np.matrix), np.frombuffer(bytes(x), np.float32).reshape(shape)):
        assert np.array_equal(kernel(array), x * 2 + 3)
    assert len(short_calls(kernel)) == 1


def test_dropped_captures_are_captured_again(kernel):
    capture = weakref.ref(kernel.specializations.values()[0])
    call_cache.drop_captures()
    gc.collect()
    assert capture() is None and len(kernel.specializations) == 0
    assert np.array_equal(kernel(numbers(4, 8)), numbers(4, 8) * 2 + 3)
    assert len(kernel.specializations) == 1
