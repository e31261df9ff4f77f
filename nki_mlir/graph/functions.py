# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bufferized graph as a kernel function: results are arguments, linked kernels are part of its body."""

from collections.abc import Sequence
from itertools import takewhile

from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Type, Value, enclosing, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import dense
from nki_mlir.dialects.creation import buffer_type, structured_operation, terminator, value_of
from nki_mlir.dialects.meeting import PROGRAMS
from nki_mlir.dialects.mlir_ops import meetings_of, read_op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.upstream import named
from nki_mlir.graph.views import reinterpreted, whole_buffer


def results_as_arguments(function: Operation) -> None:
    """What a function returns as trailing arguments, each marked as an output of the kernel.

    A buffer that the function makes and returns is the argument itself; anything else is copied into it.
    """
    block = function.regions[0].blocks[0]
    end = terminator(block)
    outputs, inputs = len(end.operands), len(block.arguments)
    for n in range(outputs):
        value = end.operands[n]         # asked anew: it may have become the argument of an earlier result
        kind = ir.MemRefType(value.type)
        argument = block.add_argument(buffer_type(kind), function.location)
        buffer = whole_buffer(value)
        origin = defining(buffer) if buffer is not None else None
        with function.context, function.location:
            if buffer is not None and origin is not None and origin.name == "memref.alloc" and origin.block == block:
                with ir.InsertionPoint.at_block_begin(block):
                    shape = list(ir.MemRefType(buffer.type).shape)
                    same = argument if shape == list(kind.shape) else reinterpreted(argument, shape, dense(shape), 0)
                if same is not argument:
                    same.set_type(ir.MemRefType(buffer.type))
                buffer.replace_all_uses_with(same)
                origin.erase()
            else:
                with ir.InsertionPoint(end):
                    copy(value, argument)
    with function.context, function.location, ir.InsertionPoint(end):
        ir.Operation.create("func.return")
    end.erase()
    sign(function, inputs, outputs)


def sign(function: ir.Operation, inputs: int, outputs: int) -> None:
    """Mark a function as a kernel."""
    block = function.regions[0].blocks[0]
    text, number = ir.StringAttr.get, ir.IntegerType.get_signless(64)
    with function.context:
        marks: list[dict[str, ir.Attribute]] = [{"nki.name": text(f"arg{k}")} for k in range(inputs)]
        marks += [{"nki.name": text(f"result{n}"), "nki.shared": ir.IntegerAttr.get(number, n)} for n in range(outputs)]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(m) for m in marks])
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(
            [a.type for a in block.arguments], []))
        numbers = ", ".join(map(str, range(inputs, inputs + outputs)))
        function.attributes["nki.results"] = ir.Attribute.parse(f"[{numbers}]")
        for name in ("res_attrs", "sym_visibility"):
            if name in function.attributes:
                del function.attributes[name]


def copy(source: ir.Value, target: Value) -> None:
    """A structured operation that copies."""
    rank = len(ir.MemRefType(target.type).shape)
    kinds = ", ".join(["#linalg.iterator_type<parallel>"] * rank)
    structured_operation([source, target], [ir.AffineMap.get_identity(rank)] * 2, ir.Attribute.parse(f"[{kinds}]"),
                         lambda values: values[0])


def allocated(kind: Type) -> ir.Value:
    """A new buffer."""
    return value_of("memref.alloc", kind, operandSegmentSizes=ir.DenseI32ArrayAttr.get([0, 0]))


def copies_as_structured(function: Operation) -> None:
    """``memref.copy`` as ``linalg.generic``."""
    for op in operations_of(function, lambda name: name == "memref.copy"):
        with op.context, ir.InsertionPoint(op), op.location:
            copy(*op.operands)
        op.erase()


def restore_signs(function: Operation, kinds: Sequence[Type]) -> None:
    """Arguments of the element types that the graph had; inside, its integers have no sign."""
    block = function.regions[0].blocks[0]
    for argument, kind in zip(block.arguments, kinds):
        plain, element = ir.MemRefType(argument.type), ir.RankedTensorType(kind).element_type
        if plain.element_type != element:
            argument.set_type(buffer_type(plain, element))
            with ir.InsertionPoint.at_block_begin(block), function.location:
                inside = value_of("nki.reinterpret", plain, argument)
            argument.replace_all_uses_except(inside, defining(inside))
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in block.arguments], []))


def insert_kernels(function: Operation, kernels: Module) -> None:
    """Put the bodies of kernels in place of their calls. ``kernels`` is the module that has their functions."""
    calls = operations_of(function, lambda name: name == "func.call")
    for call in calls:
        program = named(kernels, call.attributes["callee"].value)
        check_alone(program, call)
        _mark_parallel(call)
        insert(program, call)


def check_alone(program: Operation, call: Operation) -> None:
    """Programs of a launch become loops, in which one cannot wait for the next."""
    if any(read_op(op).between == PROGRAMS for op in meetings_of(program)):         # type: ignore[attr-defined]
        raise Unsupported(feature="a kernel whose programs meet, in one program with a graph",
                          instead="call it from the graph, without --link-kernels").located(location_of(call))


def insert(program: Operation, call: Operation) -> None:
    """One kernel's body before its call, which goes."""
    with program.context, ir.Location.unknown():
        holder = ir.Module.create()                 # keeps the clone while it is emptied
        with ir.InsertionPoint(holder.body):
            clone = program.clone().operation
    block = clone.regions[0].blocks[0]
    with call.context, ir.InsertionPoint(call), call.location:
        for argument, value in zip(block.arguments, as_buffers(block.arguments, list(call.operands))):
            argument.replace_all_uses_with(value)
    for op in operations_of(clone, lambda name: True):
        op.location = call.location                 # a kernel's text has none, and each of its calls one of its own
    operations = [op.operation for op in block.operations]
    for op in operations[:-1]:
        op.move_before(call)
    call.erase()
    clone.erase()


def as_buffers(arguments: Sequence[Value], values: list[Value]) -> list[Value]:
    """The operands of a call as the kernel takes them: buffers, of its element types."""
    taken = []
    for argument, value in zip(arguments, values):
        if isinstance(value.type, ir.MemRefType):
            value = whole_buffer(value) or copied(value)
            wanted, origin = ir.MemRefType(argument.type), defining(value)
            if origin is not None and origin.name == "nki.reinterpret":
                value = origin.operands[0]
            if wanted.element_type != ir.MemRefType(value.type).element_type:      # a graph's integers have no sign
                value = value_of("nki.reinterpret", wanted, value)
        taken.append(value)
    return taken


def copied(value: ir.Value) -> ir.Value:
    """A buffer of its own with the elements of a view, which a kernel only reads."""
    buffer = allocated(buffer_type(ir.MemRefType(value.type)))
    copy(value, buffer)
    return buffer


def _mark_parallel(call: Operation) -> None:
    """The loops over a launch grid: programs do not depend on each other."""
    for loop in takewhile(lambda op: op.name == "scf.for", enclosing(call)):
        loop.attributes["nki.loop"] = ir.StringAttr.get("parallel", call.context)
