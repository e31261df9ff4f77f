# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An order of streams as text, one step on each line: the checker writes it as a witness, the simulator replays it.

``act 0003`` is an engine that executes its next instruction, of that number. ``queue 2 moves 5`` moves the data of
transfer number 5 of a queue. ``queue 2 reports 7`` is DMA engine 7, which reports its part of the next transfer. With
several cores each line begins with ``core 1``. A comment starts with ``//``. After the last line, the remaining steps
run in plain order.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.program import Program
from nki_mlir.machine import Engine

LINE = re.compile(r"(?:core (\d{1,6}) )?(?:(\w+) (\d{1,9})|queue (\d{1,6}) (moves|reports) (\d{1,9}))")
ENGINES = {engine.asm: engine for engine in Engine}


class EngineStep(NamedTuple):
    """An engine executes an instruction."""

    core: int
    engine: Engine
    number: int


class QueueStep(NamedTuple):
    """A queue moves the data of its transfer ``number``, or its DMA engine ``number`` reports."""

    core: int
    queue: int
    reports: bool
    number: int


Step = EngineStep | QueueStep


class MalformedOrder(NkiMlirError):
    code = "NKI-ORDER-LINE"
    message = "'{line}' is not a step of an order"
    fix = "write ENGINE NUMBER, queue NUMBER moves TRANSFER or queue NUMBER reports ENGINE, with core NUMBER in front"


class OrderDoesNotFit(NkiMlirError):
    code = "NKI-ORDER"
    message = "the streams cannot take step {number} of the order, {step}: {reason}"
    why = "the order was written for other streams, or for data that lead to other branches"
    fix = "write the order again with nki-run --witness=FILE"


def order_text(steps: Iterable[Step], cores: int) -> str:
    """Return the text of an order, with a line for each step."""
    return "".join(f"{step_text(step, cores)}\n" for step in steps)


def step_text(step: Step, cores: int) -> str:
    core = f"core {step.core} " if cores > 1 else ""
    if isinstance(step, EngineStep):
        return f"{core}{step.engine.asm} {step.number:04d}"
    return f"{core}queue {step.queue} {'reports' if step.reports else 'moves'} {step.number}"


def parse_order(text: str, programs: Sequence[Program], file: str = "<order>") -> list[Step]:
    """Parse the steps of a text. Errors name the line."""
    steps: list[Step] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("//")[0].strip()
        if words:
            step = parsed(words, programs)
            if step is None:
                raise MalformedOrder(line=words[:80]).located(Location(file, number, 0))
            steps.append(step)
    return steps


def parsed(words: str, programs: Sequence[Program]) -> Step | None:
    """Parse a step of these programs. Return None if the words are not a step."""
    match = LINE.fullmatch(words)
    if match is None:
        return None
    core = int(match[1] or 0)
    if core >= len(programs):
        return None
    if match[2] is not None:
        engine = ENGINES.get(match[2])
        return None if engine is None else EngineStep(core, engine, int(match[3]))
    queue, reports, number = int(match[4]), match[5] == "reports", int(match[6])
    fits = queue < len(programs[core].queues) and (not reports or number < isa.COMPLETIONS)
    return QueueStep(core, queue, reports, number) if fits else None
