# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""stablehlo-to-linalg: convert a StableHLO module and the kernels that it calls to one kernel function on HBM buffers.

before:  func.func @main(%a: tensor<8x4xf32>) -> tensor<8x4xf32> {
           %0 = stablehlo.custom_call @AwsNeuronCustomNativeKernel(%a)
           %1 = stablehlo.add %0, %a
           return %1
after:   func.func @main(%a: memref<8x4xf32, "hbm">, %r: memref<8x4xf32, "hbm">) {
           (the kernel at the waist, from %a to %0)
           linalg.generic ins(%0, %a) outs(%r) { ... "scalar.alu"(...) {fn = "add"} ... }

The graph's own operations are the waist's, on buffers of any size. Results are the function's last arguments. Kernels
are linked first, and lowered to the waist.
"""


from nki_mlir.bindings import Module, ir, operations_of
from nki_mlir.conversion.arith_to_scalar import ArithToScalar
from nki_mlir.conversion.control_flow_to_scf import ControlFlowToScf, copy_yielded_parts
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.creation import buffer_type, declared
from nki_mlir.graph import functions, upstream
from nki_mlir.graph.comparisons import rewrite_indexed
from nki_mlir.graph.extremes import rewrite_extremes
from nki_mlir.graph.greatest_elements import rewrite_searches
from nki_mlir.graph.integer_functions import (
    rewrite_counts_of_bits,
    rewrite_extremes_of_truths,
    rewrite_narrow_sums,
    rewrite_unsigned_folds,
)
from nki_mlir.graph.joint_reductions import rewrite_joint_reductions
from nki_mlir.graph.numbers import count
from nki_mlir.graph.rewrites import (
    broadcast_predicates,
    drop_barriers,
    fold_conversions,
    rewrite_concatenations,
    rewrite_counted_loops,
    rewrite_gathers,
    rewrite_pads,
    rewrite_powers,
    sign_indices,
)
from nki_mlir.graph.selected_windows import rewrite_selected_windows
from nki_mlir.graph.sorting_network import rewrite_sorts
from nki_mlir.graph.views import flatten_views, put_in_hbm
from nki_mlir.graph.wide_sums import widen_sums
from nki_mlir.passes.pass_manager import Pass, pass_named, run_passes
from nki_mlir.transforms.link_kernels import link

LOWER = ("split-masked-loops", "nki-to-linalg")


class StablehloToLinalg(Pass, name="stablehlo-to-linalg"):
    widen: bool = True      # let products and sums of narrow floats have results in float32, which are rounded once
    compare: bool = False   # rewrite scatters, gathers of elements, sorts and folds for engines

    def run(self, module: Module) -> None:
        upstream.load_graph_dialects(module.context)
        with module.context, ir.Location.unknown():
            signature = upstream.public_function(module).attributes["function_type"].value
            kinds = [*signature.inputs, *signature.results]
            if any(str(kind).endswith("f64>") for kind in kinds):
                raise Unsupported(feature="a float64 argument or result of a graph, in one program with its kernels",
                                  instead="convert it to float32 outside of the graph")
            link(module)
            kernels = set_aside(module)
            upstream.to_stablehlo(module)
            upstream.refuse_elements(module)
            self.rewrite(module)
            ControlFlowToScf().run(module)
            upstream.run_pipeline(module, upstream.TO_LINALG)
            make_signless(module)
            upstream.run_pipeline(module, upstream.SIGNLESS)
            upstream.refuse_leftovers(module)
            count(module)
            copy_yielded_parts(module)
            upstream.to_buffers(module)
            inline_calls(module)
            ArithToScalar().run(module)
            run_passes(kernels, [pass_named(name) for name in LOWER])
            main = upstream.public_function(module)
            put_in_hbm(module)
            functions.keep_in_buffers(main)
            functions.results_as_arguments(main)
            flatten_views(module)
            functions.copies_as_structured(main)
            functions.restore_signs(main, kinds)
            functions.insert_kernels(main, kernels)
            finish(module)

    def rewrite(self, module: Module) -> None:
        """Replace operations that upstream does not lower, or lowers to code that the targets do not have."""
        drop_barriers(module)
        fold_conversions(module)
        broadcast_predicates(module)
        rewrite_powers(module)
        sign_indices(module)
        if self.compare:
            rewrite_searches(module)
            rewrite_sorts(module)
            rewrite_indexed(module)
        rewrite_extremes(module)
        rewrite_extremes_of_truths(module)
        if self.compare:
            rewrite_counts_of_bits(module)
            rewrite_unsigned_folds(module)
            rewrite_narrow_sums(module)
            rewrite_joint_reductions(module)
        rewrite_concatenations(module)
        rewrite_pads(module)
        rewrite_gathers(module)
        rewrite_selected_windows(module)
        if self.widen:
            widen_sums(module)
        rewrite_counted_loops(module)


def set_aside(module: Module) -> Module:
    """Move the functions of kernels to a separate module; the graph keeps declarations, which upstream passes skip."""
    kernels = ir.Module.create()
    for op in [entry.operation for entry in module.body.operations]:
        if op.name != "func.func" or not any(
                isinstance(kind, ir.MemRefType) for kind in op.attributes["function_type"].value.inputs):
            continue
        with ir.InsertionPoint(kernels.body):
            op.clone()
        with ir.InsertionPoint(op):
            declared(op.attributes["sym_name"], op.attributes["function_type"])
        op.erase()
    return kernels


def inline_calls(module: Module) -> None:
    """Inline the functions around kernels.

    This runs after bufferization: the functions read buffers, and bufferization would miss these reads when it lets a
    later operation write in place.
    """
    for op in operations_of(module, lambda name: name == "func.func"):
        if "no_inline" in op.attributes:
            del op.attributes["no_inline"]
    upstream.run_pipeline(module, "builtin.module(inline,canonicalize)")


def make_signless(module: Module) -> None:
    """Give start values of kernels' results the type that upstream passes use for the graph's integers: one without a
    sign."""
    for get in operations_of(module, lambda name: name == "memref.get_global"):
        attributes = upstream.named(module, get.attributes["name"].value).attributes
        kind = ir.MemRefType(attributes["type"].value)
        element = kind.element_type
        if isinstance(element, ir.IntegerType) and element.is_unsigned:
            plain = ir.IntegerType.get_signless(element.width)
            attributes["type"] = ir.TypeAttr.get(buffer_type(kind, plain))
            attributes["initial_value"] = ir.DenseElementsAttr.get_splat(
                ir.RankedTensorType.get(kind.shape, plain), ir.IntegerAttr.get(plain, 0))


def finish(module: Module) -> None:
    """Remove the operations and attributes that only the graph needed."""
    upstream.run_pipeline(module, "builtin.module(symbol-dce)")
    for name in [a.name for a in (module.operation.attributes[k] for k in range(len(module.operation.attributes)))]:
        if not name.startswith(("nki.", "sym_")):
            del module.operation.attributes[name]
