# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The properties of a search's operations that scheduling graphs need, in columns.

The table examines each operation once, and the graph of a run gathers the rows of its steps.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.dialects.access import HBM, PSUM, SBUF
from nki_mlir.dialects.free_numbers import with_standin
from nki_mlir.dialects.op import Op, on_engine
from nki_mlir.machine import Engine, Machine
from nki_mlir.targets.neuron.codegen.records import DeviceBuffer
from nki_mlir.targets.neuron.codegen.step_engines import Choice, DistinctChoices
from nki_mlir.targets.neuron.timing.ramp import share_of_rows
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer, Transfers
from nki_mlir.targets.runtime.compiled_class import int_array, unset_array

SPACES = SBUF, PSUM
GRAIN = 32                      # alignment in bytes: rows at such addresses are read without partial sectors


class StepForm(NamedTuple):
    """The common properties of operations of a form: the form's number, and the names of their tiles on chip."""

    number: int
    on_chip: tuple[str, ...]


class StepColumns(NamedTuple):
    """By operation or step: the numbers of its choices, of its set of functions (0: none), and of its transfer (-1:
    none); whether it writes HBM; and where the numbers of its buffers on chip begin in ``buffers``."""

    choices: Any
    tables: Any
    stores: Any
    transfers: Any
    buffers_start: Any
    buffers: Any


class StepTable:
    """The operations of a search, by number: their ``forms``, their transfers, and where the numbers of their buffers
    on chip begin in ``used``. By form: ``form_columns``, the numbers of its choices and of its set of functions, and
    whether it writes HBM. ``transfers`` and ``buffers``: the distinct ones, by number. By buffer: ``buffer_columns``,
    its memory, as its index in ``SPACES``, and its ``room``."""

    def __init__(self, machine: Machine, engines_of: Callable[[Op], Sequence[Engine]], distinct: DistinctChoices,
                 ramps: bool) -> None:
        """``engines_of``: returns the engines that may run an operation, the class's first. ``ramps``: the costs of an
        engine depend on its ramp."""
        self.machine, self.engines_of, self.distinct, self.ramps = machine, engines_of, distinct, ramps
        self.timed = Transfers(machine)
        self.numbers: dict[Op, int] = {}
        self.form_by_key: dict[object, StepForm] = {}
        self.tables = {"": 0}
        self.transfers: list[TimedTransfer] = []
        self.transfer_numbers: dict[TimedTransfer, int] = {}
        self.buffers: list[DeviceBuffer] = []
        self.buffer_numbers: dict[DeviceBuffer, int] = {}
        self.shapes: dict[tuple[str, tuple[int, ...], str], tuple[int, int]] = {}       # memory and room of buffers
        self.forms, self.of_transfers, self.used_start, self.used = (array("q") for _ in range(4))
        self.form_columns, self.buffer_columns = [array("q") for _ in range(3)], [array("q") for _ in range(2)]
        self.used_start.append(0)

    def of(self, ops: Sequence[Op]) -> StepColumns:
        """Return the columns of steps with these operations."""
        numbers = self.numbers
        rows = int_array([number if (number := numbers.get(op)) is not None else self.add(op) for op in ops])
        forms, transfers, start, used = map(int_array, (self.forms, self.of_transfers, self.used_start, self.used))
        counts = start[rows + 1] - start[rows]
        starts = unset_array(len(rows) + 1)
        starts[0] = 0
        np.cumsum(counts, out=starts[1:])
        at = np.repeat(start[rows] - starts[:-1], counts) + np.arange(starts[-1])
        choices, tables, stores = [int_array(column)[forms[rows]] for column in self.form_columns]
        return StepColumns(choices, tables, stores, transfers[rows], starts, used[at])

    def add(self, op: Op) -> int:
        """Add an operation, and return its number."""
        form, values = self.form_of(op), op.__dict__
        self.forms.append(form.number)
        self.of_transfers.append(self.transfer_number(self.timed.of(op)) if op.queued else -1)
        handles = [values[name].handle for name in form.on_chip]
        for buffer in dict.fromkeys(handles) if len(handles) > 1 else handles:
            number = self.buffer_numbers.get(buffer)
            self.used.append(self.add_buffer(buffer) if number is None else number)
        self.used_start.append(len(self.used))
        number = self.numbers[op] = len(self.numbers)
        return number

    def add_buffer(self, buffer: DeviceBuffer) -> int:
        spaces, rooms = self.buffer_columns
        shape = buffer.space, buffer.shape, buffer.dtype.name        # whose hash takes less time than a dtype's
        space_and_room = self.shapes.get(shape)
        if space_and_room is None:
            space_and_room = self.shapes[shape] = SPACES.index(buffer.space), occupied_bytes(buffer, self.machine)
        spaces.append(space_and_room[0])
        rooms.append(space_and_room[1])
        number = self.buffer_numbers[buffer] = len(self.buffers)
        self.buffers.append(buffer)
        return number

    def transfer_number(self, transfer: TimedTransfer) -> int:
        number = self.transfer_numbers.setdefault(transfer, len(self.transfers))
        if number == len(self.transfers):
            self.transfers.append(transfer)
        return number

    def form_of(self, op: Op) -> StepForm:
        """Return the form of an operation. Operations that differ only in a free number share it."""
        key = op.form()
        form = self.form_by_key.get(key)
        if form is None and (other := with_standin(op)) is not op:
            form = self.form_by_key[key] = self.form_of(other)
        elif form is None:
            operands, (choices, tables, stores) = op.operands(), self.form_columns
            choices.append(self.distinct.of([self.on(op, engine) for engine in self.engines_of(op)]).number)
            tables.append(self.tables.setdefault(op.function_set, len(self.tables)))
            stores.append(any(field.writes and tile.space == HBM for field, tile in operands))
            form = self.form_by_key[key] = StepForm(len(choices) - 1, tuple([
                field.name for field, tile in operands if tile.space != HBM]))
        return form

    def on(self, op: Op, engine: Engine) -> Choice:
        moved_op = op if op.runs_on is engine else on_engine(op, engine)
        work = moved_op.work()
        cost = self.machine.cost(engine, work)
        fetch = float(self.machine.costs.control.fetch_ns)
        port = self.machine.costs.psum_port_shared and engine in (Engine.VECTOR, Engine.SCALAR) and any(
            t.space == PSUM for _, t in op.operands())
        ramp = self.ramps and self.machine.costs.engines[engine].ramp is not None
        share = share_of_rows(op, self.machine) if ramp else 0.0
        return Choice(engine, max(cost.busy, fetch), cost.result, cost.result_in_engine, port, share, work)


def occupied_bytes(buffer: DeviceBuffer, machine: Machine) -> int:
    """Return the bytes of a partition that a buffer occupies with its gap: in PSUM it crosses banks only if it must, in
    SBUF its address is a multiple of ``GRAIN``."""
    size, bank = buffer.bytes_per_partition, machine.psum_bank_bytes
    if buffer.space == PSUM and 2 * size > bank:
        return -(-size // bank) * bank
    return -(-size // GRAIN) * GRAIN
