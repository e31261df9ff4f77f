# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Describe deadlocks of streams: which engine waits for which other one, as a cycle if there is one."""

from collections.abc import Sequence
from dataclasses import dataclass

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Engine


class Deadlock(NkiMlirError):
    code = "NKI-DEADLOCK"
    message = "no engine can continue: {waiting}"
    why = "each waits for a semaphore value that no remaining instruction can reach"
    fix = "compare the waits with the updates in the assembly text"


@dataclass(frozen=True)
class Waiter:
    """An engine of a core that waits at an instruction because a semaphore is below the value that it needs."""

    core: int
    engine: Engine
    index: int
    semaphore: int
    value: int
    shown: int


def deadlock(waiters: Sequence[Waiter], programs: Sequence[Program]) -> Deadlock:
    """Return the error, with a cycle of waits if there is one, else with all waits."""
    after = {w: [other for other in waiters if other.core == w.core and signals(other, w.semaphore, programs)]
             for w in waiters}
    cycle = first_cycle(after)
    lines = {w: (f"core {w.core}: " if len(programs) > 1 else "") + described(w, programs[w.core]) for w in waiters}
    if cycle:
        text = "; ".join(f"{lines[w]}, which {after[w][0].engine.asm} would count up after that" for w in cycle)
    else:
        text = "; ".join(lines.values())
    error = Deadlock(waiting=text)
    first_waiter = (cycle or list(waiters))[0]
    error.located(programs[first_waiter.core].streams[first_waiter.engine][first_waiter.index].location)
    return error


def signals(waiter: Waiter, semaphore: int, programs: Sequence[Program]) -> bool:
    """Return whether the remaining instructions of a stream increment the semaphore."""
    remaining = programs[waiter.core].streams[waiter.engine][waiter.index:]
    return any(i.update is not None and i.update.semaphore == semaphore and i.update.amount > 0 for i in remaining)


def first_cycle(after: dict[Waiter, list[Waiter]]) -> list[Waiter]:
    """Return a cycle of waiters, each of which waits for the next one and the last one for the first; [] if there is
    none."""
    for start in after:
        path, visited = [start], {start}
        while after[path[-1]]:
            following = after[path[-1]][0]
            if following in visited:
                return path[path.index(following):]
            path.append(following)
            visited.add(following)
    return []


def described(waiter: Waiter, program: Program) -> str:
    """Describe an engine, its instruction with its source line, and its wait."""
    instruction = program.streams[waiter.engine][waiter.index]
    where = f" ({instruction.location.file}:{instruction.location.line})" if instruction.location else ""
    if waiter.semaphore < 0:
        condition = "other cores"
    else:
        name = program.semaphores[waiter.semaphore].name
        condition = f"S[{waiter.semaphore}] ({name})>={waiter.value}, which is {waiter.shown}"
    return f"{waiter.engine.asm} waits at {waiter.index:04d} {instruction.op.mnemonic}{where} for {condition}"
