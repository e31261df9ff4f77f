# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The upstream passes that take a StableHLO graph to linalg, on tensors and then on buffers."""

from collections.abc import Iterable

from nki_mlir.bindings import Context, Module, Operation, Value, ir, load, operations_of
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.creation import value_of
from nki_mlir.dialects.mlir_ops import load_dialects
from nki_mlir.dialects.source_locations import location_of
from nki_mlir.graph.tensor_values import compared, splat
from nki_mlir.waist.generic import generic_of

TO_STABLEHLO = (
    "builtin.module(func.func(stablehlo-legalize-composite-to-call),inline,symbol-dce,"
    "func.func(chlo-legalize-to-stablehlo))")
TO_LINALG = "builtin.module(inline,func.func(stablehlo-aggressive-simplification,stablehlo-legalize-to-linalg))"
SIGNLESS = "builtin.module(stablehlo-convert-to-signless)"
FUSED = "builtin.module(func.func(linalg-fuse-elementwise-ops),canonicalize,cse)"
BUFFERS = (
    "empty-tensor-to-alloc-tensor,one-shot-bufferize{bufferize-function-boundaries=1 allow-return-allocs-from-loops=1 "
    "function-boundary-type-conversion=identity-layout-map},")
TO_BUFFERS = f"builtin.module({BUFFERS}canonicalize,cse,func.func(linalg-generalize-named-ops),canonicalize)"
WIDTHS = 1, 2, 4, 8, 16, 32, 64         # bits of StableHLO's integers


class BadModule(NkiMlirError, ValueError):
    code = "NKI-STABLEHLO"
    message = "the StableHLO module cannot be run: {what}"
    fix = "give a module with one public function on tensors of static shape, such as jax.jit(f).lower(...).as_text()"


def graph_context() -> Context:
    """Return a context with our dialects, StableHLO and its passes."""
    context = ir.Context()
    context.allow_unregistered_dialects = True      # attributes of JAX; operations are checked by ``check_safe``
    load_dialects(context)
    load_graph_dialects(context)
    return context


def load_graph_dialects(context: ir.Context) -> None:
    """Load StableHLO's dialects in a context, and its passes in the process.

    No option loads ``chlo`` alone: a pass that creates its operations loads it.
    """
    load("_mlir_libs._torchMlir")                   # importing it registers the passes to linalg
    stablehlo = load("_mlir_libs._stablehlo")
    stablehlo.register_dialect(context, load=True)
    stablehlo.register_stablehlo_passes()
    with context, ir.Location.unknown():
        manager = load("passmanager").PassManager.parse("builtin.module(func.func(convert-torch-to-stablehlo))")
        manager.run(ir.Module.create().operation)


def to_stablehlo(module: Module) -> None:
    """Inline calls and composites, and rewrite CHLO as StableHLO.

    Raise ``BadModule`` for a search for a negative number of elements, at which upstream would end the process: the
    verifier takes the least integer for a dynamic extent.
    """
    for op in operations_of(module, lambda name: name == "chlo.top_k"):
        if (count := ir.IntegerAttr(op.attributes["k"]).value) < 0:
            raise BadModule(what=f"chlo.top_k selects {count} elements").located(location_of(op))
    for op in operations_of(module, lambda name: name == "chlo.erf"):
        if ir.RankedTensorType(op.operands[0].type).has_static_shape:
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(error_function(op.operands[0]))
            op.erase()
    run_pipeline(module, TO_STABLEHLO)


def error_function(x: Value) -> Value:
    """Emit ``chlo.erf`` with the sign of a zero: upstream clamps the argument, and a clamp that is zero is +0."""
    return value_of("stablehlo.select", x.type, compared(x, "EQ", splat(x.type, 0.0), "FLOAT"), x,
                    value_of("chlo.erf", x.type, x))


def run_pipeline(module: Module, pipeline: str) -> None:
    try:
        load("passmanager").PassManager.parse(pipeline).run(module.operation)
    except ir.MLIRError as error:
        lines = str(error).splitlines()
        raise BadModule(what=next((line for line in lines if line.startswith("error: ")), lines[0])) from None


def to_buffers(module: Module, pipeline: str = TO_BUFFERS) -> None:
    """Convert tensors to buffers. Argument buffers belong to the caller: a graph does not write into them."""
    function = public_function(module)
    inputs = len(function.attributes["function_type"].value.inputs)
    with module.context:
        marks = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([marks] * inputs)
    read_as_inputs(module)
    run_pipeline(module, FUSED)
    empties_apart(module)
    run_pipeline(module, pipeline)
    function = public_function(module)
    if "arg_attrs" in function.attributes:
        del function.attributes["arg_attrs"]


def read_as_inputs(module: Module) -> None:
    """Let operations that have only parallel loops, such as outer products, read the old value of their result as an
    input.

    Upstream's fusion would compute them in loops with more axes, where the results of one iteration are the old values
    of the next one.
    """
    for op in operations_of(module, lambda name: name == "linalg.generic"):
        generic = generic_of(op)
        if generic is not None and generic.parallel:
            generic.read_as_inputs()


def empties_apart(module: Module | Operation) -> None:
    """Clone ``tensor.empty`` for each use: bufferization gives the result of a branch and a later one the same buffer.
    """
    for op in operations_of(module, lambda name: name == "tensor.empty"):
        for use in list(op.results[0].uses)[1:]:
            with ir.InsertionPoint(use.owner):
                use.owner.operands[use.operand_number] = op.clone().results[0]


def refuse_elements(module: Module) -> None:
    """Refuse tensors of elements that are neither floats nor integers of StableHLO's widths."""
    for op in operations_of(module, lambda name: name != "builtin.module"):
        kinds = (op.attributes["function_type"].value.inputs if op.name == "func.func"
                 else [value.type for value in (*op.operands, *op.results)])
        for kind in kinds:
            element = ir.RankedTensorType(kind).element_type if isinstance(kind, ir.RankedTensorType) else None
            if element is None or isinstance(element, ir.FloatType) or (
                    isinstance(element, ir.IntegerType) and element.width in WIDTHS):
                continue
            raise Unsupported(feature=f"a tensor of {element} in a graph",
                              instead="run this program with jax.jit, where XLA compiles the program around the kernels"
                              ).located(location_of(op))


def refuse_leftovers(module: Module | Operation) -> None:
    """Refuse operations that the passes to linalg do not know."""
    leftovers = operations_of(module, lambda name: name.startswith(("stablehlo.", "chlo.")))
    if leftovers:
        name = leftovers[0].name
        if "call_target_name" in leftovers[0].attributes:           # JAX's cholesky, for example, is a call of LAPACK
            name += f" @{leftovers[0].attributes['call_target_name'].value}"
        raise Unsupported(feature=f"'{name}' in a linked module",
                          instead="run this program with jax.jit, where XLA compiles the program around the kernels"
                          ).located(location_of(leftovers[0]))


def refuse_untranslated(module: Module) -> None:
    """Refuse operations that the passes to LLVM left: conversions of float8 types that LLVM does not know."""
    leftovers = operations_of(module, lambda name: not name.startswith(("llvm.", "builtin.")))
    if leftovers:
        kinds = " to ".join(", ".join([str(v.type) for v in values])
                            for values in (leftovers[0].operands, leftovers[0].results) if len(values))
        raise Unsupported(feature=f"'{leftovers[0].name}' of {kinds} in a graph on the CPU",
                          instead="use another dtype, or run this program with jax.jit"
                          ).located(location_of(leftovers[0]))


def public_function(module: Module) -> Operation:
    """Return the module's one public function."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    public = [f for f in functions if "sym_visibility" not in f.attributes
              or f.attributes["sym_visibility"].value == "public"]
    if len(public) != 1:
        raise BadModule(what=f"it has {len(public)} public functions")
    return public[0]


def named(module: Module, name: str) -> Operation:
    return next(op.operation for op in module.body.operations
                if "sym_name" in op.operation.attributes and op.operation.attributes["sym_name"].value == name)


def exchange(op: Operation, values: Iterable[Value]) -> None:
    """Replace the results of an operation by values, and erase it."""
    for old, new in zip(op.results, values):
        old.replace_all_uses_with(new)
    op.erase()


def define(module: Module, text: str, op: Operation, number: int = 0) -> Operation:
    """Parse a text, add its function of index ``number`` to a module, and return the function. A call of it will
    replace the operation ``op``, whose location all its operations get."""
    parsed = ir.Module.parse(text, module.context)      # owns the operations that are copied
    with ir.InsertionPoint(module.body):
        function: Operation = parsed.body.operations[number].operation.clone().operation
    for inner in operations_of(function, lambda name: True):
        inner.location = op.location
    return function


def exchange_for_call(op: Operation, name: str) -> None:
    """Replace an operation by a call of a function of that name with the same operands."""
    with op.context, ir.InsertionPoint(op), op.location:
        call = ir.Operation.create("func.call", results=[r.type for r in op.results], attributes={
            "callee": ir.FlatSymbolRefAttr.get(name)}, operands=list(op.operands))
    exchange(op, call.results)
