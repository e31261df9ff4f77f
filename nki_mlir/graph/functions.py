# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns a bufferized graph into a kernel function: results become arguments, and linked kernels part of the body.

Control flow that carries buffers writes its results to buffers that are allocated before it. A loop writes its
buffers at the end of an iteration, through temporary buffers if values swap. ``scf.index_switch`` becomes a chain of
``scf.if``.

before:  %r = scf.while (%x = %init) ... scf.yield %new         after:  %x = memref.alloc(); copy %init to %x
                                                                        scf.while ... copy %new to %x
"""

from collections.abc import Sequence
from itertools import takewhile

from nki_mlir.analysis.effects import defining, memory_of
from nki_mlir.bindings import Block, Module, Operation, Region, Type, Value, enclosing, ir, operations_of
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects import creation as emit
from nki_mlir.dialects.access import dense
from nki_mlir.dialects.creation import buffer_type, structured_operation, terminator, value_of
from nki_mlir.dialects.instruction_order import prefix_labels
from nki_mlir.dialects.kernel_function import set_argument_types
from nki_mlir.dialects.launch_members import PROGRAMS
from nki_mlir.dialects.mlir_ops import meetings_of, read_op
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.upstream import exchange, named
from nki_mlir.graph.views import complete_buffer, reinterpreted


def results_as_arguments(function: Operation) -> None:
    """Turn the results of a function into trailing arguments, each marked as an output of the kernel.

    A buffer that the function allocates and returns is replaced by the argument; any other result is copied into it.
    """
    block = function.regions[0].blocks[0]
    end = terminator(block)
    outputs, inputs = len(end.operands), len(block.arguments)
    for n in range(outputs):
        value = end.operands[n]         # read again: it may have become the argument of an earlier result
        kind = ir.MemRefType(value.type)
        argument = block.add_argument(buffer_type(kind), function.location)
        buffer = complete_buffer(value)
        origin = defining(buffer) if buffer is not None else None
        with function.context, function.location:
            if buffer is not None and origin is not None and origin.name == "memref.alloc" and origin.block == block:
                with ir.InsertionPoint.at_block_begin(block):
                    shape = list(ir.MemRefType(buffer.type).shape)
                    target = argument if shape == list(kind.shape) else reinterpreted(argument, shape, dense(shape), 0)
                if target is not argument:
                    target.set_type(ir.MemRefType(buffer.type))
                buffer.replace_all_uses_with(target)
                origin.erase()
            else:
                with ir.InsertionPoint(end):
                    copy(value, argument)
    with function.context, function.location, ir.InsertionPoint(end):
        ir.Operation.create("func.return")
    end.erase()
    sign(function, inputs, outputs)


def sign(function: ir.Operation, inputs: int, outputs: int) -> None:
    """Mark a function with ``inputs`` inputs and ``outputs`` outputs as a kernel."""
    text, number = ir.StringAttr.get, ir.IntegerType.get_signless(64)
    with function.context:
        marks: list[dict[str, ir.Attribute]] = [{"nki.name": text(f"arg{k}")} for k in range(inputs)]
        marks += [{"nki.name": text(f"result{n}"), "nki.shared": ir.IntegerAttr.get(number, n)} for n in range(outputs)]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(m) for m in marks])
        set_argument_types(function)
        numbers = ", ".join(map(str, range(inputs, inputs + outputs)))
        function.attributes["nki.results"] = ir.Attribute.parse(f"[{numbers}]")
        for name in ("res_attrs", "sym_visibility"):
            if name in function.attributes:
                del function.attributes[name]


def copy(source: ir.Value, target: Value) -> None:
    """Emit a structured operation that copies ``source`` to ``target``."""
    rank = len(ir.MemRefType(target.type).shape)
    kinds = ", ".join(["#linalg.iterator_type<parallel>"] * rank)
    structured_operation([source, target], [ir.AffineMap.get_identity(rank)] * 2, ir.Attribute.parse(f"[{kinds}]"),
                         lambda values: values[0])


def allocated(kind: Type) -> ir.Value:
    """Allocate a buffer of a memref type at the insertion point."""
    return value_of("memref.alloc", kind, operandSegmentSizes=ir.DenseI32ArrayAttr.get([0, 0]))


def copies_as_structured(function: Operation) -> None:
    """Rewrite each ``memref.copy`` as a ``linalg.generic``."""
    for op in operations_of(function, lambda name: name == "memref.copy"):
        with op.context, ir.InsertionPoint(op), op.location:
            copy(*op.operands)
        op.erase()


def restore_signs(function: Operation, kinds: Sequence[Type]) -> None:
    """Restore the element types that the graph gave its arguments; inside the function integers are signless."""
    block = function.regions[0].blocks[0]
    for argument, kind in zip(block.arguments, kinds):
        plain, element = ir.MemRefType(argument.type), ir.RankedTensorType(kind).element_type
        if plain.element_type != element:
            argument.set_type(buffer_type(plain, element))
            with ir.InsertionPoint.at_block_begin(block), function.location:
                inside = value_of("nki.reinterpret", plain, argument)
            argument.replace_all_uses_except(inside, defining(inside))
    set_argument_types(function)


def insert_kernels(function: Operation, kernels: Module) -> None:
    """Replace the calls of kernels by their bodies. ``kernels`` is the module that defines them."""
    calls = operations_of(function, lambda name: name == "func.call")
    for number, call in enumerate(calls):
        program = named(kernels, call.attributes["callee"].value)
        check_alone(program, call)
        _mark_parallel(call)
        insert(program, call, f"{number}:")


def check_alone(program: Operation, call: Operation) -> None:
    """Raise ``Unsupported`` if programs of a kernel wait for each other, as at a barrier: programs become iterations of
    a loop, and an iteration cannot wait for a later one."""
    if any(read_op(op).between == PROGRAMS for op in meetings_of(program)):         # type: ignore[attr-defined]
        raise Unsupported(feature="a kernel whose programs wait for each other, in a program with a graph",
                          instead="call it from the graph, without --link-kernels").located(location_of(call))


def insert(program: Operation, call: Operation, prefix: str) -> None:
    """Insert the body of a kernel before a call of it, and erase the call. ``prefix`` makes the labels by which the
    kernel orders instructions unique to the call."""
    with program.context, ir.Location.unknown():
        holder = ir.Module.create()                 # keeps the clone while it is emptied
        with ir.InsertionPoint(holder.body):
            clone = program.clone().operation
    block = clone.regions[0].blocks[0]
    with call.context, ir.InsertionPoint(call), call.location:
        for argument, value in zip(block.arguments, as_buffers(block.arguments, list(call.operands))):
            argument.replace_all_uses_with(value)
    for op in operations_of(clone, lambda name: True):
        op.location = call.location                 # a kernel's text has no location; each of its calls has one
        prefix_labels(op, prefix)
    operations = [op.operation for op in block.operations]
    for op in operations[:-1]:
        op.move_before(call)
    call.erase()
    clone.erase()


def as_buffers(arguments: Sequence[Value], values: list[Value]) -> list[Value]:
    """Return the operands of a call as the kernel expects them: tensors as complete buffers of its element types."""
    buffers = []
    for argument, value in zip(arguments, values):
        if isinstance(value.type, ir.MemRefType):
            value = complete_buffer(value) or copied(value)
            parameter_type, origin = ir.MemRefType(argument.type), defining(value)
            if origin is not None and origin.name == "nki.reinterpret":
                value = origin.operands[0]
            if parameter_type.element_type != ir.MemRefType(value.type).element_type:  # a graph's integers have no sign
                value = value_of("nki.reinterpret", parameter_type, value)
        buffers.append(value)
    return buffers


def copied(value: ir.Value) -> ir.Value:
    """Copy a view to a new buffer, which a kernel only reads."""
    buffer = allocated(buffer_type(ir.MemRefType(value.type)))
    copy(value, buffer)
    return buffer


def _mark_parallel(call: Operation) -> None:
    """Mark the loops over the launch grid around a call as parallel: programs do not depend on each other."""
    for loop in takewhile(lambda op: op.name == "scf.for", enclosing(call)):
        loop.attributes["nki.loop"] = ir.StringAttr.get("parallel", call.context)


# -- control flow that carries buffers ---------------------------------------------------------------------------------
def keep_in_buffers(function: Operation) -> None:
    """Rewrite all control flow that carries values, outer operations first."""
    for op in operations_of(function, lambda name: name in CARRYING):
        if len(op.results) or op.name == "scf.index_switch":
            with op.context, ir.InsertionPoint(op), op.location:
                targets = buffers(op)
                CARRYING[op.name](op, targets)
                exchange(op, targets)


def buffers(op: ir.Operation) -> list[Value]:
    """Allocate a buffer for each result of an operation, and return it in the result's type, which may be a view of
    another buffer's elements in their order. Raise ``Unsupported`` for other types."""
    allocations = []
    for result in op.results:
        kind = ir.MemRefType(result.type) if isinstance(result.type, ir.MemRefType) else None
        if kind is None or kind.get_strides_and_offset()[0] != list(dense(kind.shape)):
            raise Unsupported(feature=f"'{op.name}' that carries a {result.type}", instead="keep it in a buffer"
                              ).located(location_of(op))
        buffer = allocated(buffer_type(kind))
        allocations.append(buffer if buffer.type == kind else value_of("memref.cast", kind, buffer))
    return allocations


def put(values: Sequence[Value], targets: Sequence[Value]) -> None:
    """Copy values to buffers as if all copies happened at once."""
    copies_of_values = [(v, t) for v, t in zip(values, targets) if v != t]
    written = [memory_of(target) for target in targets]
    if any(memory_of(v) in written for v, _ in copies_of_values):
        copies = []
        for value, target in copies_of_values:
            between = allocated(buffer_type(ir.MemRefType(target.type)))
            copy(value, between)
            copies.append((between, target))
        copies_of_values = copies
    for value, target in copies_of_values:
        copy(value, target)


def ended(block: Block, targets: Sequence[Value], name: str = "scf.yield", carried: Sequence[Value] = ()) -> None:
    """Replace the terminator of a block by one that carries only ``carried``, after copies of its other operands to
    ``targets``."""
    end = terminator(block)
    values = list(end.operands)[len(carried):]
    with ir.InsertionPoint(end), end.location:
        put(values, targets)
        ir.Operation.create(name, operands=list(carried))
    end.erase()


def moved(block: Block, region: Region, arguments: Sequence[Type]) -> Block:
    """Append a block to a region and move the operations of ``block`` into it."""
    new = region.blocks.append(*arguments, arg_locs=[block.owner.operation.location] * len(arguments))
    with ir.InsertionPoint(new):
        mark = ir.Operation.create("scf.yield")
    for inner in [entry.operation for entry in block.operations]:
        inner.move_before(mark)
    mark.erase()
    return new


def _for(op: Operation, targets: Sequence[Value]) -> None:
    put(list(op.operands)[3:], targets)
    block = op.regions[0].blocks[0]
    for argument, target in zip(list(block.arguments)[1:], targets):
        argument.replace_all_uses_with(target)
    loop = ir.Operation.create("scf.for", operands=list(op.operands)[:3], regions=1)
    new = moved(block, loop.regions[0], [ir.IndexType.get()])
    block.arguments[0].replace_all_uses_with(new.arguments[0])
    ended(new, targets)


def _while(op: Operation, targets: Sequence[Value]) -> None:
    before, after = (region.blocks[0] for region in op.regions)
    if len(op.operands) != len(targets):
        raise Unsupported(feature="'scf.while' whose results differ from the values that it carries",
                          instead="return the values that the loop carries"
                          ).located(location_of(op))
    put(list(op.operands), targets)
    for block in (before, after):
        for argument, target in zip(block.arguments, targets):
            argument.replace_all_uses_with(target)
    loop = ir.Operation.create("scf.while", regions=2)
    for block, region in zip((before, after), loop.regions):
        moved(block, region, [])
    condition = loop.regions[0].blocks[0]
    ended(condition, targets, "scf.condition", [terminator(condition).operands[0]])
    ended(loop.regions[1].blocks[0], targets)


def _if(op: Operation, targets: Sequence[Value]) -> None:
    branch = ir.Operation.create("scf.if", operands=[op.operands[0]], regions=2)
    for source, region in zip(op.regions, branch.regions):
        ended(moved(source.blocks[0], region, []), targets)


def _switch(op: Operation, targets: Sequence[Value]) -> None:
    _choice(op, targets, list(enumerate(op.attributes["cases"], 1)))


def _choice(op: Operation, targets: Sequence[Value], cases: Sequence[tuple[int, int]]) -> None:
    """Emit the test of the first case, with the other cases in its else branch, at the insertion point."""
    (number, case), *later_cases = cases
    same = emit.compared("eq", op.operands[0], emit.constant(case))
    branch = ir.Operation.create("scf.if", operands=[same], regions=2)
    ended(moved(op.regions[number].blocks[0], branch.regions[0], []), targets)
    if not later_cases:
        ended(moved(op.regions[0].blocks[0], branch.regions[1], []), targets)
        return
    with ir.InsertionPoint(branch.regions[1].blocks.append()):
        _choice(op, targets, later_cases)
        ir.Operation.create("scf.yield")


CARRYING = {"scf.for": _for, "scf.while": _while, "scf.if": _if, "scf.index_switch": _switch}
