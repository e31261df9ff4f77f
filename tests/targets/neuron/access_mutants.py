# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single changes of whole instructions, of how they access memory, and of queues, in the table of ``stream_mutants``."""

import random
from collections.abc import Iterator
from dataclasses import replace

from nki_mlir.dialects.access import HBM, PSUM, SBUF, Linear, Tile
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.op import Op, changed
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT32

from .stream_mutants import at, edited, moved, mutation, spots, with_tiles


# -- order -------------------------------------------------------------------------------------------------------------
@mutation
def wait_twice(program: Program, rng: random.Random) -> Iterator[Program]:
    """A second wait for the same semaphore, which holds the instruction until the next signal."""
    for spot in spots(program, rng, lambda i: len(i.waits) == 1):
        one = at(program, spot)
        wait = one.waits[0]
        yield edited(program, spot, replace(one, waits=(wait, wait)))
        yield edited(program, spot, replace(one, waits=(wait, wait._replace(value=wait.value + 1))))


@mutation
def wait_of_the_one_before(program: Program, rng: random.Random) -> Iterator[Program]:
    """An instruction takes over the waits of the next one, so that it runs later than others expect."""
    for engine, k in spots(program, rng, lambda i: i.waits):
        stream = program.streams[engine]
        if k and len(stream[k - 1].waits) + len(stream[k].waits) <= 2:
            waits = *stream[k - 1].waits, *stream[k].waits
            without = edited(program, (engine, k), replace(stream[k], waits=()))
            yield edited(without, (engine, k - 1), replace(stream[k - 1], waits=waits))


@mutation
def repeated_instruction(program: Program, rng: random.Random) -> Iterator[Program]:
    """An instruction runs and signals twice."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.update is not None):
        one = at(program, spot)
        yield edited(program, spot, one, one)


@mutation
def repeated_behind_its_signal(program: Program, rng: random.Random) -> Iterator[Program]:
    """An instruction runs again after it has signaled that its result is complete."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.update is not None and i.queue is None):
        one = at(program, spot)
        yield edited(program, spot, one, replace(one, waits=(), update=None))


@mutation
def exchanged_semaphores_of_queues(program: Program, rng: random.Random) -> Iterator[Program]:
    """Transfers of two queues count up each other's semaphore."""
    for a in range(len(program.queues)):
        for b in range(a):
            queues = [*program.queues]
            queues[a], queues[b] = (replace(queues[k], semaphore=queues[other].semaphore) for k, other in ((a, b), (b, a)))
            of_queue = {k: queues[k].semaphore for k in (a, b)}
            yield replace(program, queues=queues, streams={engine: [
                i if i.queue not in of_queue or i.update is None else
                replace(i, update=i.update._replace(semaphore=of_queue[i.queue])) for i in stream]
                for engine, stream in program.streams.items()})


@mutation
def exchanged_signals(program: Program, rng: random.Random) -> Iterator[Program]:
    """Two instructions of an engine, one after the other, signal each other's semaphore."""
    for engine, k in spots(program, rng, lambda i: i.update is not None and i.queue is None):
        stream = program.streams[engine]
        then = next((n for n in range(k + 1, len(stream)) if stream[n].update is not None and stream[n].queue is None
                     and stream[n].update != stream[k].update), None)
        if then is not None:
            first, second = replace(stream[k], update=stream[then].update), replace(stream[then], update=stream[k].update)
            yield edited(edited(program, (engine, k), first), (engine, then), second)


# -- loops of the device -----------------------------------------------------------------------------------------------
@mutation
def target_of_a_branch(program: Program, rng: random.Random) -> Iterator[Program]:
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.CompareBranch)):
        one = at(program, spot)
        for target in (one.op.target - 1, one.op.target + 1):
            if 0 <= target < len(program.streams[spot[0]]):
                yield edited(program, spot, replace(one, op=replace(one.op, target=isa.Label(target))))


@mutation
def comparison_of_a_branch(program: Program, rng: random.Random) -> Iterator[Program]:
    """The loop runs once more, or ends at once."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, isa.CompareBranch)):
        one = at(program, spot)
        other = rng.choice([op for op in isa.COMPARISONS if op != one.op.op])
        yield edited(program, spot, replace(one, op=replace(one.op, op=other)))


@mutation
def another_register(program: Program, rng: random.Random) -> Iterator[Program]:
    """Addresses use a register that another loop, or nothing, has set."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.symbols):
        one = at(program, spot)
        first, *others = one.op.symbols
        yield edited(program, spot, replace(one, op=changed(
            one.op, None, symbols=(isa.Register(first.number + 1), *others))))


@mutation
def factor_of_a_register(program: Program, rng: random.Random) -> Iterator[Program]:
    """The iterations of a loop are closer together in memory."""
    def other(tile: Tile) -> Tile | None:
        free = tile.access.free
        if not free.symbols or free.symbols[0][1] < 2:
            return None
        (register, factor), *others = free.symbols
        return tile.patterned(free=Linear(free.const, ((register, factor // 2), *others)))
    return with_tiles(program, rng, "rw", other, (SBUF, PSUM, HBM))


# -- memory ------------------------------------------------------------------------------------------------------------
def halves(tile: Tile) -> Tile:
    step, count = tile.access.dims[-1]
    return tile.patterned(dims=(*tile.access.dims[:-1], (step, max(1, count // 2))))


@mutation
def half_a_result(program: Program, rng: random.Random) -> Iterator[Program]:
    """An instruction computes the first half of each row; a later one reads all."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and not i.op.queued):
        one = at(program, spot)
        shapes = {tile.shape for _, tile in one.op.operands()}
        if len(shapes) == 1 and next(iter(shapes))[-1] > 1:
            yield edited(program, spot, replace(one, op=changed(one.op, halves)))


@mutation
def transfer_of_another_dtype(program: Program, rng: random.Random) -> Iterator[Program]:
    """The elements of one side of a transfer are half or twice as large; there are as many."""
    def other(tile: Tile) -> Tile | None:
        dtype = {FLOAT32: BFLOAT16, INT32: FLOAT16, BFLOAT16: FLOAT32}.get(tile.dtype)
        return None if dtype is None else replace(tile, access=replace(tile.access, dtype=dtype))
    return with_tiles(program, rng, "rw", other, (SBUF, PSUM, HBM), queued=True)


@mutation
def transposed_access(program: Program, rng: random.Random) -> Iterator[Program]:
    """Two axes change places: the same bytes in another order."""
    def other(tile: Tile) -> Tile | None:
        dims = tile.access.dims
        if len(dims) < 3 or dims[-1] == dims[-2] or dims[-1][1] != dims[-2][1]:
            return None
        return tile.patterned(dims=(*dims[:-2], dims[-1], dims[-2]))
    return with_tiles(program, rng, "rw", other, (SBUF, PSUM, HBM))


def last_axis(tile: Tile) -> tuple[int, int]:
    """Return the step and the count of a tile's last free axis; (0, 1) if it is not worth changing."""
    step, count = tile.access.dims[-1]
    return (0, 1) if count < 2 or step == 0 or len(tile.access.dims) < 2 else (step, count)


@mutation
def reversed_access(program: Program, rng: random.Random) -> Iterator[Program]:
    """The last axis goes backwards: the same bytes in another order."""
    def other(tile: Tile) -> Tile | None:
        step, count = last_axis(tile)
        return moved(tile.patterned(dims=(*tile.access.dims[:-1], (-step, count))), step * (count - 1)) if step else None
    return with_tiles(program, rng, "rw", other)


@mutation
def wider_step(program: Program, rng: random.Random) -> Iterator[Program]:
    """Elements are twice as far apart."""
    def other(tile: Tile) -> Tile | None:
        step, count = last_axis(tile)
        return tile.patterned(dims=(*tile.access.dims[:-1], (2 * step, count))) if step else None
    return with_tiles(program, rng, "rw", other)


@mutation
def one_bank_further(program: Program, rng: random.Random) -> Iterator[Program]:
    bank = machine_named(program.target).psum_bank_bytes
    return with_tiles(program, rng, "rw", lambda t: moved(t, bank // t.dtype.itemsize), (PSUM,))


@mutation
def exchanged_results(program: Program, rng: random.Random) -> Iterator[Program]:
    """Two instructions of an engine with results of one shape write each other's."""
    for engine, k in spots(program, rng, lambda i: isinstance(i.op, Op) and not i.op.queued):
        stream = program.streams[engine]
        results = dict(stream[k].op.targets())
        for n in range(k + 1, min(len(stream), k + 8)):
            if not isinstance(stream[n].op, Op) or stream[n].op.queued:
                continue
            others = dict(stream[n].op.targets())
            if "dst" in results and "dst" in others and results["dst"].shape == others["dst"].shape and (
                    results["dst"].access != others["dst"].access):
                first, second = (replace(i, op=changed(i.op, lambda t: t, dst=tile)) for i, tile in (
                    (stream[k], others["dst"]), (stream[n], results["dst"])))
                yield edited(edited(program, (engine, k), first), (engine, n), second)
                break


@mutation
def exchanged_factors(program: Program, rng: random.Random) -> Iterator[Program]:
    """The tensor engine loads what should move, and moves what it should have loaded."""
    for spot in spots(program, rng, lambda i: isinstance(i.op, Op) and i.op.mnemonic == "MATMUL"):
        one = at(program, spot)
        yield edited(program, spot, replace(one, op=changed(
            one.op, lambda t: t, moving=one.op.stationary, stationary=one.op.moving)))


# -- tables of functions -----------------------------------------------------------------------------------------------
@mutation
def table_behind_its_use(program: Program, rng: random.Random) -> Iterator[Program]:
    for engine, k in spots(program, rng, lambda i: isinstance(i.op, isa.ActTableLoad)):
        stream = program.streams[engine]
        then = next((n for n in range(k + 1, len(stream)) if isinstance(stream[n].op, Op)), None)
        if then is not None:
            load, use = stream[k], stream[then]
            yield edited(edited(program, (engine, k), replace(load, op=isa.EventSemaphore())), (engine, then), use,
                         isa.Instruction(load.op, location=load.location))
