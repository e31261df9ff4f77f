# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""link-kernels: insert the kernels that a StableHLO module calls into the module.

before:  %2 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%0, %1) {backend_config = "..."}
after:   %2 = call @add(%0, %1)     (and the functions @add, on tensors, and @add.program, of the kernel)

Each custom call carries its kernel, either as the documented string or as attributes of a typed FFI call. A call of a
custom C++ operator, ``@AwsNeuronCustomOp``, is linked alike: its kernel is one instruction. ``@add`` copies tensors to
HBM buffers, runs ``@add.program`` once per program of the grid, and converts the results to tensors. Other custom calls
stay. A call whose operands or results differ from its kernel's is an error.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nki_mlir.bindings import Module, Operation, ir, operations_of
from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.dialects.mlir_ops import load_dialects
from nki_mlir.dialects.source_locations import KERNEL, errors_at, with_origin
from nki_mlir.graph.custom_call import TARGETS, BadConfig, Fixed, KernelRecord, read_record
from nki_mlir.graph.upstream import exchange_for_call
from nki_mlir.passes.pass_manager import Pass


@dataclass(frozen=True)
class Linked:
    """A kernel in a module: the name of its function on tensors, and the names of the other symbols that were inserted
    with it."""

    name: str
    record: KernelRecord
    parts: tuple[str, ...]


class LinkKernels(Pass, name="link-kernels"):
    """Insert the functions of kernels into the module, and replace custom calls by calls of these functions."""

    def run(self, module: ir.Module) -> None:
        link(module)


def link(module: Module) -> list[Linked]:
    """Link every custom call of a kernel, and return the kernels in the order of their first calls."""
    load_dialects(module.context)
    linker = Linker(module)
    for call in calls_of(module, *TARGETS):
        linker.replace(call)
    return list(linker.linked.values())


class Linker:
    """Puts kernels into one module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.linked: dict[object, Linked] = {}
        self.symbols = {op.attributes["sym_name"].value for op in self.operations() if "sym_name" in op.attributes}

    def operations(self) -> list[Operation]:
        return [op.operation for op in self.module.body.operations]

    def replace(self, call: Operation) -> None:
        with errors_at(call):
            record = read_record(config_of(call))
            check_types(call, record)
            key = record.key, record.form
            if key not in self.linked:
                self.linked[key] = self.insert(record, call.location)
        exchange_for_call(call, self.linked[key].name)

    def fresh(self, name: str) -> str:
        """Return a symbol that the module does not have."""
        chosen, n = name, 1
        while chosen in self.symbols:
            chosen, n = f"{name}.{n}", n + 1
        self.symbols.add(chosen)
        return chosen

    def insert(self, record: KernelRecord, location: ir.Location) -> Linked:
        """Insert the functions of a kernel. Its text has no source locations, so its operations get ``location``.
        """
        name = self.fresh(record.name)
        programs: dict[str, str] = {}               # module text -> the function that it was inserted as
        parts: list[str] = []
        for _, text in record.variants:
            if text not in programs:
                programs[text] = self.insert_program(text, f"{name}.program", parts, location)
        wrapper = TensorFunction(record, name, {fixed: programs[text] for fixed, text in record.variants}, self.fresh)
        outer = ir.Module.parse(wrapper.text(), self.module.context)
        with self.module.context:
            relocate(outer, with_origin(KERNEL + record.name))
        parts += self.append(outer)
        return Linked(name, record, tuple(p for p in parts if p != name))

    def insert_program(self, text: str, name: str, parts: list[str], location: ir.Location) -> str:
        """Insert the functions and globals of a kernel's module under new names, and return the name of the kernel's
        function."""
        linked = ir.Module.parse(text, self.module.context)
        program = ""
        renamed: dict[str, str] = {}
        with self.module.context:
            for op in linked.body.operations:
                old = op.operation.attributes["sym_name"].value
                kernel = op.operation.name == "func.func" and not program
                renamed[old] = self.fresh(name if kernel else f"{name}.{old}")
                program = program or (renamed[old] if kernel else "")
                op.operation.attributes["sym_name"] = ir.StringAttr.get(renamed[old])
                if op.operation.name == "func.func":
                    op.operation.attributes["sym_visibility"] = ir.StringAttr.get("private")
            relocate(linked, location)
            for inner in operations_of(linked, lambda name: name in ("memref.get_global", "func.call")):
                attribute = "name" if inner.name == "memref.get_global" else "callee"
                symbol = renamed[inner.attributes[attribute].value]
                inner.attributes[attribute] = ir.FlatSymbolRefAttr.get(symbol)
        parts += self.append(linked)
        return program

    def append(self, other: Module) -> list[str]:
        """Clone the definitions of another module to the end of this one, and return their names."""
        defined = [op.operation for op in other.body.operations
                   if op.operation.name != "func.func" or len(op.operation.regions[0].blocks)]
        with self.module.context, ir.InsertionPoint(self.module.body):
            return [op.clone().attributes["sym_name"].value for op in defined]


def relocate(module: Module, location: ir.Location) -> None:
    """Give all operations of a module one location."""
    for op in operations_of(module, lambda name: True):
        op.location = location


def calls_of(module: Module, *targets: str) -> list[Operation]:
    """Return the custom calls of these targets."""
    return [call for call in operations_of(module, lambda name: name == "stablehlo.custom_call")
            if call.attributes["call_target_name"].value in targets]


# -- the contents of a custom call
# -------------------------------------------------------------------------------------------
def config_of(call: Operation) -> str:
    """Return the config in any of the forms that lowerings produce; raise ``BadConfig``."""
    for name in ("mhlo.backend_config", "backend_config"):
        if name in call.attributes:
            attribute = call.attributes[name]
            if isinstance(attribute, ir.DictAttr) and "kernel_record" in attribute:
                return str(attribute["kernel_record"].value)
            if isinstance(attribute, ir.StringAttr) and attribute.value:
                return attribute.value
    raise BadConfig(what="it has no kernel in its backend_config")


def check_types(call: Operation, record: KernelRecord) -> None:
    """Check that operands and results are tensors of the kernel's shapes and element types."""
    pairs = ("operands", call.operands, record.operands), ("results", call.results, record.results)
    for kind, values, specs in pairs:
        actual, expected = ", ".join(str(v.type) for v in values), ", ".join(map(tensor_type, specs))
        if actual != expected:
            raise BadConfig(what=f"the call's {kind} are ({actual}), the kernel's are ({expected})")


def body_type(spec: ArgumentSpec) -> str:
    """Return ``256x1024xf32``; tf32 values of a graph are float32."""
    assert spec.dtype is not None
    element = "f32" if spec.dtype.mlir == "tf32" else spec.dtype.mlir
    return "x".join([*map(str, spec.shape), element])


def tensor_type(spec: ArgumentSpec) -> str:
    return f"tensor<{body_type(spec)}>"


# -- from tensors to buffers -------------------------------------------------------------------------------------------
@dataclass
class TensorFunction:
    """The function on tensors around a kernel's programs."""

    record: KernelRecord
    name: str
    programs: dict[Fixed, str]
    fresh: Callable[[str], str]

    def text(self) -> str:
        record, form = self.record, self.record.form
        lines, globals_ = [], []
        for k, spec in enumerate(record.operands):
            body = body_type(spec)
            lines += [f"%p{k} = bufferization.to_buffer %o{k} read_only : tensor<{body}> to memref<{body}>",
                      f'%operand{k} = memref.memory_space_cast %p{k} : memref<{body}> to memref<{body}, "hbm">']
        operand_of = {result: operand for operand, result in form.aliases.items()}
        for n, spec in enumerate(record.results):
            kind = f'memref<{body_type(spec)}, "hbm">'
            lines.append(f"%result{n} = memref.alloc() : {kind}")
            if n in operand_of:
                lines.append(f"memref.copy %operand{operand_of[n]}, %result{n} : {kind} to {kind}")
            elif record.starts_from_zero(form.results[n]):
                zeros = self.fresh(f"{self.name}.zeros")
                globals_.append(f'memref.global "private" constant @"{zeros}" : {kind} = dense<{zero_of(spec)}>')
                lines += [f'%z{n} = memref.get_global @"{zeros}" : {kind}',
                          f"memref.copy %z{n}, %result{n} : {kind} to {kind}"]
        lines += self.launch()
        for n, spec in enumerate(record.results):
            body = body_type(spec)
            lines += [f'%m{n} = memref.memory_space_cast %result{n} : memref<{body}, "hbm"> to memref<{body}>',
                      f"%t{n} = bufferization.to_tensor %m{n} restrict writable : memref<{body}> to tensor<{body}>"]
        types = ", ".join(map(tensor_type, record.results))
        operands = ", ".join(f"%o{k}: {tensor_type(s)}" for k, s in enumerate(record.operands))
        values = ", ".join(f"%t{n}" for n in range(len(record.results)))
        head = f'func.func private @"{self.name}"({operands}) -> ({types}) attributes {{no_inline}} {{'
        return "\n".join([*globals_, *self.declarations(), head, *lines, f"return {values} : {types}", "}"])

    def declarations(self) -> list[str]:
        """Return declarations of the programs' functions, which the module has already."""
        types = ", ".join("index" if a.kind == "program_id" else f'memref<{body_type(a)}, "hbm">'
                          for a in self.record.signature.arguments)
        return [f'func.func private @"{name}"({types})' for name in dict.fromkeys(self.programs.values())]

    def launch(self) -> list[str]:
        """Write calls of the programs: loops over the grid if all points share a program, else one call a point."""
        grid = self.record.grid
        if len(set(self.programs.values())) == 1:
            opened = [f"scf.for %g{k} = %c0 to %n{k} step %c1 {{" for k in range(len(grid))]
            constants = ["%c0 = arith.constant 0 : index", "%c1 = arith.constant 1 : index",
                         *(f"%n{k} = arith.constant {n} : index" for k, n in enumerate(grid))] if grid else []
            program = next(iter(self.programs.values()))
            return [*constants, *opened, self.call(program, [f"%g{k}" for k in range(len(grid))]), *["}"] * len(grid)]
        lines = [f"%i{n} = arith.constant {n} : index" for n in range(max(grid))]
        for point in np.ndindex(*grid):
            program = next(p for fixed, p in self.programs.items() if all(point[axis] == n for axis, n in fixed))
            lines.append(self.call(program, [f"%i{n}" for n in point]))
        return lines

    def call(self, program: str, ids: list[str]) -> str:
        values, types = [], []
        for argument in self.record.signature.arguments:
            if argument.kind == "program_id":
                values.append(ids[argument.index])
                types.append("index")
            else:
                kind, n = self.record.form.source((argument.kind, argument.index))
                values.append(f"%{kind}{n}")
                types.append(f'memref<{body_type(argument)}, "hbm">')
        return f'func.call @"{program}"({", ".join(values)}) : ({", ".join(types)}) -> ()'


def zero_of(spec: ArgumentSpec) -> str:
    assert spec.dtype is not None
    return "0.0" if spec.dtype.is_float else "false" if spec.dtype.mlir == "i1" else "0"
