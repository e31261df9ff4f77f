# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The columns of a scheduling graph, compared with what its steps say one by one."""

from collections.abc import Iterator
from functools import cache
from itertools import accumulate

import numpy as np
import pytest

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.op import on_engine
from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer
from nki_mlir.targets.neuron.codegen.scheduling_graph import TRIGGERS, SchedulingGraph
from nki_mlir.targets.neuron.codegen.step_engines import Choice
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.crowded_code import graphs_of, program

SEEDS = [pytest.param(seed, id=str(seed)) for seed in range(6)]


@cache
def graphs(seed: int) -> list[SchedulingGraph]:
    target, written = ("trn1", "trn2", "trn3")[seed % 3], seed % 4 == 3
    return graphs_of(program(seed, 20, target, loop_at=14, products=3 if seed % 2 else 1), written)


def tiles(graph: SchedulingGraph, k: int) -> list[Tile]:
    return [tile for _, tile in graph.ops[k].operands()]


def used(graph: SchedulingGraph, k: int) -> set[DeviceBuffer]:
    return {tile.handle for tile in tiles(graph, k) if tile.space != "hbm"}


def kept(graph: SchedulingGraph, buffer: DeviceBuffer) -> int:
    unit = 2048 if buffer.space == "psum" and buffer.bytes_per_partition > 1024 else 32
    return int(np.ceil(buffer.bytes_per_partition / unit)) * unit


def visible(graph: SchedulingGraph, k: int, choice: Choice, alone: bool) -> float:
    """Return ns from the start of a step until another one sees its result; ``alone``: on the same engine."""
    transfer, dma = graph.transfers[k], graph.machine.costs.dma
    if transfer is None:
        return choice.busy + (choice.result_in_engine if alone else choice.result)
    return dma.trigger_ns + max(transfer.parts) + dma.notify_ns


@pytest.mark.parametrize("seed", SEEDS)
def test_buffers_are_those_of_the_run(seed: int) -> None:
    all_graphs = graphs(seed)
    assert len(all_graphs) == 3
    in_graphs = [{b for k in range(len(graph)) for b in used(graph, k)} for graph in all_graphs]
    for number, graph in enumerate(all_graphs):
        others = set().union(*(buffers for n, buffers in enumerate(in_graphs) if n != number))
        steps = range(len(graph))
        assert set(graph.outside_users) == in_graphs[number] & others
        assert all(ks == [k for k in steps if b in used(graph, k)]
                   for b, ks in graph.outside_users.items())
        assert set(graph.buffer_by_number) == in_graphs[number] - others
        for n, buffer in enumerate(graph.buffer_by_number):
            users = [k for k in steps if buffer in used(graph, k)]
            assert (graph.first[n], graph.last[n], graph.uses[n]) == (users[0], users[-1], len(users))
            assert graph.buffer_users.lists[n] == users == [k for k in steps if n in graph.buffers[k]]
            assert graph.size[n] == kept(graph, buffer)
            assert graph.space[n] == ("sbuf", "psum").index(buffer.space)
        assert all(len({*buffers}) == len(buffers) for buffers in graph.buffers)
        for at, space in enumerate(("sbuf", "psum")):
            outside = sum(kept(graph, b) for b in graph.outside_users if b.space == space)
            live = [outside + sum(kept(graph, b) for n, b in enumerate(graph.buffer_by_number)
                                  if b.space == space and graph.first[n] <= k <= graph.last[n]) for k in steps]
            assert graph.outside[space] == outside
            assert [*accumulate(graph.changes[at])] == [*live, outside]
        sbuf = sum(kept(graph, b) for b in in_graphs[number] if b.space == "sbuf")
        assert graph.crowded == (sbuf > graph.machine.sbuf_bytes_per_partition)


def test_memory_that_is_just_full_is_not_crowded() -> None:
    for more in (0, 32):
        b = Builder("trn1")
        for bytes_per_partition in (1024, b.code.machine.sbuf_bytes_per_partition // 32 * 32 - 1024 + more):
            tile = b.on_chip("t", (128, bytes_per_partition // 4))
            b.memset((tile, 0, 128, 0, 64), 0)
        graph, = graphs_of(b)
        assert graph.crowded == (more > 0)


def test_results_take_psum_in_order_unless_some_are_evicted() -> None:
    b = program(0, 8)
    rings = {(written, evicts): SchedulingGraph(
        b.code.body.nodes, b.code.machine, set(), EngineChoice(b.code.machine, written=written), evicts).ring
        for written in (False, True) for evicts in (False, True)}
    assert [options for options, ring in rings.items() if ring] == [(True, False)]


def conflicts(graph: SchedulingGraph) -> np.ndarray:
    """Return for each pair of steps whether both touch an element and one writes it. All tiles begin at
    column 0 and at row 0 or 64, so some elements stand for all."""
    def elements(tile: Tile) -> set[tuple[object, int]]:
        flat = np.asarray(tile.access.free.const)
        for step, count in tile.access.free_dims:
            flat = (flat[..., None] + step * np.arange(count)).reshape(-1)
        lanes = range(0) if tile.access.partition is None else range(
            tile.access.partition.const, tile.access.partition.const + tile.partitions)
        return {(tile.handle, lane, int(e)) for lane in lanes[::64] or [0] for e in flat[::256]}
    reads, writes = ([set().union(*(elements(t) for f, t in op.operands() if getattr(f, side))) for op in graph.ops]
                     for side in ("reads", "writes"))
    return np.array([[a < b and bool(writes[a] & (reads[b] | writes[b]) or reads[a] & writes[b])
                      for b in range(len(graph))] for a in range(len(graph))])


def closed(pairs: np.ndarray) -> np.ndarray:
    for k in range(len(pairs)):
        pairs = pairs | np.outer(pairs[:, k], pairs[k])
    return pairs


@pytest.mark.parametrize("seed", SEEDS)
def test_dependences__imply_all_conflicts_and_no_more(seed: int) -> None:
    for graph in graphs(seed):
        pairs = np.zeros((len(graph), len(graph)), bool)
        for k, before in enumerate(graph.before):
            pairs[before, k] = True
            assert len(before) <= 2 or not any(a in graph.before[b] for a in before for b in before)
        np.testing.assert_array_equal(closed(pairs), closed(conflicts(graph)))
        assert graph.users == [[*np.flatnonzero(row)] for row in pairs]


@pytest.mark.parametrize("seed", SEEDS)
def test_choices__have_the_costs_of_each_engine(seed: int) -> None:
    sets: dict[int, str] = {}
    for graph in graphs(seed):
        machine, written = graph.machine, seed % 4 == 3
        for op, choices, table, stores, transfer in zip(graph.ops, graph.choices, graph.tables, graph.stores,
                                                        graph.transfers):
            assert [c.engine for c in choices] == [*EngineChoice(machine, written=written).of(op)]
            for choice in choices:
                work = on_engine(op, choice.engine).work()
                cost = machine.cost(choice.engine, work)
                psum = any(tile.space == "psum" for _, tile in op.operands())
                ramps = not written and machine.costs.engines[choice.engine].ramp is not None
                assert choice == (choice.engine, max(cost.busy, machine.costs.control.fetch_ns), cost.result,
                                  cost.result_in_engine, bool(psum and machine.costs.psum_port_shared and choice.engine in
                                                        (Engine.VECTOR, Engine.SCALAR)), choice.share, work)
                assert (choice.share > 0) == ramps
            assert sets.setdefault(table, op.function_set) == op.function_set and (table == 0) == (op.function_set == "")
            assert stores == any(tile.space == "hbm" for _, tile in op.targets())
            assert (transfer is not None) == op.queued
        assert graph.takes_turns == (len({op.function_set for op in graph.ops} - {""}) > 1)
    assert len({*sets.values()}) == len(sets)


def shares(graph: SchedulingGraph, share: int, issue: bool) -> Iterator[list[Engine]]:
    """Yield the engines that each step may choose."""
    free, port = dict.fromkeys(Engine, 0.0), 0.0
    for choices, transfer in zip(graph.choices, graph.transfers):
        engines = [c.engine for c in choices]
        if transfer is not None:
            if len(engines) == 1:
                free[engines[0]] += choices[0].busy
            yield engines if issue and share else engines[:1]
        elif share == 3:
            ends = [max(free[c.engine], port * c.port) + c.busy for c in choices]
            best = choices[int(np.argmin(ends))]
            free[best.engine] = min(ends)
            port = min(ends) if best.port else port
            yield [best.engine]
        else:
            yield [e for n, e in enumerate(engines) if not n or share == 2 or (share == 1 and e is not Engine.GPSIMD)]


@pytest.mark.parametrize("seed", SEEDS)
def test_shares__are_the_engines_of_an_order(seed: int) -> None:
    options = [(share, issue) for share in range(4) for issue in (True, False)]
    for graph in graphs(seed):
        for share, issue in options:
            chosen = graph.shared(share, issue)
            assert [[c.engine for c in choices] for choices in chosen] == [*shares(graph, share, issue)]
            assert all({*some} <= {*choices} for some, choices in zip(chosen, graph.choices))
            for other in options:
                assert (graph.sharing(share, issue) == graph.sharing(*other)) == (chosen == graph.shared(*other))
        balanced = graph.shared(3, True)
        for first, spread in ((False, False), (True, False), (False, True), (True, True)):
            alone = [c for c in (balanced if spread else graph.choices) if first or len(c) == 1]
            busy = graph.busy(first, spread)
            for engine in Engine:
                assert busy[engine] == pytest.approx(sum(c[0].busy for c in alone if c[0].engine is engine))
            shared = [c for c, t in zip(graph.choices, graph.transfers) if t is not None and len(c) > 1]
            engines = {choice.engine for choices in shared for choice in choices}
            triggers = sum(busy[e] for e in engines) + sum(min(choice.busy for choice in choices) for choices in shared)
            assert busy.get(TRIGGERS, 0.0) == pytest.approx(0.0 if first else triggers / max(len(engines), 1))
            transfers = [t for t in graph.transfers if t is not None]
            assert busy["dma"] == pytest.approx(sum(np.mean(t.parts) for t in transfers))
            assert busy["hbm"] == pytest.approx(sum(t.hbm_bytes for t in transfers) / graph.machine.hbm_bytes_per_ns(1))


@pytest.mark.parametrize("seed", SEEDS)
def test_times__are_those_of_the_longest_chains(seed: int) -> None:
    for graph in graphs(seed):
        firsts = [choices[0] for choices in graph.choices]

        def rest(k: int) -> float:
            return max([visible(graph, k, firsts[k], False)] + [
                visible(graph, k, firsts[k], firsts[user].engine is firsts[k].engine) + rest(user)
                for user in graph.users[k]])
        rests = [rest(k) for k in range(len(graph))]
        assert graph.path_lengths == pytest.approx(rests)
        assert [graph.latency(k) for k in range(len(graph))] == [
            visible(graph, k, choice, False) for k, choice in enumerate(firsts)]
        work = {e: sum(c.busy for c in firsts if c.engine is e) for e in Engine}
        busiest = max(work, key=work.__getitem__)
        before = [sum(c.busy for c in firsts[:k] if c.engine is busiest) for k in range(len(graph))]
        itself = [max(float(ns), 0.0) if graph.is_transfer[k] else firsts[k].busy for k, ns in enumerate(graph.moving_times)]
        for ahead, after in ((0, False), (50, False), (300, False), (0, True), (50, True)):
            urgency = [before[k] - ahead / 100 * (rests[k] - itself[k] * after) for k in range(len(graph))]
            by_urgency = sorted(range(len(graph)), key=lambda k: (urgency[k], k))
            order = by_urgency if ahead else [*range(len(graph))]
            if graph.ring:
                products = iter(sorted(k for k in order if firsts[k].engine is Engine.TENSOR))
                order = [next(products) if firsts[k].engine is Engine.TENSOR else k for k in order]
            assert [order[rank] for rank in graph.ranks(ahead, after)] == [*range(len(graph))]


@pytest.mark.parametrize("seed", SEEDS)
def test_program_order__waits_for_engines_and_operands(seed: int) -> None:
    for graph in graphs(seed):
        starts: list[float] = []
        firsts = [choices[0] for choices in graph.choices]
        for k, choice in enumerate(firsts):
            free = max([starts[j] + firsts[j].busy for j in range(k) if firsts[j].engine is choice.engine], default=0.0)
            starts.append(max([free] + [starts[j] + visible(graph, j, firsts[j], firsts[j].engine is choice.engine)
                                        for j in graph.before[k]]))
        ends = [start + max(visible(graph, k, firsts[k], False), firsts[k].busy) for k, start in enumerate(starts)]
        assert graph.in_program_order == pytest.approx(max(ends))


@pytest.mark.parametrize("seed", SEEDS)
def test_critical_path__is_the_longest_chain_of_steps_on_their_fastest_engines(seed: int) -> None:
    for graph in graphs(seed):
        def least(k: int, alone: tuple[bool, ...]) -> float:
            return min(visible(graph, k, choice, same) for choice in graph.choices[k] for same in alone)
        starts: list[float] = []
        for k in range(len(graph)):
            starts.append(max([starts[j] + least(j, (False, True)) for j in graph.before[k]], default=0.0))
        firsts = graph.least_rests(0, True)
        assert all(first >= rest for first, rest in zip(firsts, graph.least_rests(2, True)))
        assert all(rest >= first for first, rest in zip(firsts, graph.path_lengths))
        longest = max(start + least(k, (False,)) for k, start in enumerate(starts))
        assert graph.critical_path == pytest.approx(longest)
        assert graph.critical_path <= graph.in_program_order + 1e-6
