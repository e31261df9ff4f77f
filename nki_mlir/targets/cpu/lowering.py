# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""From captured modules to programs: passes on MLIR, passes on records, and the result as an image or as text."""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import prod

import numpy as np

from nki_mlir.bindings import Module, cloned, ir, operations_of
from nki_mlir.dialects import native
from nki_mlir.dialects.kernel_function import MAY_ALIAS, KernelFunction, kernel_functions, the_kernel
from nki_mlir.passes.pass_manager import PassObserver, pass_named
from nki_mlir.passes.pipelines import TO_LINALG, TO_RECORDS, is_at_waist
from nki_mlir.passes.safety import check_safe
from nki_mlir.targets.cpu.assemble import NativeProgram
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import passes_of, run_passes, unneeded_passes
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.image import KernelImage, ProgramImage, Target
from nki_mlir.targets.cpu.native_nodes import NativeLoop, NativeWhile, nodes_in
from nki_mlir.targets.cpu.native_reader import CommonParts, read_native
from nki_mlir.targets.cpu.passes.parallelize import repetitions, running_cost
from nki_mlir.targets.cpu.routines import Routine, compiled, llvm_code, vector_code
from nki_mlir.waist.nest_reader import Reader

MANY = 100_000              # iterations of a loop that may take long, whatever its body does
WORTH_ROLLING = 1 << 9      # least operations that a loop saves: with fewer, it gains little
WORTH_FUSING = 1 << 12  # least elements of an operation: with fewer, sharing routines between kernels saves more


def image_of(modules: Sequence[Module], axes: int, may_alias: bool) -> tuple[KernelImage, HostOperations]:
    """Compile a kernel of several modules to an image. Return the image and the operations in it that the host runs.

    The modules, of any level above the instruction stream, stay unchanged. ``may_alias``: inputs may overlap.
    """
    common = CommonParts()
    copies = [at_waist(module, may_alias=may_alias) for module in modules]      # functions keep no module alive
    functions = read_functions(map(the_kernel, copies), axes, common)
    costs = [running_cost(function.body) for function in functions]
    unbounded = any(isinstance(node, NativeWhile) or (isinstance(node, NativeLoop) and repetitions(node) > MANY)
                    for function in functions for node in nodes_in(*function.body.nodes))
    pairs = () if may_alias else pairs_apart(functions)         # read before passes change the functions
    for function in functions:
        function.has_variants = len(functions) > 1
    programs = [optimized(function) for function in functions]
    merged = functions[0].merged
    routines = compiled(r for program in programs for r in program.routines)
    targets: dict[Target, int] = {}

    def number(target: Routine | str | int) -> int:
        if isinstance(target, str | int):
            return targets.setdefault(target, len(targets))
        batch, slot = routines[target]
        return targets.setdefault((batch.key, len(batch.addresses), slot), len(targets))
    images = [program_image(program, merged * cost, number) for program, cost in zip(programs, costs)]
    kernel = functions[0].kernel
    return KernelImage(tuple(images), tuple(targets), tuple(common.constants), tuple(common.sites),
                       len(kernel.inputs) + len(kernel.shared), any(p.uses_pool for p in programs),
                       pairs, unbounded, merged), common.hosts


def pairs_apart(functions: Sequence[NativeFunction]) -> tuple[int, ...]:
    """Return the pairs of inputs that programs assume not to overlap: a written input and each other input."""
    inputs = functions[0].kernel.inputs
    sizes = [prod(spec.shape) * spec.dtype.itemsize for spec in inputs if spec.dtype is not None]
    targets = set[object]().union(*(function.targets for function in functions))
    written = {spec.index for spec in inputs if spec.name in targets}
    return tuple([n for a, b in combinations(range(len(inputs)), 2) if a in written or b in written
                  for n in (a, sizes[a], b, sizes[b])])


def program_image(program: NativeProgram, cost: float, number: Callable[[Routine | str | int], int]) -> ProgramImage:
    words, relocations = program.words()
    pairs = [n for word, target in relocations for n in (word, number(target))]
    return ProgramImage(np.array(words, np.int64).tobytes(), np.array(pairs, np.int64).tobytes(),
                        program.frame_bytes, program.memory, cost)


def read_functions(kernels: Iterable[KernelFunction], axes: int, common: CommonParts) -> list[NativeFunction]:
    """Read kernel functions at the waist into records."""
    reader, functions = Reader(), []
    for kernel in kernels:
        with kernel.op.context, ir.Location.unknown():
            functions.append(read_native(kernel, axes, reader, common))
    return functions


def optimized(function: NativeFunction, passes: str | None = None, observer: PassObserver | None = None
              ) -> NativeProgram:
    """Run the usual passes, or those of a pipeline's text, and return the program of a function."""
    without = unneeded_passes(function) if observer is None else frozenset[str]()
    run_passes(function, passes_of(passes, function.is_written, without), observer)
    return NativeProgram(function)


def at_waist(module: Module, observer: PassObserver | None = None, may_alias: bool = False) -> Module:
    """Return a copy with structured operations, and with those that the interpreter runs for native code."""
    copy, around = cloned(module), (observer or PassObserver()).observe_module
    if may_alias:
        for kernel in kernel_functions(copy):
            kernel.op.attributes[MAY_ALIAS] = ir.UnitAttr.get(copy.context)
    names = [*TO_RECORDS]
    if not is_at_waist(copy):
        if observer is not None or len(operations_of(copy, lambda name: True)) > WORTH_ROLLING:
            rolling = pass_named("roll-repeats", f"least={WORTH_ROLLING}")  # first: it takes longer after other passes
            around(rolling.name, copy, rolling.run)
        names[:0] = TO_LINALG
    check_safe(copy)
    passes = [pass_named(name) for name in names]
    if not any(native.FUNCTION in kernel.op.attributes for kernel in kernel_functions(copy)):
        passes.append(pass_named("fuse-tiles", f"least={WORTH_FUSING}"))
    for lowering_pass in passes:
        around(lowering_pass.name, copy, lowering_pass.run)
    return copy


# -- as text -----------------------------------------------------------------------------------------------------------
def listing(module: Module, vectors: bool = False, observer: PassObserver | None = None, passes: str | None = None
            ) -> str:
    """Print every function's program, and the routines of all: in the LLVM dialect, or before that with ``vectors``."""
    copy, reader = at_waist(module, observer), Reader()
    lines: list[str] = []
    routines: dict[Routine, None] = {}
    for kernel in kernel_functions(copy):
        axes = len(kernel.grid)
        with kernel.op.context, ir.Location.unknown():
            function = read_native(kernel, axes, reader, CommonParts())
        program = optimized(function, passes, observer)
        arguments = [a.name for a in (*kernel.inputs, *kernel.shared)]
        lines += [f"// @{kernel.name}({', '.join(arguments)}): {program.memory} bytes of memory",
                  *(f"// {line}" for line in program.text(function.names))]
        routines |= dict.fromkeys(program.routines)
    code = vector_code(list(routines)) if vectors else llvm_code(list(routines), observer)
    return "\n".join(lines) + f"\n{code}"
