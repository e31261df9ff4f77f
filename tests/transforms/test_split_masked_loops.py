# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""split-masked-loops: values stay, masks become boxes where they can, and what it refuses has a place."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.analysis.mask_boxes import AlwaysOutOfBounds, box_of
from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op, shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.transforms.split_masked_loops import Condition, below, contents, is_masked, parts_of

from .masked_kernels import CASES, capture


def operations(module):
    function = module.body.operations[0].operation
    return list(below(contents(function.regions[0].blocks[0])))


def split(module, options=""):
    run_passes(module, [pass_named("split-masked-loops", options)])
    assert module.operation.verify()
    return module


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_values_and_masks(case):
    captured = case.captured()
    before = captured.run(captured.module())[0]
    module = split(captured.module())
    after = captured.run(module)[0]
    case.check(after)
    if case.tolerance:
        np.testing.assert_allclose(after, before, rtol=case.tolerance, atol=case.tolerance)
    else:
        np.testing.assert_array_equal(after, before)
    ops = operations(module)
    assert sum(is_tile_op(op) and is_masked(op) for op in ops) == case.masks
    assert sum(op.name == "scf.for" for op in ops) == case.loops


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_second_run_changes_nothing_and_text_is_the_same_each_time(case):
    captured = case.captured()
    once = str(split(captured.module()))
    assert str(split(captured.module())) == once
    assert "".join(str(split(split(captured.module()))).split()) == "".join(once.split())


def test_unmasked_module_stays_as_it_is():
    @nki.jit
    def plain(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(4):
            nl.store(out[i * 128:(i + 1) * 128], nl.load(x[i * 128:(i + 1) * 128]))
        return out
    captured = capture(plain, np.zeros((512, 8), np.float32))
    assert str(split(captured.module())) == str(captured.module())


def test_attributes_and_locations_are_kept():
    text = """
    func.func @k(%x: memref<300x64xf32, "hbm">) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      scf.for %i = %c0 to %c3 step %c1 {
        %t = memref.alloc() {nki.name = "t", nki.bank = 2 : i64} : memref<128x64xf32, "sbuf">
        "nki.load"(%t, %x, %i) {access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
            #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
            mask = affine_set<(d0, d1)[s0] : (s0 * -128 - d0 + 299 >= 0)>, nki.schedule = 7 : i64}
          : (memref<128x64xf32, "sbuf">, memref<300x64xf32, "hbm">, index) -> () loc("kernel.py":9:4)
      } {nki.loop = "sequential"}
      return
    }"""
    with shared_context():
        module = split(ir.Module.parse(text))
    loads = [op for op in operations(module) if op.name == "nki.load"]
    assert [op.attributes["nki.schedule"].value for op in loads] == [7, 7]
    assert all(str(op.location) == 'loc("kernel.py":9:4)' for op in loads)
    assert [op.attributes["nki.bank"].value for op in operations(module) if op.name == "memref.alloc"] == [2, 2]
    loop, = (op for op in operations(module) if op.name == "scf.for")
    assert loop.attributes["nki.loop"].value == "sequential"
    assert read_op(loads[1]).src.access.dims == ((64, 44), (1, 64))


def limited(mask, limits):
    """A loop over 4 with an access of 128 rows each of 400, and ``limits`` that are left to run time."""
    with shared_context():
        return ir.Module.parse(f"""
    func.func @k(%x: memref<400x64xf32, "hbm">) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      scf.for %i = %c0 to %c4 step %c1 {{
        %t = memref.alloc() : memref<128x64xf32, "sbuf">
        "nki.load"(%t, %x, %i) {{access = [#nki.access<f32, affine_map<()[s0] -> (0, 0)>, [[1, 128], [1, 64]]>,
            #nki.access<f32, affine_map<()[s0] -> (s0 * 8192)>, [[64, 128], [1, 64]]>],
            mask = affine_set<{mask}>, nki.limits = affine_set<{limits}>}}
          : (memref<128x64xf32, "sbuf">, memref<400x64xf32, "hbm">, index) -> () loc("kernel.py":9:4)
      }}
      return
    }}""")


def test_limits_that_are_proved_go():
    module = split(limited("(d0, d1)[s0] : (s0 * -128 - d0 + 390 >= 0)", "(d0, d1)[s0] : (s0 * -128 - d0 + 399 >= 0)"))
    assert "nki.limits" not in str(module) and str(module).count("nki.load") == 2


def test_limit_that_no_iteration_keeps_is_an_error_with_its_place():
    module = limited("(d0, d1)[s0] : (s0 * -128 - d0 + 410 >= 0)", "(d0, d1)[s0] : (s0 * -128 - d0 + 399 >= 0)")
    with pytest.raises(AlwaysOutOfBounds, match="11 elements outside its dimension") as error:
        split(module)
    assert str(error.value.at) == "kernel.py:9:4"


def test_limits_without_a_mask_are_cut_too():
    with pytest.raises(AlwaysOutOfBounds, match="112 elements outside"):
        split(limited("() : (0 == 0)", "(d0, d1)[s0] : (s0 * -128 - d0 + 399 >= 0)"))


@pytest.mark.parametrize("copies, stores, masked", [(1, 1, 1), (2, 4, 0), (8, 4, 0)])
def test_copies_bounds_the_growth(copies, stores, masked):
    """What does not fit stays a mask, with the same values."""
    case = next(c for c in CASES if c.id == "tiles")
    captured = case.captured()
    module = split(captured.module(), f"copies={copies}")
    stored = [op for op in operations(module) if op.name == "nki.store"]
    assert (len(stored), sum(is_masked(op) for op in stored)) == (stores, masked)
    case.check(captured.run(module)[0])


# -- the arithmetic ----------------------------------------------------------------------------------------------------
values = st.builds(lambda start, count, step: range(start, start + count * step, step),
                   st.integers(-5, 5), st.integers(1, 40), st.integers(1, 3))
conditions = st.builds(lambda const, c, low, extent, equal: (const, c, low, low + extent, equal), st.integers(-60, 60),
                       st.integers(-8, 8), st.integers(-20, 0), st.integers(0, 40), st.booleans())


def condition(const, c, low, high, equal):
    """const + c * i + something between low and high."""
    return Condition(lambda first, last: (const + min(c * first, c * last) + low,
                                          const + max(c * first, c * last) + high), equal)


@given(values, st.lists(conditions, max_size=3), st.integers(1, 12))
def test_parts__cover_the_values_in_order_within_the_limit(span, terms, limit):
    parts = parts_of(span, [condition(*t) for t in terms], limit)
    assert [v for part in parts for v in part] == list(span)
    assert 1 <= len(parts) <= limit


@given(values, st.lists(conditions, max_size=3))
def test_parts__are_decided_or_single_values(span, terms):
    listed = [condition(*t) for t in terms]
    for part in parts_of(span, listed, 10_000):
        assert len(part) == 1 or all(c.verdict(part[0], part[-1]) is not None for c in listed)


@given(values, conditions)
def test_parts__of_one_condition_are_as_few_as_can_be(span, term):
    only = condition(*term)
    # An equality that holds nowhere is above zero or below it.
    sides = [(only.verdict(v, v), only.equal and only.bounds(v, v)[0] > 0) for v in span]
    cuts = sum(a != b or a[0] is None for a, b in pairwise(sides))
    assert len(parts_of(span, [only], 10_000)) == 1 + cuts


axes = st.lists(st.integers(-4, 4), min_size=3, max_size=3)
constraints = st.lists(st.tuples(st.integers(-12, 12), axes, st.booleans()), max_size=3)
extents = st.tuples(*[st.integers(1, 5)] * 3)


def forms(terms):
    return tuple(Constraint(Linear(const, (), tuple((k, c) for k, c in enumerate(cs) if c)), equal)
                 for const, cs, equal in terms)


def active_elements(mask, counts):
    grid = np.indices(counts)
    active = np.ones(counts, bool)
    for constraint in mask:
        value = constraint.form.const + sum(c * grid[axis] for axis, c in constraint.form.axes)
        active &= (value == 0) if constraint.equal else (value >= 0)
    return active


@given(constraints, extents)
def test_box__holds_every_active_element_and_what_is_left_says_which(terms, counts):
    mask = forms(terms)
    active = active_elements(mask, counts)
    box = box_of(mask, counts, lambda form: (form.const, form.const))
    if box is None:
        assert not active.any()
        return
    inside = tuple(slice(s, s + n) for s, n in zip(box.starts, box.counts))
    again = np.zeros(counts, bool)
    again[inside] = active_elements(box.mask, box.counts)
    np.testing.assert_array_equal(again, active)


@given(constraints, extents)
def test_box__of_constraints_of_one_axis_leaves_nothing(terms, counts):
    mask = forms([(const, [c if k == const % 3 else 0 for k, c in enumerate(cs)], equal) for const, cs, equal in terms])
    box = box_of(mask, counts, lambda form: (form.const, form.const))
    active = active_elements(mask, counts)
    assert (box is None) == (not active.any())
    if box is not None:
        assert box.mask == () and np.prod(box.counts) == active.sum()

