# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From captured modules to programs: the passes, the assembler, and all of it as an image or as text."""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import prod

import numpy as np

from nki_mlir.bindings import Module, Operation, cloned, ir, operations_of
from nki_mlir.dialects.kernel_function import MAY_ALIAS, KernelFunction, kernel_functions, the_kernel
from nki_mlir.passes.pass_manager import PassObserver, pass_named
from nki_mlir.passes.pipelines import TO_LINALG
from nki_mlir.passes.safety import check_safe
from nki_mlir.targets.cpu.assembler import Assembler, CommonParts
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.image import KernelImage, ProgramImage, Target
from nki_mlir.targets.cpu.program import FIRST_ID, MEMORY
from nki_mlir.targets.cpu.routines import Routine, compiled, llvm_code, vector_code
from nki_mlir.waist.reader import Reader

WORTH_ROLLING = 1 << 9      # operations that a loop saves; with fewer, there is little to win
WORTH_FUSING = 1 << 12      # elements that an operation makes; with fewer, routines that kernels share save more


def image_of(modules: Sequence[Module], axes: int, may_alias: bool) -> tuple[KernelImage, HostOperations]:
    """A kernel of several modules, all its routines compiled, and the operations in it that the host runs.

    The modules, of any level above the instruction stream, stay as they are. ``may_alias``: for inputs that may
    overlap.
    """
    common = CommonParts()
    assemblers = assemble_modules(modules, axes, common, may_alias)
    routines = compiled(r for a in assemblers for r in a.code.routines)
    targets: dict[Target, int] = {}

    def number(target: Routine | str | int) -> int:
        if isinstance(target, str | int):
            return targets.setdefault(target, len(targets))
        batch, place = routines[target]
        return targets.setdefault((batch.key, len(batch.addresses), place), len(targets))
    programs = [program_image(assembler, number) for assembler in assemblers]
    kernel = assemblers[0].kernel
    return KernelImage(tuple(programs), tuple(targets), tuple(common.constants), tuple(common.sites),
                       len(kernel.inputs) + len(kernel.shared), any(a.parallel for a in assemblers),
                       () if may_alias else pairs_apart(assemblers)), common.hosts


def pairs_apart(assemblers: Sequence[Assembler]) -> tuple[int, ...]:
    """The pairs of inputs that the programs assume not to overlap: one that is written, and each other one."""
    inputs = assemblers[0].kernel.inputs
    sizes = [prod(spec.shape) * spec.dtype.itemsize for spec in inputs if spec.dtype is not None]
    targets = {spec.index for a in assemblers for spec in inputs if spec.name in a.targets}
    return tuple([n for a, b in combinations(range(len(inputs)), 2) if a in targets or b in targets
                  for n in (a, sizes[a], b, sizes[b])])


def program_image(assembler: Assembler, number: Callable[[Routine | str | int], int]) -> ProgramImage:
    memory = assembler.code.assign_offsets()
    words, relocations = assembler.code.words()
    pairs = [n for word, target in relocations for n in (word, number(target))]
    return ProgramImage(np.array(words, np.int64).tobytes(), np.array(pairs, np.int64).tobytes(),
                        assembler.code.frame_bytes, memory, assembler.cost)


def assemble_modules(modules: Sequence[Module], axes: int, common: CommonParts, may_alias: bool = False
                     ) -> list[Assembler]:
    copies = [at_waist(module, may_alias=may_alias) for module in modules]      # held: a function keeps no module alive
    structured = Reader()
    return [assemble(the_kernel(copy), axes, structured, common) for copy in copies]


def assemble(kernel: KernelFunction, axes: int, structured: Reader, common: CommonParts) -> Assembler:
    assembler = Assembler(kernel, axes, structured, common)
    with kernel.op.context, ir.Location.unknown():
        assembler.assemble()
    return assembler


def at_waist(module: Module, observer: PassObserver | None = None, may_alias: bool = False) -> Module:
    """A copy with nothing but structured operations, and what the interpreter runs for us."""
    copy, around = cloned(module), (observer or PassObserver()).around
    if may_alias:
        for kernel in kernel_functions(copy):
            kernel.op.attributes[MAY_ALIAS] = ir.UnitAttr.get(copy.context)
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
        code = assemble(kernel, axes, structured, CommonParts()).code
        memory = code.assign_offsets()
        arguments = [a.name for a in (*kernel.inputs, *kernel.shared)]
        names = {MEMORY: "memory", **{FIRST_ID + k: f"id{k}" for k in range(axes)},
                 **{FIRST_ID + axes + k: name for k, name in enumerate(arguments)}}
        lines += [f"// @{kernel.name}({', '.join(arguments)}): {memory} bytes of memory",
                  *(f"// {line}" for line in code.text(names))]
        routines |= dict.fromkeys(code.routines)
    made = vector_code(list(routines)) if vectors else llvm_code(list(routines), observer)
    return "\n".join(lines) + f"\n{made}"
