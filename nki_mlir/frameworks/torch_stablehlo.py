# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch programs that call kernels as StableHLO: what ``torch.export`` makes, with kernels as custom calls.

    module = stablehlo_of(model, a, b)
    (result,) = run_linked(module, [a.numpy(), b.numpy()])

The program is imported as operations of PyTorch's dialect. There the operators of kernels become custom calls between
casts to builtin tensors; the casts fold when the upstream pipelines lower everything around it.
"""

import operator
import re
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from nki_mlir.bindings import ir, load
from nki_mlir.conversion.custom_call import KernelRecord
from nki_mlir.conversion.link_kernels import tensor_type
from nki_mlir.diagnostics import Unsupported
from nki_mlir.frameworks import torch_operator
from nki_mlir.frameworks.torch_operator import callee_named
from nki_mlir.scalar.dtypes import BY_MLIR

CASTS = "builtin.module(torch-func-backend-type-conversion-for-stablehlo)"
TO_STABLEHLO = ("builtin.module(torchdynamo-export-to-torch-backend-pipeline{extra-library=},"
                "torch-backend-to-stablehlo-backend-pipeline)")


def stablehlo_of(program: Any, *arguments: torch.Tensor) -> str:
    """The StableHLO text of a module on example arguments, or of a ``torch.export.ExportedProgram``.

    Parameters and buffers become constants of the module. Tensors that the program updates in place cannot be among its
    inputs, because values of StableHLO do not change.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        # The importer takes equal tensor objects for one parameter.
        program = torch.export.export(program, tuple(a.clone() for a in arguments))
    program = program.run_decompositions()
    signature = program.graph_signature
    if signature.user_inputs_to_mutate or signature.buffers_to_mutate:
        raise Unsupported(feature="a PyTorch program that updates its inputs or buffers, as StableHLO",
                          instead="update a copy and return it")
    updates_to_values(program.graph_module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load("fx").export_and_import(program, output_type="raw", hooks=constants_in_place())
    with module.context, ir.Location.unknown():
        load("_mlir_libs._stablehlo").register_dialect(module.context, load=True)
        # The dialect of the casts can only be loaded as part of a pass that makes them.
        manager = load("passmanager").PassManager
        manager.parse(CASTS).run(ir.Module.create().operation)
        to_custom_calls(module)
        manager.parse(TO_STABLEHLO).run(module.operation)
    return str(module)


def updates_to_values(graph_module: torch.fx.GraphModule) -> None:
    """``nki::call_`` in the form of a functional program as ``nki::updated``, which has the new values as results."""
    for node in list(graph_module.graph.nodes):
        if node.target is not torch.ops.higher_order.auto_functionalized_v2 or (
                node.args[0] is not torch.ops.nki.call_.default):
            continue
        kept = node.kwargs
        bases = [kept.get(f"_written_{k}_base_index") for k in range(kept["_written_length"])]
        whole = {"_written_length", *(f"_written_{k}_base_index" for k in range(len(bases)))}
        if None in bases or any(key.startswith("_written") and key not in whole for key in kept):
            raise Unsupported(feature="a kernel that updates a part of a tensor, in a PyTorch program as StableHLO",
                              instead="pass it the part as a tensor of its own, made with clone()")
        with graph_module.graph.inserting_before(node):
            made = graph_module.graph.call_function(torch.ops.nki.updated.default, (
                [kept["_all_bases"][n] for n in bases], kept["tensors"], kept["kernel"]))
            made.meta = dict(node.meta) | {"val": [kept["_all_bases"][n].meta["val"] for n in bases]}
        for user in list(node.users):               # the operator's own result is nothing, then come the bases
            assert user.target is operator.getitem
            with graph_module.graph.inserting_before(user):
                value = graph_module.graph.call_function(operator.getitem, (made, bases.index(user.args[1] - 1)))
                value.meta = dict(user.meta)
            user.replace_all_uses_with(value)
            graph_module.graph.erase_node(user)
        graph_module.graph.erase_node(node)
    graph_module.recompile()


def constants_in_place() -> Any:
    """Hooks of the importer that write parameters as plain constants, which every reader of the text has."""
    importer = load("extras.fx_importer")

    class Hooks(importer.FxImporterHooks):           # type: ignore[name-defined]
        def resolve_literal(self, gni: Any, literal: Any, info: Any) -> Any:
            if not isinstance(literal, torch.Tensor):
                return None
            element = importer.TORCH_DTYPE_TO_MLIR_TYPE[literal.dtype]()
            kind = "x".join([*map(str, literal.shape), str(element)])
            attribute = ir.Attribute.parse(f"dense<{elements(literal)}> : tensor<{kind}>")
            shape = ",".join(map(str, literal.shape))
            return ir.Operation.create(
                "torch.vtensor.literal", results=[ir.Type.parse(f"!torch.vtensor<[{shape}],{element}>")],
                attributes={"value": attribute}).result
    return Hooks()


def elements(literal: torch.Tensor) -> str:
    """The elements as an attribute's text: the bytes, or numbers for bools, which attributes pack."""
    with _disable_current_modes():
        values = literal.detach().contiguous().cpu()
        if values.dtype == torch.bool or values.numel() == 0:
            return str(values.tolist()).lower() if values.numel() else ""
        return f'"0x{values.reshape(-1).view(torch.uint8).numpy().tobytes().hex()}"'


# -- in PyTorch's dialect ----------------------------------------------------------------------------------------------
def to_custom_calls(module: Any) -> None:
    """Replace every operator of a kernel, and every custom C++ operator."""
    found: list[tuple[Any, str]] = []
    own = custom_operators()

    def visit(op: Any) -> Any:
        if op.name == "torch.operator":
            found.append((op, op.attributes["name"].value.removeprefix("torch.")))
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    for op, name in found:
        if name in ("nki.call", "nki.updated"):
            replace(op)
        elif name in own:
            replace_operator(op, own[name])


def custom_operators() -> dict[str, Any]:
    """The custom C++ operators that are defined in PyTorch, by name as the importer writes it."""
    binding = sys.modules.get("nki_mlir.customop.torch_binding")
    return {} if binding is None else {name.replace("::", "."): op for name, op in binding.registered().items()}


def replace_operator(op: Any, custom: Any) -> None:
    """One call of a custom C++ operator. Its numbers are constants of the program."""
    from nki_mlir.customop.graph_binding import callee
    arguments = [described(value) if kind == "T" else number(value, custom)
                 for value, kind in zip(op.operands, custom.parameters)]
    record = callee(custom, arguments).record
    with ir.InsertionPoint(op), op.location:
        result, = custom_call(record, [v for v, kind in zip(op.operands, custom.parameters) if kind == "T"])
        cast = ir.Operation.create("torch_c.from_builtin_tensor", results=[op.results[0].type], operands=[result])
        op.results[0].replace_all_uses_with(cast.result)
    op.erase()


class Described(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype


def described(value: Any) -> Described:
    """Shape and dtype of a tensor of PyTorch's dialect: ``!torch.vtensor<[2,3],si32>``."""
    sizes, element = re.fullmatch(r"!torch\.vtensor<\[(.*)\],(\w+)>", str(value.type)).groups()      # type: ignore[union-attr]
    return Described(tuple(map(int, filter(None, sizes.split(",")))), BY_MLIR[element.removeprefix("s")].numpy)


def number(value: Any, custom: Any) -> float:
    attributes = None if isinstance(value.owner, ir.Block) else value.owner.attributes
    if attributes is None or "value" not in attributes:
        raise Unsupported(feature=f"a computed number as argument of {custom.signature}, as StableHLO",
                          instead="pass a Python number")
    return attributes["value"].value


def replace(op: Any) -> None:
    *lists, text = [value.owner for value in op.operands]
    record = callee_named(text.attributes["value"].value).record
    tensors = [list(one.operands) for one in lists]
    updated = tensors[0] if len(tensors) == 2 else []
    aliases = record.form.aliases
    places, plain = dict(zip(aliases, updated)), iter(tensors[-1])
    operands = [places[k] if k in aliases else next(plain) for k in range(len(record.operands))]
    made = [n for n in range(len(record.results)) if n not in aliases.values()]
    order = [*aliases.values(), *made] if updated else made         # the call's result of each of the operator's
    with ir.InsertionPoint(op), op.location:
        results = custom_call(record, operands)
        for unpack in [use.owner for use in op.results[0].uses]:
            for old, n in zip(unpack.results, order):
                cast = ir.Operation.create("torch_c.from_builtin_tensor", results=[old.type], operands=[results[n]])
                old.replace_all_uses_with(cast.result)
            unpack.erase()
    op.erase()


def custom_call(record: KernelRecord, operands: list[Any]) -> list[Any]:
    """The call on values of PyTorch's dialect; its results are builtin tensors."""
    types = [ir.Type.parse(tensor_type(spec)) for spec in record.operands]
    values = [ir.Operation.create("torch_c.to_builtin_tensor", results=[kind], operands=[value]).result
              for kind, value in zip(types, operands)]
    attributes = {"call_target_name": ir.StringAttr.get(record.target),
                  "backend_config": ir.StringAttr.get(record.config),
                  "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2)}
    if record.has_effects:
        attributes["has_side_effect"] = ir.BoolAttr.get(True)
    if record.form.aliases:
        several = len(record.results) > 1
        attributes["output_operand_aliases"] = ir.Attribute.parse("[" + ", ".join(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{n if several else ''}], operand_index = {k}, "
            "operand_tuple_indices = []>" for k, n in record.form.aliases.items()) + "]")
    made = ir.Operation.create("stablehlo.custom_call", results=[
        ir.Type.parse(tensor_type(spec)) for spec in record.results], operands=values, attributes=attributes)
    return list(made.results)


def new_values(written: list[torch.Tensor], tensors: list[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    """``nki::updated``: what ``nki::call_`` makes of copies."""
    copies = [t.clone() for t in written]
    torch.ops.nki.call_(copies, tensors, kernel)
    return copies


def _define() -> torch.library.Library:
    library = torch.library.Library("nki", "FRAGMENT")
    library.define("updated(Tensor[] written, Tensor[] tensors, str kernel) -> Tensor[]")
    library.impl("updated", new_values, "CompositeExplicitAutograd")
    torch.library.register_fake("nki::updated", lambda written, tensors, kernel: [t.clone() for t in written],
                                lib=library)
    return library


torch_operator.once("torch_functional_updates", _define)

__all__ = ["stablehlo_of"]
