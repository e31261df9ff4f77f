# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which events are complete before others, against all orders in which the streams of small programs can run."""

import random

from nki_mlir.targets.neuron.checker.happens_before import HappensBefore, first_true, later_of, sums_at
from nki_mlir.targets.neuron.checker.trace import Choices, StreamTrace
from nki_mlir.targets.neuron.deadlock import Deadlock
from nki_mlir.targets.neuron.format.assembly import parse_program

ENGINES = ("act", "pool", "sp")
PARTS = 16                      # DMA engines, each of which reports a transfer by itself
Instruction = tuple             # (waits, update, is a transfer): waits and the update are (semaphore, number)


def text_of(streams: dict[str, list[Instruction]]) -> str:
    lines = [".nki_isa 1", ".kernel f", ".target trn2", ".sbuf 4 of 212984", ".input x fp32[1] 0",
             *(f".semaphore {k} S{k}" for k in range(3)), *(f".queue {k} q{k} {e} {k}" for k, e in enumerate(streams))]
    for queue, (engine, stream) in enumerate(streams.items()):
        lines.append(f".stream {engine}")
        for k, (waits, update, transfer) in enumerate(stream):
            words = [f"S[{s}] (S{s})>={value}" for s, value in waits]
            words.append(f"DMA queue={queue} dst=fp32@0x0[1][1] src=fp32@x[1,1][1,1] channels=1" if transfer
                         else "EVENT_SEMAPHORE")
            if update:
                words.append(f"S[{update[0]}] (S{update[0]})+={update[1]}@complete")
            lines.append(f"{engine} {k:04d}: {' '.join(words)}")
    return "\n".join(lines) + "\n"


def unordered_pairs(streams: dict[str, list[Instruction]]) -> set[tuple]:
    """The pairs of events (engine, number) of which the second can start while the first is not complete.

    A state has the number of instructions that each engine has started, the semaphores, and for each transfer of a queue
    how many DMA engines have reported it.
    """
    engines = list(streams)
    transfers = {e: [k for k, (_, _, transfer) in enumerate(streams[e]) if transfer] for e in engines}
    events = [(e, k) for e in engines for k in range(len(streams[e]))]
    unordered = set()
    start = (0,) * len(engines), (0, 0, 0), tuple((0,) * len(transfers[e]) for e in engines)
    reached, stack = {start}, [start]

    def reach(state):
        if state not in reached:
            reached.add(state)
            stack.append(state)

    def count(semaphores, update, amount):
        changed = list(semaphores)
        changed[update[0]] += amount
        return tuple(changed)

    while stack:
        positions, semaphores, reports = stack.pop()

        def complete(engine, k, positions=positions, reports=reports):
            number = engines.index(engine)
            if k in transfers[engine]:
                return reports[number][transfers[engine].index(k)] == PARTS
            return positions[number] > k
        for number, engine in enumerate(engines):
            k = positions[number]
            if k < len(streams[engine]):
                waits, update, transfer = streams[engine][k]
                if all(semaphores[s] >= value for s, value in waits):
                    unordered |= {(other, (engine, k)) for other in events if not complete(*other)}
                    moved = tuple(p + (n == number) for n, p in enumerate(positions))
                    reach((moved, count(semaphores, update, update[1]) if update and not transfer else semaphores, reports))
            for index, k in enumerate(transfers[engine]):
                done = reports[number][index]
                before = reports[number][index - 1] if index else PARTS
                if positions[number] > k and done < before:     # each DMA engine reports transfers in their order
                    _, update, _ = streams[engine][k]
                    amount = 1 if update[1] == PARTS else update[1] * (done + 1 == PARTS)
                    changed = tuple(of if n != number else (*of[:index], done + 1, *of[index + 1:])
                                    for n, of in enumerate(reports))
                    reach((positions, count(semaphores, update, amount), changed))
    return unordered


def compare(streams: dict[str, list[Instruction]]) -> tuple[int, int]:
    """Return how many pairs of events of two engines are ordered, and of how many of them the checker does not know it;
    none for streams that do not end."""
    try:
        trace = StreamTrace([parse_program(text_of(streams))], Choices(), 100)
    except Deadlock:
        return 0, 0
    relation, unordered, ordered, unknown = HappensBefore(trace), unordered_pairs(streams), 0, 0
    events = [event for lane, of in enumerate(trace.lanes) if not trace.is_queue[lane] for event in of]
    for a in events:
        for b in events:
            pair = (a.engine.asm, a.pc), (b.engine.asm, b.pc)
            if relation.ordered(a, b):
                assert pair not in unordered, text_of(streams)
            if a.lane != b.lane and pair not in unordered:
                ordered += 1
                unknown += not relation.ordered(a, b)
            elif a.lane == b.lane and pair not in unordered:
                assert relation.ordered(a, b)
    counters = {(update[0], engine) for engine, stream in streams.items() for _, update, _ in stream if update}
    transfers = any(transfer for stream in streams.values() for *_, transfer in stream)
    if not transfers and len({semaphore for semaphore, _ in counters}) == len(counters):    # one counter each
        assert not unknown, text_of(streams)
    return ordered, unknown


def total(pairs) -> tuple[int, int]:
    ordered, unknown = zip(*pairs)
    return sum(ordered), sum(unknown)


def test_engines__are_ordered_as_in_all_orders():
    rng = random.Random(1)

    def streams():
        return {engine: [([(s, rng.choice([1, 1, 2, 3])) for s in rng.sample(range(3), rng.choice([0, 0, 1, 1, 2]))],
                          (rng.randrange(3), rng.choice([1, 1, 2])) if rng.random() < 0.8 else None, False)
                         for _ in range(rng.randrange(1, 5))] for engine in ENGINES}
    ordered, unknown = total(compare(streams()) for _ in range(400))
    assert ordered > 250 and not unknown


def test_transfers__are_ordered_as_in_all_orders():
    """act triggers transfers of a queue, pool waits for them, and each may wait for the other."""
    rng = random.Random(2)

    def streams():
        amount, counted = rng.choice([16, 16, 3]), rng.random() < 0.3
        most = 2 * amount + 1
        act = [([(1, 1)] if rng.random() < 0.2 else [], (0, amount), True) if rng.random() < 0.6 else
               ([(0, rng.randrange(1, most))] if rng.random() < 0.4 else [], (0, 1) if counted else None, False)
               for _ in range(rng.randrange(1, 4))]
        pool = [([(0, rng.choice([rng.randrange(1, most), amount, 2 * amount]))] if rng.random() < 0.7 else [],
                 (rng.choice([1, 2]), 1), False) for _ in range(rng.randrange(1, 4))]
        return {"act": act, "pool": pool}
    ordered, unknown = total(compare(streams()) for _ in range(300))
    assert ordered > 100 and not unknown


def test_wait_for_two_transfers_of_a_queue__needs_all_reports():
    """One DMA engine may lag while the others have reported both: 30 of 32 do not imply the first transfer."""
    for value, orders in ((16, 0), (30, 0), (31, 1), (32, 2)):
        streams = {"act": [([], (0, 16), True), ([], (0, 16), True)], "pool": [([(0, value)], None, False)]}
        assert compare(streams) == (orders, 0)


def test_transfers_with_other_amounts__are_ordered_as_in_all_orders():
    """DMA engines report a transfer in parts if it adds 16. Others of the same queue add their number when complete."""
    rng = random.Random(3)

    def streams():
        amounts = [rng.choice([16, 16, 3, 20]) for _ in range(3)]
        act = [([], (0, amount), True) if rng.random() < 0.8 else
               ([(0, rng.randrange(1, 20))] if rng.random() < 0.4 else [], None, False) for amount in amounts]
        values = amounts[0], sum(amounts[:2]), sum(amounts), rng.randrange(1, 40)
        return {"act": act, "pool": [([(0, rng.choice(values))], (1, 1), False) for _ in range(rng.randrange(1, 3))]}
    ordered, unknown = total(compare(streams()) for _ in range(50))
    assert ordered > 50 and unknown < 5           # what precedes a transfer that reports in parts


def test_functions_of_clocks_and_sums():
    assert later_of((1, 5, 2), (3, 4, 2)) == [3, 5, 2]
    assert [sums_at([2, 5], count) for count in (-1, 0, 1, 2, 3)] == [0, 0, 2, 5, 5] and sums_at([], 1) == 0
    for size in range(6):
        for first in range(size + 1):
            assert first_true(size, lambda k, first=first: k >= first) == first
