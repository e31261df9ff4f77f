# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prepares modules after code generation, which are fused and ordered and have engines and addresses.

NKI cannot express the waits between engines, nor some addresses: a note at the top of the text lists these.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from nki_mlir.bindings import Module, Operation, operations_of
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.buffer_types import memref_parts
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.pass_manager import PassObserver, pass_named, run_passes
from nki_mlir.targets.neuron.codegen.code_writer import ADDRESS, PLACED
from nki_mlir.targets.neuron.codegen.emission import Emission, Observation, emit_each, emit_program
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel

LAST = "allocate-on-chip"       # the step after which order, engines and addresses are fixed
Point = tuple[int, ...]         # a point of a grid
ALIGNED = 32                    # bytes; buffers of the allocator begin at multiples
CONTROL = {"ACT_TABLE_LOAD": ("load of an activation table", "loads of activation tables"),
           "EVENT_SEMAPHORE": ("wait that is a separate instruction", "waits that are separate instructions")}


class EmittedModule(PassObserver):
    """An observer of the emission that keeps the module after the last step."""

    module: object = None

    def after(self, name: str, module: Callable[[], Module]) -> None:
        if name == LAST:
            self.module = module()


@dataclass
class KeptPlacement:
    """The parts of the placement of programs, one for each core, that the text cannot express."""

    programs: list[Program]     # of the captured text, if possible: its comment then counts what compiling adds
    free: int = 0               # the first byte of each partition of SBUF behind all buffers
    addresses: int = 0          # number of addresses that no allocation can have
    engines: Counter[str] = field(default_factory=Counter)       # calls of functions without an engine parameter

    def free_address(self, machine: Machine, size: int) -> tuple[int, int] | None:
        """Return the address of a new tile of ``size`` bytes a partition, behind all others; None if SBUF is full."""
        start = self.free
        self.free += -(-size // ALIGNED) * ALIGNED
        return (0, start) if self.free <= machine.sbuf_bytes_per_partition else None

    @property
    def notes(self) -> list[str]:
        """The lines for the top of the text."""
        programs = self.programs
        counts = Counter(i.op.mnemonic for program in programs for stream in program.streams.values() for i in stream)
        parts = [counted(sum(len(program.semaphores) for program in programs), "semaphore"),
                 counted(sum(len(program.queues) for program in programs), "queue")]
        parts += [counted(counts[name], *words) for name, words in CONTROL.items() if counts[name]]
        parts += [counted(self.addresses, "address", "addresses")] if self.addresses else []
        parts += [f"the engine of {count} {function}" for function, count in sorted(self.engines.items())]
        return [f"Compiled for {programs[0].target}. NKI cannot express: {', '.join(parts)}."]


def counted(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def emitted_module(module: Module, point: Point | None) -> tuple[Module, Program]:
    """Return a nisa-level module as it is emitted, for the complete grid or for the program at a point of it, and the
    program that it becomes. If PSUM buffers share banks, which the language cannot express, each gets its own bank; if
    there are too few, they have no addresses."""
    observer = EmittedModule()
    options = Emission(observation=Observation(observer, module))
    if point is None:
        program, = emit_each(module, options)
    else:
        program = emit_program(LoweredKernel(module, is_lowered=True), point, options)
    emitted: Module = observer.module                        # type: ignore[assignment]
    machine = machine_named(the_kernel(emitted).target)
    if any(_shares_bank(op, machine) for op in operations_of(emitted, lambda name: name == "memref.alloc")):
        run_passes(emitted, [pass_named("allocate-on-chip", "banks=true")])
    return emitted, program


def end_of_buffers(module: Module) -> int:
    """Return the first byte of each partition of SBUF behind all buffers with an address."""
    ends = [0]
    for allocation in operations_of(module, lambda name: name == "memref.alloc"):
        shape, dtype, space = memref_parts(allocation.results[0].type)
        if space == SBUF and ADDRESS in allocation.attributes:
            _, byte = (number.value for number in allocation.attributes[ADDRESS])
            ends.append(byte + prod(shape[1:]) * dtype.itemsize)
    return -(-max(ends) // ALIGNED) * ALIGNED


def _shares_bank(allocation: Operation, machine: Machine) -> bool:
    """Return whether a PSUM buffer has an allocated address that an allocation of the language cannot have."""
    _, _, space = memref_parts(allocation.results[0].type)
    if space != PSUM or PLACED not in allocation.attributes:
        return False
    partition, byte = (number.value for number in allocation.attributes[ADDRESS])
    return not can_be_named(space, (partition, byte), machine)


def can_be_named(space: str, address: tuple[int, int], machine: Machine) -> bool:
    """Return whether an allocation of the language can have an address."""
    partition, byte = address
    return partition % machine.quadrant == 0 and (space != PSUM or byte % machine.psum_bank_bytes == 0)
