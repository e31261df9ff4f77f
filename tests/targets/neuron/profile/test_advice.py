# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Advice is right: following it saves about what it said, and afterwards it is not said again."""

from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.profile import advice, profile_of
from nki_mlir.targets.neuron.profile.advice import RULES, WORTH, Evidence
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from tests.targets.neuron.profile import advice_pairs
from tests.targets.neuron.profile.kernels import streams

FILE = "tests/targets/neuron/profile/advice_pairs.py:"
# Rule, the line that it names, before, its arguments, after, its arguments where they are others.
PAIRS = {
    "repeated-loads": ("same = nl.load(y)", "added_repeatedly", ("2048x2048xf32", "128x2048xf32"), "added_once", None),
    "short-runs": ("nl.load(x[i * 512 + i_f, i_p])", "columns", ("2048x128xf32",), "rows", ("128x2048xf32",)),
    "one-issuer": ("nl.load(x[:, nl.ds(i * 64, 64)])", "many_small", ("128x8192xf32",), "few_large", None),
    "imbalance": ("nisa.tensor_scalar(part", "one_engine", ("128x8192xf32",), "two_engines", None),
    "psum-eviction": ("nisa.tensor_copy(total", "evicted_by_one", ("128x128xbf16", "128x8192xbf16"), "evicted_by_two",
                      None),
    "no-overlap": ("nisa.dma_copy(dst=tile", "one_tile", ("128x16384xf32",), "tiles_in_turn", None),
    "weight-loads": ("nisa.nc_matmul(left, right[:, nl.ds(j * 512 + c * 32, 32)])", "narrow",
                     ("128x128xbf16", "128x8192xbf16"), "wide", None),
    "ramp": ("product = nisa.nc_matmul(left[r]", "transposed_in_turn", ("4096x64xf32", "64x4096xf32"),
             "transposed_before", None),
    "dtype": ("total += nisa.nc_matmul(left, right)", "products", ("2048x128xf32", "2048x512xf32"), "products",
              ("2048x128xbf16", "2048x512xbf16")),
    "double-row": ("nisa.nc_matmul(left[:, s], right[:, s])", "single_rows", ("128x2x128xf8E4M3", "128x2x512xf8E4M3"),
                   "double_rows", None),
    "partitions": ("nl.exp(nl.load(x", "few_partitions", ("8x131072xf32",), "all_partitions", None),
    "fuse-activation": ("nisa.tensor_scalar(tile, nl.multiply, 0.5", "scaled_before", ("128x1000xf32",), "scaled_within",
                        None),
    "fuse-activation in place": ("nisa.tensor_scalar(tile, nl.multiply, 0.5", "scaled_in_place", ("128x1000xf32",),
                                 "scaled_within", None),
    "table-loads": ("nisa.activation(nl.exp, tile", "functions_in_turn", ("128x8192xf32",), "functions_together", None),
}
ABOUT = 0.1                     # of the time that is left
# When this advice is followed, the loads take most of what is left, and the back end also splits them.
SPLIT_AFTERWARDS = ("weight-loads", "table-loads")


def said(profile, rule):
    return next((one for one in profile["advice"] if one["rule"] == rule), None)


@pytest.mark.share(3)
@pytest.mark.parametrize("rule", PAIRS)
def test_following_it_saves_about_what_it_said(rule):
    line, before, arguments, after, others = PAIRS[rule]
    rule = rule.split()[0]
    as_written = rule in ("repeated-loads", "short-runs", "ramp")          # else the back end follows the advice by itself
    first, second = (profile_of(streams(FILE + kernel, *values, as_written=as_written))
                     for kernel, values in ((before, arguments), (after, others or arguments)))
    one, total = said(first, rule), first["timing"]["total_ns"]
    assert one is not None, first["advice"]
    assert line in first["files"][one["file"]][one["line"] - 1]
    changed = second
    if rule in SPLIT_AFTERWARDS:
        changed = profile_of(streams(FILE + after, *(others or arguments), split_columns=False))
        assert second["timing"]["total_ns"] < changed["timing"]["total_ns"]
    assert total - one["saves_ns"] == pytest.approx(changed["timing"]["total_ns"], rel=ABOUT)    # a model of an order
    assert one["ratio"] == total / (total - one["saves_ns"]) >= 1 / (1 - WORTH)
    assert f"{one['ratio']:.2f}x" in one["text"]
    again = said(second, rule)
    assert again is None or again["saves_ns"] < one["saves_ns"] / 4, again


def test_tensors_that_are_loaded_again__are_listed():
    text = said(profile_of(streams(FILE + "three_repeatedly", *["128x512xf32"] * 3, as_written=True)), "repeated-loads")["text"]
    assert text.startswith("`x`, `y` and `z`: 2.36 MB are loaded again, up to 4 times")


def test_what_others_read__is_not_fused():
    message = said(profile_of(streams(FILE + "scaled_for_others", "128x2048xf32")), "fuse-activation")
    assert message is None


def test_what_an_activation_has_room_for__is_fused():
    run = TimedMachine(streams(FILE + "some_fit", "128x8xf32", as_written=True))     # else the back end fuses them
    run.run()
    change = advice.fuse_activation(Evidence(run, run.end, {}))
    text = Path(advice_pairs.__file__).read_text().splitlines()
    expected = {k for k, line in enumerate(text, 1) if line.endswith("# fits")}
    assert {at.line for at in change.lines} == expected and len(change.entries) == len(expected) == 3


def test_copies_from_psum_are_spoken_of_once():
    _, before, arguments, after, _ = PAIRS["psum-eviction"]
    assert [one["rule"] for one in profile_of(streams(FILE + before, *arguments))["advice"]] == ["psum-eviction"]
    assert profile_of(streams(FILE + after, *arguments))["advice"] == []


def test_every_rule_has_a_pair():
    assert set(RULES) == {name.split()[0] for name in PAIRS}


def small(rule):
    rng = np.random.default_rng(1)
    shapes = {"repeated-loads": [(256, 64), (128, 64)], "weight-loads": [(128, 128), (128, 512)],
              "psum-eviction": [(128, 128), (128, 8192)], "imbalance": [(128, 8192)], "partitions": [(8, 32768)],
              "one-issuer": [(128, 1024)], "no-overlap": [(128, 2048)], "fuse-activation": [(128, 64)],
              "fuse-activation in place": [(128, 64)], "table-loads": [(128, 64)],
              "ramp": [(256, 64), (64, 512)], "double-row": [(128, 2, 128), (128, 2, 512)]}
    if rule == "double-row":
        return [rng.integers(-4, 5, shape).astype(ml_dtypes.float8_e4m3) for shape in shapes[rule]]
    if rule in ("weight-loads", "psum-eviction"):           # small integers: sums are exact in any order
        return [rng.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in shapes[rule]]
    return [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes[rule]]


@pytest.mark.share(3)
@pytest.mark.parametrize("rule", [rule for rule in PAIRS if rule not in ("short-runs", "dtype")])   # other inputs
def test_both_compute_the_same(rule):
    _, before, _, after, _ = PAIRS[rule]
    arguments = small(rule)
    first, second = (np.asarray(getattr(advice_pairs, name)(*arguments), np.float32) for name in (before, after))
    np.testing.assert_allclose(first, second, rtol=1e-6)


def test_both_layouts_compute_the_same():
    x = np.random.default_rng(1).uniform(-1, 1, (512, 128)).astype(np.float32)
    assert np.array_equal(advice_pairs.columns(x), advice_pairs.rows(np.ascontiguousarray(x.T)))


def test_rules_look_at_each_load_a_few_times(monkeypatch):
    """Their cost is linear: a kernel of ten thousand loads is one of an everyday size."""
    looked = []
    exact = advice.footprint_of
    monkeypatch.setattr(advice, "footprint_of", lambda tile: looked.append(tile) or exact(tile))
    programs = streams(FILE + "many_small", "128x32768xf32", merge_loads=False)
    assert profile_of(programs)["advice"]
    assert 256 <= len(looked) <= 4 * sum(map(len, programs[0].streams.values()))


class Elementwise:
    """An operation that both engines can do, on tiles in SBUF."""

    engines = (Engine.VECTOR, Engine.SCALAR)

    def sources(self):
        return [("src", SimpleNamespace(space="sbuf"))]

    targets = sources


def of_two_engines(vector: float, scalar: float, *times: float, factor: float = 1.0) -> SimpleNamespace:
    """The times of both engines, and of instructions on the vector engine, which take ``factor`` as long on the other."""
    steps = [SimpleNamespace(where=(0, k), op=Elementwise(), engine=Engine.VECTOR, entry=(0, ns, 0.0, 0.0, 0), location=None,
                             transfer=None, instruction=SimpleNamespace(work_of=lambda op, ns=ns: ns)) for k, ns in enumerate(times)]
    machine = SimpleNamespace(costs=SimpleNamespace(engines=dict.fromkeys(Engine, SimpleNamespace(other=1.0))),
                              cost=lambda engine, ns: SimpleNamespace(busy=factor * ns))
    return SimpleNamespace(busy={Engine.VECTOR: vector, Engine.SCALAR: scalar}, work=steps, machine=machine, total=vector)


@pytest.mark.parametrize("vector, scalar, times, factor, left", [
    (100.0, 20.0, (60.0,), 1.0, (30.0,)),               # as much of it as both engines do in the same time
    (100.0, 20.0, (60.0, 20.0), 1.0, (30.0, 10.0)), (100.0, 80.0, (60.0,), 1.0, (50.0,)),
    (100.0, 20.0, (60.0,), 2.0, (40.0,)), (100.0, 98.0, (100.0,), 1.0, (99.0,)),
    (100.0, 100.0, (60.0,), 1.0, None), (100.0, 20.0, (), 1.0, None), (100.0, 20.0, (0.0,), 1.0, None)])
def test_work_is_shared__until_both_engines_are_busy_for_as_long(vector, scalar, times, factor, left):
    change = advice.shared_out(of_two_engines(vector, scalar, *times, factor=factor), False, "{share:.0%} of {count}")
    if left is None:
        assert change is None
    else:
        assert tuple(entry[1] for entry in change.entries.values()) == pytest.approx(left)
        assert change.text == f"{1 - left[0] / times[0]:.0%} of {len(times)}"
    assert advice.shared_out(of_two_engines(vector, scalar, *times, factor=factor), True, "") is None       # it moves nothing out of PSUM
