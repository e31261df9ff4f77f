# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that the timed machine is compared with published latencies by compute what they say."""

import json
import re
import statistics
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.source import load_kernel
from nki_mlir.compat import install
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import machine_named
from nki_mlir.targets import neuron

CALIBRATION = Path(__file__).parent.parent / "bench" / "calibration"
install()                       # the kernels import the vendor's names


def module(file):
    """A module of the folder, whose name others may have, too."""
    spec = spec_from_file_location(f"calibration_{Path(file).stem}", CALIBRATION / file)
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


errors = sys.modules["error_table"] = module("../../tools/error_table.py")           # fit.py imports it by this name
MODULES = {file: module(file) for file in ("matmul.py", "rows.py", "fused.py", "variants.py", "entries.py",
                                           "instructions.py", "fit.py")}
entries, instructions, fit = MODULES["entries.py"], MODULES["instructions.py"], MODULES["fit.py"]
RESULTS = {one["entry"]: one for one in json.loads(errors.RESULTS.read_text(encoding="utf-8"))}
QUICK = ("L174", "L245", "L258", "L269", "L300", "L320", "L356")       # entries that are timed in seconds


def kernel(name):
    """``matmul.py:tiled`` as a function."""
    file, _, function = name.partition(":")
    return getattr(MODULES[file], function)


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def close(computed, expected):
    np.testing.assert_allclose(np.asarray(computed, np.float64), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, sizes, options", [
    ("tiled", (256, 128, 512), {}), ("hoisted", (256, 256, 1024), {"block_m": 2, "block_n": 2}),
    ("blocked", (512, 512, 1024), {"block_m": 2, "block_n": 2, "block_k": 2})])
def test_products(name, sizes, options):
    k, m, n = sizes
    a_t, b = random(k, m), random(k, n)
    close(kernel(f"matmul.py:{name}")(a_t, b, **options), a_t.astype(np.float64).T @ b)


def test_product_that_transposes():
    a, b = random(256, 512), random(512, 1024)
    close(kernel("matmul.py:transposing")(a, b, block_m=2, block_n=2), a.astype(np.float64) @ b)


def test_rows():
    a, b = random(25600), random(25600) + 1
    for free in (1, 200):
        close(kernel("rows.py:vector_add")(a, b, free=free), a + b)
    x = random(256, 300)
    close(kernel("rows.py:silu")(x), x / (1 + np.exp(-x.astype(np.float64))))
    gamma, beta = random(300), random(300)
    normal = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    close(kernel("rows.py:layernorm")(x, gamma, beta), normal * gamma + beta)
    pooled = np.lib.stride_tricks.sliding_window_view(random(34, 40), (3, 3)).max((2, 3))
    close(kernel("rows.py:maxpool")(random(34, 40), tile_rows=8), pooled)


@pytest.mark.parametrize("name, options", [("mamba_states_outside", {}), ("mamba_channels_outside", {}),
                                           ("mamba_channels_outside", {"piece": 32})])
def test_selective_scan(name, options):
    channels, length, states = 256, 128, 4
    delta, u = np.abs(random(channels, length)) * 0.1, random(channels, length) * 0.5
    a, b, c = -np.abs(random(channels, states)), random(states, length), random(states, length + 0)[::-1].copy()
    state, expected = np.zeros((channels, states)), np.zeros((channels, length))
    for t in range(length):
        state = np.exp(delta[:, t:t + 1] * a) * state + (delta[:, t] * u[:, t])[:, None] * b[:, t]
        expected[:, t] = state @ c[:, t]
    close(kernel(f"rows.py:{name}")(delta, u, a, b, c, **options), expected)


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("options", [{}, {"separate": True, "wide": True}, {"group": 4}])
def test_attention(options):
    q, k, v = (random(64, 512) * 0.3 + n for n in range(3))
    expected = softmax(q.astype(np.float64).T @ k) @ v.T
    close(kernel("fused.py:attention")(q, k, v, **options), expected)


def test_attention_in_steps():
    q, k, v = (random(64, 1024) * 0.3 for _ in range(3))
    close(kernel("fused.py:attention_in_steps")(q, k, v), softmax(q.astype(np.float64).T @ k) @ v.T)


def test_products_with_other_work():
    a, b = random(2, 64, 256), random(2, 64, 1024)
    close(kernel("fused.py:bmm_softmax")(a, b), softmax(np.swapaxes(a, 1, 2).astype(np.float64) @ b))
    x, w = random(128, 6, 20), random(128, 9, 128) * 0.1
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (3, 3), (1, 2))
    close(kernel("fused.py:convolution")(x, w, block=2), np.einsum("crsyx,cyxf->frs", windows, w.reshape(128, 3, 3, 128)))
    x, gate, up, down = random(512, 512) * 0.2, random(512, 1024) * 0.1, random(512, 1024) * 0.1, random(1024, 512) * 0.1
    left = x.astype(np.float64) @ gate
    close(kernel("fused.py:swiglu")(x, gate, up, down), left / (1 + np.exp(-left)) * (x @ up.astype(np.float64)) @ down)


@pytest.mark.parametrize("name, options", [("adamw", {"columns": 96}), ("adamw_of_rows", {}),
                                           ("adamw_in_steps", {"columns": 96})])
def test_sums_of_vectors(name, options):
    variants = MODULES["variants.py"]
    weight, gradient, mean, square = (random(192, 256) + n for n in range(4))
    square = np.abs(square) + 0.1
    second = variants.SECOND * square + (1 - variants.SECOND) * gradient.astype(np.float64) ** 2
    first = variants.FIRST * mean + (1 - variants.FIRST) * gradient
    if name == "adamw_in_steps":            # the others take an average for what it tends to
        first, second = first / (1 - variants.FIRST), second / (1 - variants.SECOND)
    expected = weight * (1 - variants.RATE * variants.DECAY) - variants.RATE * first / np.sqrt(second)
    close(kernel(f"variants.py:{name}")(weight, gradient, mean, square, **options), expected)


def test_rotary_embedding():
    x, cos, sin = random(128, 512), random(64, 512), random(64, 512) * 0.5
    exchange = np.roll(np.eye(128, dtype=np.float32), 64, axis=0)
    exchange[64:] *= -1             # [K, M]: the lower half of x is negated
    expected = np.concatenate([x[:64] * cos - x[64:] * sin, x[64:] * cos + x[:64] * sin])
    close(kernel("variants.py:rope_halves")(x, cos, sin, width=256), expected)
    close(kernel("variants.py:rope_copied")(x, cos, sin, width=256), expected)
    close(kernel("variants.py:rope_copied")(x, cos, sin, width=256, exchange=exchange), expected)


@pytest.mark.parametrize("pieces, error", [(0, 1e-4), (3, 2e-3), (1, 0.5)])      # of bfloat16, and of sums of two
def test_products_in_pieces(pieces, error):
    a, b = random(256, 256), random(256, 1024)
    product = kernel("variants.py:product")(a, b, block=2, pieces=pieces)
    assert np.abs(product - a.astype(np.float64) @ b).max() < error
    inverse = 1 / np.sqrt((a.astype(np.float64) ** 2).mean(1, keepdims=True))
    normal = kernel("variants.py:normalized_product")(a, b, pieces=pieces)
    assert np.abs(normal - inverse * a @ b).max() < error


def test_orders_of_batched_and_normalized_products():
    a, b = random(4, 256, 64), random(4, 64, 512)
    expected = a.astype(np.float64) @ b
    for ahead in (1, 2, 4):
        for loaded in (False, True):
            close(kernel("variants.py:batched")(a, b, ahead=ahead, loaded=loaded), expected)
    x, weight = random(128, 256), random(256, 512)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True)) @ weight
    for order in ("after", "loaded"):
        close(kernel("variants.py:normalized_product")(x, weight, order=order), expected)


@pytest.mark.parametrize("options", [{}, {"pieces": 3, "added": True}])
def test_low_rank_products(options):
    x, weight, down, up = random(256, 128), random(128, 512), random(128, 128), random(128, 512)
    result = kernel("variants.py:lora")(x, weight, down, up, block=2, **options)
    expected = x.astype(np.float64) @ weight + x.astype(np.float64) @ down @ up
    assert np.abs(result - expected).max() < 1e-5 * np.abs(expected).max()


# -- the fit -----------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def sums_of_vectors():
    """Sums with runs of several lengths, on both sides of 2 KiB, at which the law of trn1 changes. Transfers take all of
    their time, so that it is linear in the numbers of that law."""
    entries_ = []
    for columns in (256, 304, 1216, 2432):
        positional, keywords = parse_arguments(["1245184xf32"] * 2 + [f"free={columns}"], values=False)
        vector_add = load_kernel(str(CALIBRATION / "rows.py:vector_add"), "trn1", ())
        spec = vector_add.specialize(vector_add.bind(tuple(positional), keywords, is_array, describe_array))
        programs = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True))
        entries_.append(fit.Timed(f"V{columns}", "odd" if columns % 128 else "even", "trn1", 1.0, 0.0, programs))
    return entries_


def test_a_fit_recovers_changed_numbers(sums_of_vectors):
    number = next(n for n in fit.numbers_of("trn1") if n.path[-1] == "bytes_per_ns")
    other = fit.with_numbers(machine_named("trn1"), {id(number.number): number.number * 0.95})
    assert other.costs.dma.bytes_per_ns == pytest.approx(18.36 * 0.95) and other.costs.dma.issue_ns == 116
    sensitivities = fit.Sensitivities([e._replace(published_ns=e.model_ns(other)) for e in sums_of_vectors])
    change = dict(zip((n.path[-1] for n in sensitivities.numbers), sensitivities.fit(np.arange(4))))
    assert np.exp(change["bytes_per_ns"]) == pytest.approx(0.95, abs=0.01)      # the prior holds it back a little
    assert max(sensitivities.off(np.arange(4), sensitivities.fit(np.arange(4)))) < 0.01


def test_the_report_has_the_errors_of_operators_that_a_fit_has_not_seen(sums_of_vectors):
    entries_ = [e._replace(published_ns=1.1 * e.model_ns(machine_named("trn1"))) for e in sums_of_vectors]
    text = "\n".join(fit.report(entries_))
    assert re.search(r"fit of \d+ numbers on 4 entries of 2 operators", text)
    assert re.search(r"^trn1 dma.bytes_per_ns +18.36 ", text, re.M)
    assert re.search(r"^as they are: +median +9.1%", text, re.M)
    assert re.search(r"^left out, all operators: +median +[0-8]\.\d%", text, re.M)
    assert re.search(r"^left out, .*, ([1-9]) of \1 pairs of one operator that differ by 10% in the published order",
                     text, re.M)
    assert text.count("the other half") == 2


def test_a_report_takes_two_operators(sums_of_vectors):
    line, = fit.report([e for e in sums_of_vectors if e.operator == "odd"])
    assert line == "no fit: it needs entries of two operators, of targets with fitted numbers"


def test_operators_of_entries():
    operators = {e.name: e.operator for e in (*entries.ENTRIES, *entries.VARIANTS)}
    assert operators["L041"] == operators["L047"] == operators["V041"] == "product"
    assert operators["V001"] == operators["V014"] == operators["V015"] == "adamw"
    assert operators["V061"] == "lora"


def test_variants_name_kernels_and_twice_what_was_measured():
    variants = {e.name: e for e in entries.VARIANTS}
    assert len(variants) == len(entries.VARIANTS) and not variants.keys() & {e.name for e in entries.ENTRIES}
    for entry in entries.VARIANTS:
        assert callable(kernel(entry.kernel)) and entry.harness in entries.LAUNCH
    assert variants["V012"].published_ns == pytest.approx(2 * 547_400) and "columns=1824" in variants["V012"].arguments


def test_entries_name_kernels_and_harnesses():
    names = [entry.name for entry in entries.ENTRIES]
    assert len(names) == len(set(names)) >= 35
    for entry in entries.ENTRIES:
        assert callable(kernel(entry.kernel)) and entry.harness in entries.LAUNCH and entry.published_ns > 0


@pytest.mark.parametrize("single", instructions.SINGLES, ids=lambda one: one.name)
def test_single_instructions_are_as_measured(single):
    error = abs(instructions.model_ns(single) / single.published_ns - 1)
    assert error < (0.25 if single.work.law == "memset" else 0.1)      # a minimum of a memset is not in its measured law


def test_the_table_of_errors_is_that_of_the_last_run():
    assert errors.page() == errors.PAGE.read_text(encoding="utf-8")
    published = {entry.name: entry.published_ns for entry in entries.ENTRIES}
    assert {name: one["published_ns"] for name, one in RESULTS.items()} == published


@pytest.mark.parametrize("name", QUICK)
def test_the_machine_is_that_of_the_last_run(name, monkeypatch):
    """Costs, orders and emission have not changed since: else the calibration has to run again."""
    entry, = (entry for entry in entries.ENTRIES if entry.name == name)
    monkeypatch.syspath_prepend(CALIBRATION)        # the command's changes of both end with the test
    monkeypatch.setitem(sys.modules, Path(entry.kernel.partition(":")[0]).stem, None)
    positional, keywords = parse_arguments(list(entry.arguments), values=False)
    calibrated = load_kernel(str(CALIBRATION / entry.kernel), entry.target, ())
    spec = calibrated.specialize(calibrated.bind(tuple(positional), keywords, is_array, describe_array))
    timing = neuron.timed(neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True)))
    model = timing.total_ns - timing.launch_ns + entries.LAUNCH[entry.harness]
    assert model == pytest.approx(RESULTS[name]["model_ns"], rel=1e-9)


def test_errors_are_within_what_is_asked():
    results = list(RESULTS.values())
    sizes = [errors.error(one) for one in results]
    right, total = errors.ordered(results)
    assert len(results) >= 35 and statistics.median(sizes) <= 0.08 and errors.eightieth(sizes) <= 0.20
    assert right >= 0.95 * total


def test_errors_of_made_up_entries():
    def entry(published, model):
        return {"published_ns": published, "model_ns": model}
    samples = [entry(100.0, 110.0), entry(200.0, 190.0), entry(205.0, 100.0), entry(400.0, 100.0)]
    assert [round(errors.error(one), 4) for one in samples] == [0.1, 0.05, 0.5122, 0.75]
    # 200 and 205 are too near to have an order; 100 before 205 and 400 comes out wrong, and 205 before 400 is a tie.
    assert errors.ordered(samples) == (1, 5)
    first, second, third, last = samples        # the nearest pairs come last, and one of the same latency is none
    assert errors.reversed_pairs([last, *samples[:3], entry(100.0, 50.0)]) == [
        (first, last), (first, third), (second, last), (third, last), (second, third)]
