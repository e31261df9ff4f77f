# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the JIT makes of a module, as text: programs in comments, routines in vector code or in the LLVM dialect."""


from nki_mlir.bindings import Module
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.passes.pass_manager import PassObserver
from nki_mlir.targets.cpu.assembler import Sites
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.kernel import assemble_function, at_waist
from nki_mlir.targets.cpu.program import FIRST_ID, MEMORY
from nki_mlir.targets.cpu.routines import Routine, llvm_code, vector_code
from nki_mlir.waist.reader import Reader


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
