# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The names of tensors of the current generation: those of the variables that they are assigned to."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture.assigned_names import assigned_name
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki


def name():
    return [assigned_name()]                # the list is built behind the call: its value goes to no variable


def returned(value=0):
    return assigned_name()


def test_destinations():
    plain = returned()
    annotated: str = returned(1)
    one = other = returned(value=2)
    if (inline := returned(*[3])) != "inline":
        raise AssertionError(inline)
    thing = SimpleNamespace()
    thing.attribute = returned()
    several = (returned(), returned())
    assert (plain, annotated, one, other, thing.attribute) == ("plain", "annotated", "one", "one", "attribute")
    assert several == ("", "") and [returned() for _ in range(2)] == ["", ""] and name() == [""]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns")
def test_values_of_a_tuple_have_its_variables():
    first, second = returned(), returned(1)
    one, (two), three, four = returned(), returned(value=2), name(), returned(
        3)
    assert (first, second, one, two, three, four) == ("first", "second", "one", "two", [""], "four")
    here, *others = returned(), returned()
    assert here == "here" and others == [""]


def test_values_of_a_tuple_are_named_in_the_beta_generation():
    @beta_nki.jit
    def kernel(x):
        out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
        left, right = beta_nl.load(x), beta_nl.exp(beta_nl.load(x))
        beta_nl.store(out, beta_nl.add(left, right))
        return out
    text = kernel.lower(np.ones((4, 8), np.float32)).as_text("nki")
    assert '{nki.name = "left"}' in text and '{nki.name = "right"}' in text


def test_results_of_operators_and_of_sequences_are_named_in_the_beta_generation():
    def halves(tile):
        return tile * 0.5, tile * 2.0

    @beta_nki.jit
    def kernel(x):
        out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
        first, second = (beta_nl.load(x) for _ in range(2))
        added = first + second
        negative = -added
        above: object = added > 1.0
        low, high = halves(negative)
        one, other = low - high, low * high
        parts = [beta_nl.exp(tile) for tile in (one, other)]
        beta_nl.store(out, parts[0] + parts[1] * above)
        return out
    text = kernel.lower(np.ones((4, 8), np.float32)).as_text("nki")
    assert [part.split('"')[0] for part in text.split('nki.name = "')[1:]] == [
        "x", "out", "first", "second", "added", "negative", "above", "low", "high", "one", "other", "parts_0",
        "parts_1", "t12", "t13"]

    @beta_nki.jit
    def too_many(x):
        first, second = (beta_nl.load(x) for _ in range(3))
        return first
    with pytest.raises(ValueError, match="too many values to unpack"):
        too_many(np.ones((4, 8), np.float32))


def test_many_variables():
    """Bytecode puts a prefix before the numbers of variables above 255."""
    lines = [f"    v{n} = call()" for n in range(300)]
    scope = {"call": returned}
    exec(compile("\n".join(["def f():", *lines, "    return v0, v299"]), __file__, "exec"), scope)
    assert scope["f"]() == ("v0", "v299")


def test_tensors_are_named_in_every_level():
    def zeros(shape):
        return nl.zeros(shape, nl.float32, buffer=nl.sbuf)

    @nki.jit
    def kernel(x):
        result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x)
        total = zeros(x.shape)
        parts = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
        for part in parts:
            nisa.tensor_tensor(dst=part, data1=rows, data2=total, op=nl.add)
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
        nisa.dma_copy(dst=result, src=total)
        return result
    x = np.ones((4, 8), np.float32)
    lowered = kernel.lower(x)
    text = str(lowered.specialization.modules[0])
    assert [part.split('"')[0] for part in text.split('nki.name = "')[1:]] == [
        "x", "result", "rows", "total", "t0", "t1"]
    assert [result.name for result in lowered.specialization.results] == ["result"]
    assert np.array_equal(kernel(x), 3 * x)


def test_variables_of_libraries_name_nothing():
    """A library calls the user's function, and assigns what it returns."""
    names = {}
    exec(compile("def applied(function):\n    variable = function()\n    return [variable]", np.__file__, "exec"), names)
    kept, = names["applied"](returned)
    assert kept == ""
    exec(compile("def applied(function):\n    variable = function()\n    return [variable]", __file__, "exec"), names)
    kept, = names["applied"](returned)
    assert kept == "variable"


def test_values_of_users__are_not_taken_for_results_that_a_variable_completes():
    class Task:
        def assigned_to(self, name):
            raise AssertionError(f"a method of the user's is called for {name}")
    task = Task()

    def the_task():
        return task

    @beta_nki.jit
    def doubled(x):
        out = beta_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta_nl.shared_hbm)
        chosen = the_task()
        beta_nl.store(out, beta_nl.load(x) * (2 if chosen is task else 0))
        return out
    x = np.ones((4, 4), np.float32)
    assert np.array_equal(doubled(x), 2 * x)
