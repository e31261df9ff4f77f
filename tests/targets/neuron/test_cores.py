# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several cores, each with a program: whatever goes ahead, the meetings order what they share."""

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.neuron import lowered, streams, timed
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_cores
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulator import simulate_cores


@pytest.fixture(autouse=True)
def target(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def programs_of(kernel, *arrays, unroll_limit=50_000):
    spec = kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array))
    programs = emit_cores(lowered(spec.captured), spec.grid, Emission(unroll_limit, one_core=False))
    return spec, [decode_program(encode_program(p)) for p in programs]


def results(kernel, *arrays, seeds=range(20), unroll_limit=50_000):
    """The first output under each seed."""
    spec, programs = programs_of(kernel, *arrays, unroll_limit=unroll_limit)
    for seed in (None, *seeds):
        shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
        simulate_cores(programs, arrays, shared, seed)
        yield shared[spec.results[0].shared]


def swapped(meets):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name="shared")
        i = nl.program_id(0)
        for _ in range(2):
            nl.store(shared[i:i + 1], nl.multiply(nl.load(x[i:i + 1]), 2.0))
            if meets:
                nisa.core_barrier(shared, (0, 1))
            nl.store(out[i:i + 1], nl.load(shared[1 - i:2 - i]))
            if meets:
                nisa.core_barrier(shared, (0, 1))
        if not meets:
            nisa.core_barrier(out, (0, 1))
        return out
    return nki.jit(kernel)[2]


X = np.arange(16, dtype=np.float32).reshape(2, 8)


def test_a_barrier_orders_what_cores_write_and_read():
    for result in results(swapped(True), X):
        np.testing.assert_array_equal(result, 2 * X[::-1])


def test_without_it_some_order_shows_the_race():
    assert not all((result == 2 * X[::-1]).all() for result in results(swapped(False), X))


def test_the_streams_of_a_barrier():
    _, programs = programs_of(swapped(True), X)
    assert len(programs) == 2
    for program in programs:
        text = print_program(program)
        assert text.count("CORE_BARRIER cores=(0,1) data=fp32@shared") == 4
        assert print_program(parse_program(text)) == text


def exchanging(x):
    out, i = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.program_id(0)
    mine, theirs = nl.load(x[i:i + 1]), nl.ndarray((1, 8), x.dtype)
    for pipe in range(3):
        nisa.sendrecv(mine, theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=pipe)
        mine = nl.add(theirs, 1.0)
    nl.store(out[i:i + 1], theirs)
    return out


def test_exchanges_are_transfers_of_a_queue():
    for result in results(nki.jit(exchanging)[2], X):
        np.testing.assert_array_equal(result, X[::-1] + 2)
    _, (program, _) = programs_of(nki.jit(exchanging)[2], X)
    sent = [i for stream in program.streams.values() for i in stream if i.op.mnemonic == "DMA_SENDRECV"]
    assert len(sent) == 3 and all(program.queues[i.queue].name == "qSyncIO0" and i.update.amount == 16 for i in sent)


@beta_nki.jit
def reduced(x):
    out = beta_nl.ndarray(x.shape, x.dtype, buffer=beta_nl.shared_hbm)
    i = beta_nl.program_id(0)
    value = beta_nl.load(x[i])
    for _ in beta_nl.sequential_range(3):
        value[...] = beta_nl.all_reduce(value, np.add, program_axes=0) - value
    beta_nl.store(out[i], value)
    return out


@pytest.mark.parametrize("unroll_limit", [50_000, 4], ids=["written out", "register loop"])
def test_reductions_of_four_cores(unroll_limit):
    x = np.random.default_rng(0).integers(0, 9, (4, 8, 6)).astype(np.float32)
    expected = x
    for _ in range(3):
        expected = expected.sum(0, keepdims=True) - expected
    assert any("stays a register loop" in n for n in programs_of(reduced[4], x, unroll_limit=4)[1][0].notes)
    for result in results(reduced[4], x, seeds=range(6), unroll_limit=unroll_limit):
        np.testing.assert_array_equal(result, expected)


def test_cost_of_meetings():
    x = np.zeros((4, 8, 6), np.float32)
    spec = reduced[4].specialize(reduced[4].bind((x,), {}, is_array, describe_array))
    assert len(timed(streams(spec.captured, spec.grid)).cores) == 1      # the launch names none
    timing = timed(streams(spec.captured, spec.grid, Emission(one_core=False)))
    costs = machine_named("trn2").costs
    assert len(timing.cores) == 4               # beside each other
    each = 6 * costs.control.hop_ns + x[0].nbytes / costs.dma.hbm_bytes_per_ns
    assert timing.total_ns > timing.launch_ns + 3 * each and timing.hbm_bytes == 4 * 2 * x[0].nbytes
    spec, programs = programs_of(swapped(True), X)
    timing = timed(programs)
    assert timing.cores[0].busy_ns[Engine.GPSIMD] == pytest.approx(4 * costs.control.core_signal_ns)
    assert timing.hbm_bytes == 2 * 8 * X[0].nbytes      # what the transfers move


def test_one_core_of_several_by_itself():
    spec, programs = programs_of(swapped(True), X)
    shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
    with pytest.raises(NkiMlirError, match=r"nisa.core_barrier between 2 programs in a kernel that runs as one program"):
        simulate_cores(programs[:1], [X], shared)
