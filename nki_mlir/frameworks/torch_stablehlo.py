# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts PyTorch programs that ``torch.export`` exports to StableHLO, with kernels as custom calls.

    module = stablehlo_of(model, a, b)
    (result,) = run_linked(module, [a.numpy(), b.numpy()])

The importer translates the program to PyTorch's dialect. There the operators of kernels become custom calls between
casts to builtin tensors; the casts fold when the upstream pipelines lower the operations around them.
"""

import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils._python_dispatch import _disable_current_modes

from nki_mlir.alone import ALONE
from nki_mlir.analysis.effects import defining
from nki_mlir.bindings import Module, Operation, Value, ir, load, operations_of
from nki_mlir.diagnostics import Location, NkiMlirError, Unsupported
from nki_mlir.dialects.creation import value_of
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.frameworks.debug_output import write_exported
from nki_mlir.frameworks.torch_conditions import rewrite_conditions
from nki_mlir.frameworks.torch_constants import fold_constants
from nki_mlir.frameworks.torch_decompositions import aten, decompositions, nearest_by_vectors
from nki_mlir.frameworks.torch_gradients import drop_positions
from nki_mlir.frameworks.torch_lowerings import described, lower_operators, order_numbers, order_pools
from nki_mlir.frameworks.torch_masks import rewrite_masks
from nki_mlir.frameworks.torch_operator import callee_named
from nki_mlir.frameworks.torch_traced import FunctionModule
from nki_mlir.frameworks.torch_values import operands_of, results_of
from nki_mlir.graph.custom_call import KernelRecord
from nki_mlir.graph.upstream import load_graph_dialects, public_function
from nki_mlir.transforms.link_kernels import tensor_type

if TYPE_CHECKING:
    from nki_mlir.customop.library import Operator

PYTORCH = str(Path(torch.__file__).parent)
GENERATED = "<eval_with_key>"           # the file of code that PyTorch generates
CASTS = "builtin.module(torch-func-backend-type-conversion-for-stablehlo)"
TO_STABLEHLO = ("builtin.module(torchdynamo-export-to-torch-backend-pipeline{extra-library=},"
                "torch-backend-to-stablehlo-backend-pipeline)")


def stablehlo_of(program: Any, *arguments: torch.Tensor) -> str:
    """Export a PyTorch program as StableHLO text, with a custom call for each call of a kernel.

    Parameters and buffers become constants of the module. StableHLO has no updates: a program that updates tensors
    returns its results, then the new values of updated inputs, then the new values of updated buffers, which are
    parameters after the inputs. ``tf.aliasing_output`` of a parameter names the result with its new value.

    Arguments:
        program: a ``torch.nn.Module``, a function, a kernel, or a ``torch.export.ExportedProgram``
        arguments: tensors to export it for; no tensors if the program is exported already

    Result:
        The text, for ``run_linked`` and ``nki-opt --link-kernels``. Its locations are lines of the program.

    Errors:
        PyTorch's, if it does not export the program; an operator that upstream does not lower, or that draws random
        numbers.

    Example:
        class Model(torch.nn.Module):
            def forward(self, x):
                return nki.jit(double)(x) + 1
        text = stablehlo_of(Model(), torch.ones(4, 8))
        assert np.array_equal(run_linked(text, [np.ones((4, 8), np.float32)])[0], np.full((4, 8), 3.0))
    """
    name = getattr(program, "__name__", type(program).__name__)
    if not isinstance(program, (torch.nn.Module, torch.export.ExportedProgram)):
        program = FunctionModule(program)
    if not isinstance(program, torch.export.ExportedProgram):
        # The importer merges parameters that are the same tensor object.
        program = torch.export.export(program, tuple(a.clone() for a in arguments))
    program = rewrite_masks(rewrite_conditions(program, line_of), line_of)
    nearest_by_vectors(program.graph)
    program = program.run_decompositions(decompositions(load("extras.fx_decomp_util").get_decomposition_table()))
    refuse_checks(program.graph)
    refuse_functions(program.graph)
    refuse_complex_numbers(program.graph)
    drop_positions(program.graph)
    fold_constants(program)
    refuse_random_numbers(program.graph)
    aliases = updates_to_results(program)
    ends_in_range(program.graph)
    numbers_of_floats(program.graph)
    indices_from_start(program.graph)
    keep_user_lines(program.graph)
    with ALONE:
        text = imported(program, aliases)
    write_exported(name, text)
    return text


def refuse_random_numbers(graph: torch.fx.Graph) -> None:
    """Raise an error for an operator that draws random numbers: a StableHLO program has no generator, so it would draw
    the same numbers in each call."""
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Unsupported(feature=f"a StableHLO program that draws random numbers ({node.target})",
                              instead="pass a tensor of random numbers as an argument; a model in eval() has no dropout"
                              ).located(line_of(node))


def refuse_checks(graph: torch.fx.Graph) -> None:
    """Raise an error for an operator that checks numbers while the program runs: ``cholesky``, ``inv`` and ``solve``
    check whether their factorization exists."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects):
        checked = next((arg.name for arg in node.all_input_nodes[1].all_input_nodes), "")
        raise Unsupported(feature=f"PyTorch's {checked or node.args[1]} and the check of its result, as StableHLO",
                          instead="compute it outside of the program").located(line_of(node))


def refuse_functions(graph: torch.fx.Graph) -> None:
    """Raise an error for an operator that calls functions, such as ``torch.cond``: upstream lowers none but calls of
    operators that update tensors."""
    for node in graph.nodes:
        name = node.target.name() if isinstance(node.target, torch._ops.HigherOrderOperator) else None
        if name is not None and not name.startswith("auto_functionalized"):
            raise Unsupported(feature=f"PyTorch's {name.removesuffix('_impl')} of functions, as StableHLO",
                              instead="choose with torch.where, or write the loop in Python, which unrolls"
                              ).located(line_of(node))


def refuse_complex_numbers(graph: torch.fx.Graph) -> None:
    """Raise an error for complex parameters, results and Python numbers, with the line that uses the number."""
    results = graph.output_node().all_input_nodes
    for node in graph.nodes:
        value = node.meta.get("val")
        is_at_end = (node.op == "placeholder" or node in results) and isinstance(value, torch.Tensor)
        if any(isinstance(a, complex) for a in node.args) or (is_at_end and value.is_complex()):
            raise Unsupported(feature="a complex parameter, result or number of a PyTorch program, as StableHLO",
                              instead="compute with real and imaginary parts, as torch.view_as_real returns them "
                                      "outside of the program").located(line_of(node))


def line_of(node: torch.fx.Node) -> Location | None:
    """Return the line of the program that calls an operator, also through functions of PyTorch."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    lines = [Location(file, int(line), 0) for file, line in frames if not file.startswith((PYTORCH, GENERATED))]
    return lines[-1] if lines else None


def keep_user_lines(graph: torch.fx.Graph) -> None:
    """Leave the line of the program in each operator's stack, which the importer writes as its location."""
    for node in graph.nodes:
        at = line_of(node)
        node.meta["stack_trace"] = None if at is None else f'File "{at.file}", line {at.line}, in the program'


def imported(program: torch.export.ExportedProgram, aliases: dict[int, int]) -> str:
    """Import an exported program, lower it to StableHLO and return the text. ``aliases`` maps parameters to results."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load("fx").export_and_import(
            program, output_type="raw", hooks=plain_constants(), decomposition_table={},
            experimental_support_mutation=True)         # this importer accepts parameters as operands of any operator
    with module.context, ir.Location.unknown():
        load_graph_dialects(module.context)
        # Only a pass that creates the casts can load their dialect.
        manager = load("passmanager").PassManager
        manager.parse(CASTS).run(ir.Module.create().operation)
        to_custom_calls(module)
        lower_operators(module)
        try:
            manager.parse(TO_STABLEHLO).run(module.operation)
        except ir.MLIRError as error:
            raise refused(str(error), module) from None
        order_numbers(module)
        order_pools(module)
        mark_aliases(public_function(module), aliases)
    return str(module.operation.get_asm(enable_debug_info=True))


def refused(text: str, module: Module) -> NkiMlirError:
    """Return the error for an operator that the upstream passes cannot convert. ``text`` is their error. It names the
    operator, or only its line: the error then names all operators of this line that are left in the module."""
    match = re.search(r'error: "([^"]+)":(\d+):', text)
    location = Location(match[1], int(match[2]), 0) if match else None
    name = re.search(r'name = "torch\.([\w.:]+)"', text) or re.search(r'"torch\.(aten\.[\w.]+)"\(', text)
    left = [(op.name.removeprefix("torch."), location_of(op))
            for op in operations_of(module, lambda name: name.startswith("torch.aten."))]
    names = [name[1]] if name else [*dict.fromkeys(name for name, at in left if location is None or at is None or (
        at.file, at.line) == (location.file, location.line))]
    location = location or next((at for name, at in left if name in names and at is not None), None)
    return Unsupported(feature=f"PyTorch's {' or '.join(names) or 'program'}, as StableHLO",
                       instead="compute it by other operators, or outside of the program").located(location)


def updates_to_results(program: torch.export.ExportedProgram) -> dict[int, int]:
    """Turn updates of inputs and buffers into results of the program. Return the result with the new value of each
    such parameter."""
    signature, graph = program.graph_signature, program.graph
    output = graph.output_node()
    outputs = list(zip(signature.output_specs, output.args[0]))
    order = OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION
    specs = sorted((spec for spec, _ in outputs), key=lambda spec: order.index(spec.kind))
    values = {id(spec): value for spec, value in outputs}
    output.args = (tuple(values[id(spec)] for spec in specs),)
    signature.output_specs[:] = specs
    updated = {spec.target for spec in specs if spec.kind is OutputKind.BUFFER_MUTATION}
    carried = [spec for spec in signature.input_specs if spec.kind is InputKind.BUFFER and spec.target in updated]
    placeholders = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    for spec in carried:                                            # a parameter after the others
        signature.input_specs.remove(spec)
        signature.input_specs.append(spec)
        spec.kind = InputKind.USER_INPUT
        list(graph.find_nodes(op="placeholder"))[-1].append(placeholders[spec.arg.name])
    inputs = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    parameters = {spec.arg.name: n for n, spec in enumerate(inputs)} | {spec.target: inputs.index(spec)
                                                                         for spec in carried}
    aliases = {parameters[spec.target]: n for n, spec in enumerate(specs) if spec.kind is not OutputKind.USER_OUTPUT}
    for spec in specs:
        spec.kind = OutputKind.USER_OUTPUT
    program.graph_module.recompile()
    return aliases


def ends_in_range(graph: torch.fx.Graph) -> None:
    """Clamp ends of slices to the size of the axis, and write those that are left out: the upstream passes accept no
    others."""
    for node in graph.nodes:
        if node.target in (torch.ops.aten.slice_scatter.default, torch.ops.aten.slice.Tensor):
            first = 2 if node.target is torch.ops.aten.slice_scatter.default else 1        # the argument with the axis
            written: list[Any] = list(node.args[first:first + 3])
            axis, start, end = written + [0, None, None][len(written):]
            size = node.args[0].meta["val"].shape[axis]
            if end is None or (isinstance(end, int) and end > size):
                node.args = (*node.args[:first], axis, start, size, *node.args[first + 3:])


def mark_aliases(function: Operation, aliases: dict[int, int]) -> None:
    marks = [{"tf.aliasing_output": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), aliases[n])} if n in aliases
             else {} for n in range(len(function.attributes["function_type"].value.inputs))]
    if aliases:
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(m) for m in marks])


def plain_constants() -> object:
    """Return hooks of the importer that write parameters as plain constants, which every reader of the text supports.
    """
    importer = load("extras.fx_importer")

    class Hooks(importer.FxImporterHooks):           # type: ignore[name-defined, misc]
        def resolve_literal(self, gni: object, literal: object, info: object) -> ir.Value | None:
            if not isinstance(literal, torch.Tensor):
                return None
            element = importer.TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
            kind = "x".join([*map(str, literal.shape), str(element)])
            attribute = ir.Attribute.parse(f"dense<{elements(literal)}> : tensor<{kind}>")
            shape = ",".join(map(str, literal.shape))
            return value_of("torch.vtensor.literal", ir.Type.parse(f"!torch.vtensor<[{shape}],{element}>"),
                            value=attribute)
    return Hooks()


def elements(literal: torch.Tensor) -> str:
    """Return the elements as an attribute's text: the bytes, or numbers for bools, which attributes pack."""
    with _disable_current_modes():
        values = literal.detach().contiguous().cpu()
        if values.dtype == torch.bool or values.numel() == 0:
            return str(values.tolist()).lower() if values.numel() else ""
        return f'"0x{values.reshape(-1).view(torch.uint8).numpy().tobytes().hex()}"'


# -- in PyTorch's dialect ----------------------------------------------------------------------------------------------
def to_custom_calls(module: Module) -> None:
    """Replace every operator of a kernel, and every custom C++ operator, by a custom call."""
    operators = custom_operators()
    for op in operations_of(module, lambda name: name == "torch.operator"):
        name = op.attributes["name"].value.removeprefix("torch.")
        if name in ("nki.call", "nki.updated"):
            replace(op)
        elif name in operators:
            replace_operator(op, operators[name])


def custom_operators() -> "dict[str, Operator]":
    """Return the custom C++ operators that are defined in PyTorch, by the names that the importer writes."""
    binding = sys.modules.get("nki_mlir.customop.torch_binding")
    return {} if binding is None else {name.replace("::", "."): op for name, op in binding.registered().items()}


def replace_operator(op: Operation, custom: "Operator") -> None:
    """Replace a call of a custom C++ operator by a custom call. Its numbers are constants of the program."""
    from nki_mlir.customop.graph_binding import DescribedArray, callee  # start-up: for custom operators only
    arguments = [DescribedArray(*described(value)) if kind == "T" else number(value, custom)
                 for value, kind in zip(op.operands, custom.parameters)]
    record = callee(custom, arguments).record
    with ir.InsertionPoint(op), op.location:
        result, = custom_call(record, [v for v, kind in zip(op.operands, custom.parameters) if kind == "T"])
        op.results[0].replace_all_uses_with(value_of("torch_c.from_builtin_tensor", op.results[0].type, result))
    op.erase()


def number(value: Value, custom: "Operator") -> float:
    attributes = None if isinstance(value.owner, ir.Block) else value.owner.attributes
    if attributes is None or "value" not in attributes:
        raise Unsupported(feature=f"a computed number as argument of {custom.signature}, as StableHLO",
                          instead="pass a Python number")
    return float(attributes["value"].value)


def replace(op: Operation) -> None:
    """Replace an ``nki.call`` or ``nki.updated`` by the custom call of the kernel's record."""
    *lists, text = [definition for definition in map(defining, op.operands) if definition is not None]
    record = callee_named(text.attributes["value"].value).record
    tensors, written = (list(lists[-1].operands), list(lists[0].operands) if len(lists) == 2 else [])
    with ir.InsertionPoint(op), op.location:
        results = results_of(record, custom_call(record, operands_of(record, written, tensors)))
        for unpack in [use.owner for use in op.results[0].uses]:
            for old, result in zip(unpack.results, results):
                old.replace_all_uses_with(value_of("torch_c.from_builtin_tensor", old.type, result))
            unpack.erase()
    op.erase()


def custom_call(record: KernelRecord, operands: list[Value]) -> list[ir.Value]:
    """Emit the custom call on values of PyTorch's dialect and return its results, builtin tensors."""
    types = [ir.Type.parse(tensor_type(spec)) for spec in record.operands]
    values = [value_of("torch_c.to_builtin_tensor", kind, value) for kind, value in zip(types, operands)]
    attributes = {"call_target_name": ir.StringAttr.get(record.target),
                  "backend_config": ir.StringAttr.get(record.config),
                  "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2)}
    if record.has_effects:
        attributes["has_side_effect"] = ir.BoolAttr.get(True)
    if record.form.aliases:
        is_tuple = len(record.results) > 1
        attributes["output_operand_aliases"] = ir.Attribute.parse("[" + ", ".join(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{n if is_tuple else ''}], operand_index = {k}, "
            "operand_tuple_indices = []>" for k, n in record.form.aliases.items()) + "]")
    call = ir.Operation.create("stablehlo.custom_call", results=[
        ir.Type.parse(tensor_type(spec)) for spec in record.results], operands=values, attributes=attributes)
    return list(call.results)


# -- in PyTorch's graph ----------------------------------------------------------------------------------------------
def numbers_of_floats(graph: torch.fx.Graph) -> None:
    """Convert integer arguments beside floating-point tensors to floats: upstream folds a negative integer as a large
    unsigned one."""
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
            continue
        tensors = [a.meta["val"] for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor)]
        if not tensors or not all(t.is_floating_point() for t in tensors):
            continue
        for index, (value, slot) in enumerate(zip(node.args, node.target._schema.arguments)):
            if type(value) is int and str(slot.type) in ("Tensor", "number"):
                node.update_arg(index, float(value))


INDEXED = (aten.index.Tensor, aten.index_put.default)


def indices_from_start(graph: torch.fx.Graph) -> None:
    """Add the size of the axis to negative indices: upstream would read the first element instead."""
    for node in graph.nodes:
        if node.target not in INDEXED:
            continue
        indices = list(node.args[1])
        for axis, index in enumerate(indices):
            if index is None or index.meta["val"].dtype in (torch.bool, torch.uint8):
                continue
            value, size = index.meta["val"], node.args[0].meta["val"].shape[axis]
            with graph.inserting_before(node):
                is_negative = graph.call_function(aten.lt.Scalar, (index, 0))
                from_end = graph.call_function(aten.add.Tensor, (index, size))
                indices[axis] = graph.call_function(aten.where.self, (is_negative, from_end, index))
            is_negative.meta["val"], from_end.meta["val"] = value < 0, value + size
            indices[axis].meta["val"] = value.clone()
        node.update_arg(1, indices)


__all__ = ["stablehlo_of"]
