# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A captured kernel as native code: one C function that runs its whole grid."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nki_mlir.bindings import Module, Operation, cloned, ir, operations_of
from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.dialects.kernel_function import KernelFunction, kernel_functions, the_kernel
from nki_mlir.passes.pass_manager import PassObserver, pass_named
from nki_mlir.targets import CapturedKernel
from nki_mlir.targets.cpu.assembler import WORTH_WAKING, Assembler, Sites
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.machine import machine, thunk
from nki_mlir.targets.cpu.program import FIRST_ID, MEMORY, Assembly
from nki_mlir.targets.cpu.routines import SITE_BITS, Routine, addresses, llvm_code, vector_code
from nki_mlir.targets.mesh import run_programs
from nki_mlir.waist.reader import Reader

addressof, from_buffer = ctypes.addressof, ctypes.c_char.from_buffer        # looked up once: calls are short
WORTH_ROLLING = 1 << 9      # operations that a loop saves; with fewer, there is little to win
WORTH_FUSING = 1 << 12      # elements that an operation makes; with fewer, routines that kernels share save more


class OutOfMemory(NkiMlirError, MemoryError):
    code = "NKI-MEMORY"
    message = "there is no memory for the kernel's buffers ({bytes} bytes a program)"
    fix = "run fewer programs at a time (NKI_MLIR_NUM_THREADS), or smaller tiles"


@dataclass(frozen=True, eq=False)
class Compiled:
    """One module of a kernel: its words, and what they point to."""

    words: np.ndarray
    assembly: Assembly
    memory: int
    cost: float
    keep: tuple[object, ...]


class NativeKernel:
    """All programs of a kernel. Call it with arrays, or call ``address`` as ``int32_t entry(void** data)``.

    ``data`` are the addresses of the inputs in order, then of the shared outputs in order. The function may be called
    from several threads at once; it is valid as long as this object is. It returns 0 or a status for ``error``.
    """

    def __init__(self, captured: CapturedKernel, grid: tuple[int, ...]) -> None:
        self.sites, self.hosts = Sites(), HostOperations()
        variants = {id(v.module): v.module for v in captured.variants.values()}
        structured = Reader()
        assemblers = [assemble(module, len(grid), structured, self.hosts, self.sites) for module in variants.values()]
        self.programs = compile_programs(assemblers)
        kernel = assemblers[0].kernel
        self.arrays = len(kernel.inputs) + len(kernel.shared)
        frame = max(p.assembly.frame_bytes for p in self.programs)     # one for all: memory begins behind the largest
        self.bytes = frame + max(p.memory for p in self.programs)
        order = [0] * prod(grid) if len(variants) == 1 else [
            list(variants).index(id(captured.variant_for(point).module)) for point in np.ndindex(*grid)]
        cost = sum(self.programs[k].cost for k in order)
        self.parallel = len(order) > 1 and not self.hosts.runners and cost >= WORTH_WAKING
        if self.parallel or any(a.parallel for a in assemblers):
            machine().start_workers()
        self.codes = np.array([self.programs[k].words.ctypes.data for k in order], np.int64)
        own = self.codes.ctypes.data if len(variants) > 1 else 0
        self.record = np.array([len(order), self.parallel, self.bytes, frame // 8, len(grid), self.arrays, own,
                                self.codes[0], *grid], np.int64)            # what the machine's launch reads
        self.launch, self.where = machine().launch, self.record.ctypes.data
        self.pack = ctypes.c_void_p * self.arrays
        self.entry: int | None = None

    @property
    def address(self) -> int:
        """The C function."""
        if self.entry is None:
            self.entry = thunk(self.where)
        return self.entry

    def __call__(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        data = self.pack(*map(address_of, inputs), *map(address_of, shared))
        status = self.launch(self.where, ctypes.addressof(data))
        if status:
            raise self.error(status)

    def on_threads(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        """Each program on a thread of its own: what runs kernels whose programs meet."""
        data = self.pack(*map(address_of, inputs), *map(address_of, shared))

        def one(number: int) -> None:
            status = machine().launch_one(self.where, ctypes.addressof(data), number)
            if status:
                raise self.error(status)
        run_programs(one, int(self.record[0]), parallel=True)

    def error(self, status: int) -> BaseException:
        """The exception of a status."""
        site, excess = status & ((1 << SITE_BITS) - 1), status >> SITE_BITS
        if site == 0:
            return OutOfMemory(bytes=self.bytes)
        if excess:
            return self.sites.error(site, excess)
        return self.hosts.failure(site) or InternalError(f"a kernel returned the unknown status {status}")


def address_of(array: np.ndarray) -> int:
    """Where an array's elements are. NumPy's own ``array.ctypes.data`` takes three times as long."""
    try:
        return addressof(from_buffer(array))    # type: ignore[arg-type]
    except (TypeError, ValueError):             # read-only, empty, or of a type that buffers do not know
        return array.ctypes.data


def compile_programs(assemblers: Sequence[Assembler]) -> list[Compiled]:
    """The programs in words, all their routines compiled."""
    functions: dict[Any, int] = dict(addresses(r for a in assemblers for r in a.code.routines))
    names = {i.function for a in assemblers for i in a.code.instructions if isinstance(i.function, str)}
    functions |= {name: machine().function(name) for name in sorted(names)}
    made = []
    for assembler in assemblers:
        memory = assembler.code.assign_offsets()
        words = assembler.code.words(functions)
        made.append(Compiled(words, assembler.code, memory, assembler.cost, tuple(assembler.values.globals)))
    return made


def assemble(module: Module, axes: int, structured: Reader, hosts: HostOperations, sites: Sites
             ) -> Assembler:
    """A module's kernel as a program. The module, of any level above the instruction stream, stays as it is."""
    copy = at_waist(module)                         # held: a function does not keep its module alive
    return assemble_function(the_kernel(copy), axes, structured, hosts, sites)


def assemble_function(kernel: KernelFunction, axes: int, structured: Reader, hosts: HostOperations,
                      sites: Sites) -> Assembler:
    assembler = Assembler(kernel, axes, structured, hosts, sites)
    with kernel.op.context, ir.Location.unknown():
        assembler.assemble()
    return assembler


def at_waist(module: Module, observer: PassObserver | None = None) -> Module:
    """A copy with nothing but structured operations, and what the interpreter runs for us."""
    from nki_mlir.passes.pipelines import TO_LINALG  # start-up: loads MLIR
    from nki_mlir.passes.safety import check_safe
    copy, around = cloned(module), (observer or PassObserver()).around
    names = ["nisa-to-linalg", "arith-to-scalar"]
    if not is_structured(copy):
        rolling = pass_named("roll-repeats", f"least={WORTH_ROLLING}")    # first: others take time for each
        around(rolling.name, copy, rolling.run)
        names[:0] = TO_LINALG
    check_safe(copy)
    for one in (*map(pass_named, names), pass_named("fuse-tiles", f"least={WORTH_FUSING}")):
        around(one.name, copy, one.run)
    return copy


def is_structured(module: Module | Operation) -> bool:
    """Whether a module has linalg operations: it is at the waist already."""
    return bool(operations_of(module, lambda name: name.startswith("linalg.")))


# -- as text -----------------------------------------------------------------------------------------------------------
def listing(module: Module, vectors: bool = False, observer: PassObserver | None = None) -> str:
    """Every function's program, and the routines of all: in the LLVM dialect, or before that with ``vectors``."""
    copy, structured = at_waist(module, observer), Reader()
    lines: list[str] = []
    routines: dict[Routine, None] = {}
    for kernel in kernel_functions(copy):
        axes = len(kernel.grid)
        code = assemble_function(kernel, axes, structured, HostOperations(), Sites()).code
        memory = code.assign_offsets()
        arguments = [a.name for a in (*kernel.inputs, *kernel.shared)]
        names = {MEMORY: "memory", **{FIRST_ID + k: f"id{k}" for k in range(axes)},
                 **{FIRST_ID + axes + k: name for k, name in enumerate(arguments)}}
        lines += [f"// @{kernel.name}({', '.join(arguments)}): {memory} bytes of memory",
                  *(f"// {line}" for line in code.text(names))]
        routines |= dict.fromkeys(code.routines)
    made = vector_code(list(routines)) if vectors else llvm_code(list(routines), observer)
    return "\n".join(lines) + f"\n{made}"
