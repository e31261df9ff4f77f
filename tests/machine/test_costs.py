# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Costs of the machines: every number has a source, laws give documented and measured times."""

import math
import pickle
import re
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.access_factors import access_factor_of_dims
from nki_mlir.machine import ENGINES, Cited, Engine, Work, machine_named
from nki_mlir.machine.cited import DOCUMENT, FITTED, MEASURED, RESIDUALS, combined
from nki_mlir.machine.costs import ISSUE, NOTHING

TARGETS = ("trn1", "trn2", "trn3")
SOURCES = re.compile(r"(.*fitted on [LV]\d{3}|measured(, L\d{3}| by others)|assumption: |nki\.isa\.|"
                     r"reference of |architecture guide|performance guide|guide to |optimization guide|mamba tutorial|"
                     r"profile of |intra-node collectives|nothing to add|results are|the operator's emulation)")


def numbers(value: object, at: str = "") -> Iterator[tuple[str, object]]:
    """Every number in a record of costs, with where it is."""
    if isinstance(value, tuple):
        for name, inner in value._asdict().items():
            yield from numbers(inner, f"{at}.{name}")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from numbers(inner, f"{at}[{key}]")
    elif isinstance(value, float):
        yield at, value


@pytest.mark.parametrize("target", TARGETS)
def test_every_cost_has_a_source(target: str) -> None:
    entries = list(numbers(machine_named(target).costs))
    assert len(entries) > 60
    for at, number in entries:
        assert isinstance(number, Cited), at
        assert SOURCES.match(number.source), (at, number.source)
        assert number >= 0 or at.endswith("result_ns"), at


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_visible_no_sooner_than_work_ends(target: str) -> None:
    machine = machine_named(target)
    for engine, costs in machine.costs.engines.items():
        for law in costs.laws:
            cost = machine.cost(engine, Work(law, 1))
            assert min(cost.busy, cost.result, cost.result_in_engine) >= 0, (engine, law)


def test_a_number_keeps_its_source_and_residual() -> None:
    number = Cited(2.5, "assumption: an example", 0.125)
    copy = pickle.loads(pickle.dumps(number))
    assert copy == 2.5 and (copy.source, copy.residual) == (number.source, 0.125)


def test_a_number_without_a_fit_has_the_residual_of_its_kind_of_source() -> None:
    fitted = Cited(18.36, "guide to DMA bandwidth: 17; fitted on L219 and V105: 8 % more")
    assert (fitted.kind, fitted.fit, fitted.residual) == (FITTED, ("L219", "V105"), RESIDUALS[FITTED])
    assert Cited(1, "measured, L027: two elements a cycle").kind == MEASURED
    assert Cited(1, "nki.isa.activation, cost: N").residual == RESIDUALS[DOCUMENT]


def test_residuals_of_independent_parts_add_up_in_squares() -> None:
    assert combined((30.0, 0.1), (40.0, 0.1)) == pytest.approx(5 / 70)
    assert combined((0.0, 0.5)) == 0.0


def test_parts_of_the_critical_path_have_residuals() -> None:
    costs = machine_named("trn2").costs
    vector = costs.engines[Engine.VECTOR]
    elements, overhead = vector.laws["tensor_tensor"].per_element, vector.overhead_cycles
    assert costs.residual(Engine.VECTOR, Work("tensor_tensor", 943)) == pytest.approx(
        math.hypot(943 * elements * elements.residual, overhead * overhead.residual) / 1000)
    assert costs.residual(Engine.VECTOR, Work("tensor_tensor", 1), "result") == pytest.approx(vector.result_ns.residual)
    assert costs.residual(Engine.SYNC, ISSUE, "moves") == costs.dma.bytes_per_ns.residual
    assert costs.residual(Engine.SYNC, NOTHING) == 0.0


@pytest.mark.parametrize("target, engine, work, busy, result", [
    ("trn1", Engine.TENSOR, Work("product.bfloat16", 512), (512 + 84) / 2.8, 142),
    ("trn1", Engine.TENSOR, Work("product.float32", 512), 4 * (512 + 84) / 2.8, 142),
    ("trn1", Engine.TENSOR, Work("product.bfloat16", 1), (64 + 84) / 2.8, 142),
    ("trn1", Engine.VECTOR, Work("tensor_tensor", 8192), (2 * 8192 + 18) / 1.12, 340),
    ("trn1", Engine.VECTOR, Work("tensor_tensor.psum", 512), (512 + 18) / 1.12, 340),
    ("trn1", Engine.VECTOR, Work("tensor_tensor.float16", 512), (1024 + 18) / 1.12, 340),    # bfloat16 alone is faster
    ("trn1", Engine.SCALAR, Work("activation_reduce", 512), (512 + 64 + 18) / 1.4, 100),
    ("trn1", Engine.SCALAR, Work("whatever", 1), (64 + 18) / 1.4, 100),
    ("trn1", Engine.GPSIMD, Work("iota", 512), (150 + 512) / 1.4, 200),
    ("trn2", Engine.VECTOR, Work("tensor_tensor", 512), (512 + 57) / 0.96, 98),
    ("trn2", Engine.VECTOR, Work("tensor_scalar.bfloat16", 4096), (1024 + 57) / 0.96, 98),
    ("trn2", Engine.VECTOR, Work("transpose", 32), (32 + 57) / 0.96, 98),
    ("trn2", Engine.VECTOR, Work("memset", 512), (0.8 * 512 + 57) / 0.96, 0),
    ("trn2", Engine.VECTOR, Work("tensor_copy.psum.bfloat16", 512), (256 + 57) / 0.96, 98),
    ("trn2", Engine.VECTOR, Work("tensor_copy", 512, factor=2.0), (512 + 57) / 0.96, 98),
    ("trn2", Engine.SCALAR, Work("activation", 512), (512 + 57) / 1.2, 143 + 103),
    ("trn2", Engine.SCALAR, Work("activation.copy", 512), (512 + 57) / 1.2, 143),
    ("trn2", Engine.SCALAR, Work("activation_reduce", 512), (512 + 57) / 1.2 + 185, 143),
    ("trn1", Engine.VECTOR, Work("tensor_copy.psum.bfloat16", 512), (512 + 18) / 1.12, 340),
    ("trn2", Engine.TENSOR, Work("product.float32", 64), 4 * (128 + 4) / 2.4, 203 + 0.99 * 4 * 64 / 2.4),
    ("trn2", Engine.SYNC, ISSUE, 600, 0),
    ("trn2", Engine.VECTOR, NOTHING, 0, 0),
])
def test_what_work_costs(target: str, engine: Engine, work: Work, busy: float, result: float) -> None:
    cost = machine_named(target).cost(engine, work)
    assert cost.busy == pytest.approx(busy)
    assert cost.result == pytest.approx(result)


def test_a_descriptor_costs_by_its_length() -> None:
    trn1, trn2 = (machine_named(name).costs.dma for name in ("trn1", "trn2"))
    assert trn1.descriptor(4) == trn2.descriptor(4) == 40                           # less than a word
    assert trn1.descriptor(8) == trn2.descriptor(8) == 12
    assert trn1.descriptor(256) == pytest.approx(256 / 4)
    assert trn1.descriptor(1024) == trn1.descriptor(2044) == trn1.descriptor(2048) == pytest.approx(125)
    assert trn1.descriptor(4096) == pytest.approx(4096 / 18.36)
    assert trn2.descriptor(1000) == pytest.approx(1000 / 27.2 + 15 * 1000 / 3000)
    assert trn2.descriptor(4000) == pytest.approx(4000 / 27.2 + 15)


def test_runs_of_whole_packets_wait_for_a_channel() -> None:
    dma = machine_named("trn2").costs.dma
    assert dma.descriptor(1536) == pytest.approx(1536 / 27.2 + 62 * 1536 / 3000)
    assert dma.descriptor(6144) == pytest.approx(6144 / 27.2 + 62)
    assert dma.descriptor(4096) == pytest.approx(4096 / 27.2 + 62 / 2)              # on all channels equally
    assert dma.descriptor(8192) == pytest.approx(8192 / 27.2 + 62)
    assert dma.descriptor(3584) == dma.descriptor(4096)                             # no longer than the longer run
    assert dma.descriptor(4096, stores=True) == pytest.approx(4096 / 27.2 + 14)
    assert dma.descriptor(16384) == pytest.approx(16384 / 27.2 + 2 * 62)            # at each page
    assert dma.descriptor(3072) > dma.descriptor(3076)


def test_a_run_that_is_written_waits_less_than_one_that_is_read() -> None:
    """As measured by others: 16 engines store 382 bytes a ns where they load 282."""
    dma = machine_named("trn2").costs.dma
    rates = [16 * 2048 / dma.descriptor(2048, stores=stores) for stores in (True, False)]
    assert rates == pytest.approx([382, 282], rel=0.03)         # measurements, of lengths that are not published
    assert dma.descriptor(8192, 1 << 20, stores=True) == dma.descriptor(8192, stores=True)


def test_runs_in_one_bank_wait_for_its_rows_if_many_engines_read_it() -> None:
    dma = machine_named("trn2").costs.dma
    assert dma.descriptor(2048, 3 << 20, engines=16) == pytest.approx(2048 / 27.2 + 15 * 2048 / 3000)    # no conflict
    assert dma.descriptor(8192, 3 << 20, engines=16) == pytest.approx(8192 / 27.2 + 15 + 3 * 80)         # of four rows
    assert dma.descriptor(8192, 3 << 20, engines=8) == pytest.approx(8192 / 27.2 + 15)
    assert dma.descriptor(8192, (1 << 20) + 4096, engines=16) == dma.descriptor(8192) == pytest.approx(8192 / 27.2 + 62)


@pytest.mark.parametrize("target", TARGETS)
@given(st.integers(2, 1 << 14), st.integers(1, 1 << 14))
def test_more_bytes_never_take_less(target: str, few: int, more: int) -> None:
    """Of words, among runs of whole packets and among others."""
    dma = machine_named(target).costs.dma
    packet = int(dma.packet_bytes)
    assert dma.descriptor(packet * few) <= dma.descriptor(packet * (few + more))
    odd, longer = (n * 4 if n * 4 % packet else n * 4 + 4 for n in (few, few + more))
    assert dma.descriptor(odd) <= dma.descriptor(longer)
    assert dma.descriptor(packet * few, 1 << 20, engines=16) <= dma.descriptor(packet * (few + more), 1 << 20, engines=16)


LAWS = [(target, engine, law) for target in TARGETS for engine, costs in machine_named(target).costs.engines.items()
        for law in (*costs.laws, *(["other"] if costs.other is not None else []))]


@given(st.sampled_from(LAWS), st.integers(0, 1 << 16), st.integers(0, 1 << 16), st.floats(1, 2), st.floats(1, 2))
def test_more_work_never_takes_less(where: tuple[str, Engine, str], few: int, more: int, factor: float, further: float
                                    ) -> None:
    """Of elements, and of the distance between them: neither the engine nor its result."""
    target, engine, law = where
    machine = machine_named(target)
    less = machine.cost(engine, Work(law, few, factor))
    most = machine.cost(engine, Work(law, few + more, factor * further))
    assert less.busy <= most.busy and less.busy + less.result <= most.busy + most.result


NARROW = [(t, e, law) for t, e, law in LAWS if law.endswith(("float16", "apart", "e4m3", "e4m3fn", "e5m2")) and not (
    # measured on trn2: copies of 16 bits in SBUF are slower than those of 32 (L025, L024)
    t != "trn1" and law in ("tensor_copy.bfloat16", "tensor_copy.float16", "tensor_copy.apart") and e is Engine.VECTOR)]


@given(st.sampled_from(NARROW), st.integers(0, 1 << 16))
def test_narrow_elements_never_take_longer(where: tuple[str, Engine, str], elements: int) -> None:
    target, engine, law = where
    machine, wide = machine_named(target), law.rpartition(".")[0]
    assert machine.cost(engine, Work(law, elements)).busy <= machine.cost(engine, Work(wide, elements)).busy


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("law", ["tensor_copy", "tensor_copy.psum", "tensor_scalar", "tensor_scalar.psum"])
def test_elements_of_16_bits_that_are_apart_are_no_faster_than_others(target: str, law: str) -> None:
    machine = machine_named(target)
    apart, *near = (machine.cost(Engine.VECTOR, Work(f"{law}.{variant}", 4096)).busy
                    for variant in ("apart", "bfloat16", "float16"))
    assert apart >= max(near)


@given(st.integers(1, 64), st.integers(0, 64), st.integers(2, 512), st.sampled_from([1, 2, 4]))
def test_elements_that_are_further_apart_never_take_less(step: int, further: int, count: int, itemsize: int) -> None:
    assert access_factor_of_dims(((step, count),), itemsize) <= access_factor_of_dims(((step + further, count),), itemsize)


@pytest.mark.parametrize("target", TARGETS)
def test_a_quotient_takes_a_reciprocal_and_a_product(target: str) -> None:
    """No instruction of the language divides; a number [P, 1] has its reciprocal taken once."""
    quotient, reciprocal, product = (machine_named(target).cost(Engine.VECTOR, Work(law, 4096)).busy for law in (
        "tensor_tensor.divide", "reciprocal", "tensor_tensor"))
    # reciprocals were measured, 6.25 ns an element, quotients were not
    assert quotient == pytest.approx(reciprocal + product, rel=0.1)


def test_work_that_an_engine_has_no_law_for_is_a_defect() -> None:
    with pytest.raises(InternalError, match="no law for the work 'cross_product'"):
        machine_named("trn2").cost(Engine.VECTOR, Work("cross_product", 1))


@pytest.mark.parametrize("target", TARGETS)
def test_engines_have_clocks_and_costs(target: str) -> None:
    machine = machine_named(target)
    assert set(machine.clocks) == set(machine.costs.engines) == set(ENGINES)
