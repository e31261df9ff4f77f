# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single changes that break a program of instruction streams, each of which the checker of streams must reject."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.nisa.meeting import Meeting, SendrecvOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.machine import Engine, machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32

Spot = tuple[Engine, int]                       # an instruction: its stream, its place there
Mutation = Callable[[Program, random.Random], Iterator[Program]]
MUTATIONS: dict[str, Mutation] = {}             # by name: programs with one such change, in a random order


def mutation(change: Mutation) -> Mutation:
    MUTATIONS[change.__name__] = change
    return change


def spots(program: Program, rng: random.Random, wanted: Callable[[isa.Instruction], object]) -> list[Spot]:
    """The instructions for which it holds."""
    all_spots = [(e, k) for e, s in program.streams.items() for k, i in enumerate(s) if wanted(i)]
    rng.shuffle(all_spots)
    return all_spots


def edited(program: Program, spot: Spot, *instead: isa.Instruction) -> Program:
    """The program with others in place of an instruction; branches go where they went."""
    engine, at = spot
    stream = [*program.streams[engine][:at], *instead, *program.streams[engine][at + 1:]]
    moved = len(instead) - 1
    for k, one in enumerate(stream):
        if moved and isinstance(one.op, isa.CompareBranch) and one.op.target > at:
            stream[k] = replace(one, op=replace(one.op, target=isa.Label(one.op.target + moved)))
    return replace(program, streams={**program.streams, engine: stream})


def at(program: Program, spot: Spot) -> isa.Instruction:
    return program.streams[spot[0]][spot[1]]


# -- order -------------------------------------------------------------------------------------------------------------
def last_active(program: Program, engine: Engine) -> int:
    return max((k for k, i in enumerate(program.streams[engine]) if isinstance(i.op, Op)), default=-1)


@mutation
def removed_wait(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.waits):
        one = at(program, spot)
        for n in range(len(one.waits)):
            yield edited(program, spot, replace(one, waits=one.waits[:n] + one.waits[n + 1:]))


@mutation
def lower_wait(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.waits and i.waits[0].value > 0):
        one = at(program, spot)
        first = one.waits[0]
        yield edited(program, spot, replace(one, waits=(first._replace(value=first.value - 1), *one.waits[1:])))


@mutation
def wait_that_is_too_high(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.waits):
        one = at(program, spot)
        yield edited(program, spot, replace(one, waits=(one.waits[0]._replace(value=60_000), *one.waits[1:])))


@mutation
def wait_for_another_semaphore(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.waits):
        one = at(program, spot)
        number = (one.waits[0].semaphore + 1) % len(program.semaphores)
        yield edited(program, spot, replace(one, waits=(one.waits[0]._replace(semaphore=number), *one.waits[1:])))


@mutation
def removed_signal(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.update is not None and i.queue is None):
        yield edited(program, spot, replace(at(program, spot), update=None))


@mutation
def signal_counts_twice(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.update is not None and i.queue is None and i.update.amount > 0):
        one = at(program, spot)
        assert one.update is not None
        yield edited(program, spot, replace(one, update=one.update._replace(amount=2 * one.update.amount)))


@mutation
def early_signal(program: Program, rng: random.Random) -> Iterator[Program]:
    """An instruction signals what the one behind it should."""
    for engine, k in spots(program, rng, lambda i: i.update is not None and i.queue is None and isinstance(i.op, Op)):
        stream = program.streams[engine]
        if k and stream[k - 1].update is None and not isinstance(stream[k - 1].op, isa.CompareBranch):
            without = edited(program, (engine, k), replace(stream[k], update=None))
            yield edited(without, (engine, k - 1), replace(stream[k - 1], update=stream[k].update))


@mutation
def swapped_with_the_next(program: Program, rng: random.Random) -> Iterator[Program]:
    """Two instructions of an engine, of which the second needs the first."""
    for engine, k in spots(program, rng, lambda i: isinstance(i.op, Op)):
        stream = program.streams[engine]
        if k + 1 < len(stream) and isinstance(stream[k + 1].op, Op) and (stream[k].waits or stream[k + 1].waits):
            first, then = stream[k], stream[k + 1]
            yield edited(edited(program, (engine, k), then), (engine, k + 1), first)


@mutation
def transfer_in_another_queue(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.queue is not None):
        one = at(program, spot)
        others = [n for n, q in enumerate(program.queues) if q.engine is spot[0] and n != one.queue]
        if others:
            queue = rng.choice(others)
            yield edited(program, spot, replace(one, queue=queue, update=isa.Update(program.queues[queue].semaphore, 16)))


@mutation
def removed_clear(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.RangeClear)):
        yield edited(program, spot, replace(at(program, spot), op=isa.EventSemaphore()))


@mutation
def shorter_clear(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.RangeClear) and i.op.last > i.op.first):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=replace(one.op, first=one.op.first + 1)))


@mutation
def wait_one_higher(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.waits):
        one = at(program, spot)
        first = one.waits[0]
        yield edited(program, spot, replace(one, waits=(first._replace(value=first.value + 1), *one.waits[1:])))


@mutation
def wait_of_the_next(program: Program, rng: random.Random) -> Iterator[Program]:
    """The instruction behind it waits in its place."""
    for engine, k in spots(program, rng, lambda i: i.waits):
        stream = program.streams[engine]
        if k + 1 < len(stream) and len(stream[k + 1].waits) < 2:
            waits = *stream[k].waits, *stream[k + 1].waits
            without = edited(program, (engine, k), replace(stream[k], waits=()))
            yield edited(without, (engine, k + 1), replace(stream[k + 1], waits=waits))


@mutation
def signal_of_another_semaphore(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.update is not None and i.queue is None):
        one = at(program, spot)
        assert one.update is not None
        number = (one.update.semaphore + 1) % len(program.semaphores)
        yield edited(program, spot, replace(one, update=one.update._replace(semaphore=number)))


@mutation
def transfer_counts_another_number(program: Program, rng: random.Random) -> Iterator[Program]:
    """DMA engines report a transfer in parts only if it adds the number of DMA engines."""
    for spot in spots(program, rng, lambda i: i.queue is not None):
        one = at(program, spot)
        assert one.update is not None
        yield edited(program, spot, replace(one, update=one.update._replace(amount=rng.choice((1, 8, 15, 17, 32)))))


@mutation
def exchanged_transfers(program: Program, rng: random.Random) -> Iterator[Program]:
    """Two transfers of a queue, one after the other; the waits stay where they were."""
    for engine, k in spots(program, rng, lambda i: i.queue is not None):
        stream = program.streams[engine]
        then = next((n for n in range(k + 1, len(stream)) if stream[n].queue == stream[k].queue), None)
        if then is not None:
            first, second = replace(stream[k], waits=stream[then].waits), replace(stream[then], waits=stream[k].waits)
            yield edited(edited(program, (engine, k), second), (engine, then), first)


@mutation
def another_decrement(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: i.update is not None and i.update.amount < 0):
        one = at(program, spot)
        assert one.update is not None
        yield edited(program, spot, replace(one, update=one.update._replace(amount=one.update.amount - 1)))
        yield edited(program, spot, replace(one, update=None))


# -- loops of the device -----------------------------------------------------------------------------------------------
@mutation
def bound_of_a_loop(program: Program, rng: random.Random) -> Iterator[Program]:
    """An engine runs the loop once more or less than the others."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.CompareBranch)
                      and isinstance(i.op.lhs, isa.Register) and isinstance(i.op.rhs, int)):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=replace(one.op, rhs=one.op.rhs + rng.choice((-1, 1)))))


@mutation
def first_value_of_a_register(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.Move) and isinstance(i.op.value, int)):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=replace(one.op, value=one.op.value + 1)))


@mutation
def step_of_a_register(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.RegisterAlu) and isinstance(i.op.rhs, int)):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=replace(one.op, rhs=2 * one.op.rhs + 1)))


# -- several cores -----------------------------------------------------------------------------------------------------
@mutation
def removed_meeting(program: Program, rng: random.Random) -> Iterator[Program]:
    """A core does not wait for the others, but signals what follows."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Meeting) and i.queue is None):
        yield edited(program, spot, replace(at(program, spot), op=isa.EventSemaphore()))


@mutation
def another_partner(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, SendrecvOp)):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, send_to=one.op.send_to ^ 1)))


# -- memory ------------------------------------------------------------------------------------------------------------
def moved(tile: Tile, elements: int = 0, partitions: int = 0) -> Tile:
    partition = tile.access.partition
    return tile.patterned(free=tile.access.free.plus(Linear(elements)),
                          partition=None if partition is None else partition.plus(Linear(partitions)))


def with_tiles(program: Program, rng: random.Random, roles: str, change: Callable[[Tile], Tile | None],
               spaces: tuple[str, ...] = (SBUF, PSUM), queued: bool | None = None) -> Iterator[Program]:
    """Programs of which one tile that is read (``r``) or written (``w``) is another one."""
    def operands(op: Op) -> list[tuple[str, Tile]]:
        return [*(op.sources() if "r" in roles else []), *(op.targets() if "w" in roles else [])]
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and queued in (None, i.op.queued)):
        one = at(program, spot)
        for name, tile in operands(one.op):
            if tile.space in spaces and (instead := change(tile)) is not None:
                yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, **{name: instead})))


@mutation
def result_half_a_tile_further(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "w", lambda t: moved(t, max(1, t.free_elements // 2)))


@mutation
def result_one_element_further(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "w", lambda t: moved(t, 1))


@mutation
def operand_half_a_tile_further(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "r", lambda t: moved(t, max(1, t.free_elements // 2)))


@mutation
def operand_one_tile_back(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "r", lambda t: moved(t, -t.free_elements) if t.access.free.const >= t.free_elements
                      else None)


@mutation
def transfer_one_partition_further(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "rw", lambda t: moved(t, partitions=1) if t.partitions < 128 else None, queued=True)


@mutation
def transfer_of_the_next_row(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "rw", lambda t: moved(t, t.shape[-1]), (HBM,))


@mutation
def dtype_of_equal_size(program: Program, rng: random.Random) -> Iterator[Program]:
    def other(tile: Tile) -> Tile | None:
        dtype = {FLOAT32: INT32, INT32: FLOAT32, BFLOAT16: FLOAT16}.get(tile.dtype)
        return None if dtype is None else replace(tile, access=replace(tile.access, dtype=dtype))
    return with_tiles(program, rng, "rw", other)


@mutation
def removed_load(program: Program, rng: random.Random) -> Iterator[Program]:
    """The transfer of a load moves a byte of what it should."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "DMA"):
        one = at(program, spot)
        src, dst = one.op.src, one.op.dst
        if src.space == HBM and dst.on_chip and src.shape == dst.shape and dst.shape[-1] > 1:
            def half(tile: Tile) -> Tile:
                step, count = tile.access.dims[-1]
                return tile.patterned(dims=(*tile.access.dims[:-1], (step, count // 2)))
            yield edited(program, spot, replace(one, op=changed(one.op, half)))


@mutation
def removed_instruction(program: Program, rng: random.Random) -> Iterator[Program]:
    """What signals stays, what is computed is gone."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and not i.op.queued):
        yield edited(program, spot, replace(at(program, spot), op=isa.EventSemaphore()))


@mutation
def accumulation_that_starts_nowhere(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "MATMUL"
                      and not i.op.accumulate):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, accumulate=True)))


@mutation
def accumulation_that_starts_anew(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "MATMUL" and i.op.accumulate):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, accumulate=False)))


# -- rules of the device -----------------------------------------------------------------------------------------------
@mutation
def odd_start_partition(program: Program, rng: random.Random) -> Iterator[Program]:
    def shifted(tile: Tile) -> Tile | None:
        return moved(tile, partitions=1) if tile.partitions < 128 else None
    return with_tiles(program, rng, "rw", shifted, queued=False)


@mutation
def half_a_quadrant_further(program: Program, rng: random.Random) -> Iterator[Program]:
    def shifted(tile: Tile) -> Tile | None:
        return moved(tile, partitions=16) if tile.partitions <= 112 else None
    return with_tiles(program, rng, "rw", shifted, queued=False)


@mutation
def partitions_outside_of_the_memory(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "rw", lambda t: moved(t, partitions=128 - t.partitions + 1), queued=False)


@mutation
def product_across_banks(program: Program, rng: random.Random) -> Iterator[Program]:
    bank = machine_named(program.target).psum_bank_bytes
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "MATMUL"):
        one = at(program, spot)
        dst = one.op.dst
        size = dst.dtype.itemsize
        into = bank - dst.access.free.const * size % bank - size * max(1, dst.free_elements // 2)
        yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, dst=moved(dst, into // size))))


@mutation
def address_behind_the_end(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "rw", lambda t: moved(t, 100_000))


@mutation
def address_behind_the_mark(program: Program, rng: random.Random) -> Iterator[Program]:
    return with_tiles(program, rng, "w", lambda t: moved(t, program.sbuf_bytes // t.dtype.itemsize), (SBUF,))


@mutation
def product_from_psum(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "MATMUL"):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=changed(one.op, lambda t: t, moving=replace(
            one.op.moving, space=PSUM, base_shape=one.op.dst.base_shape))))


@mutation
def another_engine(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and not i.op.queued and i.op.engines):
        one = at(program, spot)
        engine = next((e for e in program.streams if e not in one.op.engines), None)
        if engine is not None:
            yield replace(program, streams={**edited(program, spot).streams,
                                            engine: [*program.streams[engine], one]})


# -- marks -------------------------------------------------------------------------------------------------------------
def used(program: Program, space: str) -> int:
    """Bytes of a partition up to the last that an instruction touches."""
    tiles = [tile for stream in program.streams.values() for i in stream if isinstance(i.op, Op)
             for _, tile in i.op.operands() if tile.space == space and not tile.access.symbols_used()]
    return max(((t.access.free.const + sum(max(0, step) * (count - 1) for step, count in t.access.free_dims) + 1)
                * t.dtype.itemsize for t in tiles), default=0)


@mutation
def sbuf_mark(program: Program, rng: random.Random) -> Iterator[Program]:
    if end := used(program, SBUF):
        yield replace(program, sbuf_bytes=end - 1)
        yield replace(program, sbuf_bytes=rng.randrange(end))


@mutation
def psum_mark(program: Program, rng: random.Random) -> Iterator[Program]:
    if end := used(program, PSUM):
        yield replace(program, psum_bytes=end - 1)
        yield replace(program, psum_bytes=rng.randrange(end))


@mutation
def removed_table(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.ActTableLoad)):
        yield edited(program, spot, replace(at(program, spot), op=isa.EventSemaphore()))


@mutation
def another_table(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.ActTableLoad)):
        one = at(program, spot)
        tables = isa.ActTableLoad.choices["table"]
        yield edited(program, spot, replace(one, op=isa.ActTableLoad(
            tables[(tables.index(one.op.table) + 1) % len(tables)])))


@mutation
def final_wait(program: Program, rng: random.Random) -> Iterator[Program]:
    for engine, stream in program.streams.items():
        for k in range(last_active(program, engine) + 1, len(stream)):
            if stream[k].waits:
                yield edited(program, (engine, k), replace(stream[k], waits=()))
