# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run StableHLO modules that call kernels: link the kernels, compile the graph around them for the CPU.

Graph and kernels become a single kernel function, which the CPU compiler for kernels takes like any other. A graph
with operations that this compiler does not support runs around calls of the kernels (``NativeCalls``): linalg,
bufferization and loops lower it to LLVM with only upstream passes, and each kernel's function gets as its body
a call of the kernel's native entry on the buffers.
"""

import ctypes
import re
import threading
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir import result_memory
from nki_mlir.alone import ALONE
from nki_mlir.bindings import Module, Type, cloned, ir, load, operations_of
from nki_mlir.capture.attempts import Captured, Variant
from nki_mlir.conversion.control_flow_to_scf import ControlFlowToScf, copy_yielded_parts
from nki_mlir.conversion.stablehlo_to_linalg import StablehloToLinalg
from nki_mlir.diagnostics import InternalError, NkiMlirError, Unsupported
from nki_mlir.dialects.creation import declared
from nki_mlir.dialects.isa.program import Program
from nki_mlir.dialects.kernel_function import set_argument_types
from nki_mlir.dialects.source_locations import name_operations
from nki_mlir.environment import TARGET
from nki_mlir.frameworks.registry import Callee, argument_list, callee_from, checked
from nki_mlir.graph import upstream
from nki_mlir.graph.host_integers import narrowed
from nki_mlir.graph.integer_functions import rewrite_extremes_of_truths
from nki_mlir.graph.rewrites import drop_barriers, rewrite_gathers, sign_indices
from nki_mlir.graph.selected_windows import rewrite_selected_windows
from nki_mlir.graph.sort_and_scatter import rewrite_sequential, saturate_conversions
from nki_mlir.graph.upstream import (
    BadModule,
    graph_context,
    named,
    public_function,
    refuse_leftovers,
    refuse_untranslated,
    run_pipeline,
)
from nki_mlir.graph.wide_sums import widen_sums
from nki_mlir.language.kernel import default_executor
from nki_mlir.machine import machine_named
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.passes.safety import check_safe
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.text_limits import check_text
from nki_mlir.transforms.fuse_graph import FuseGraph
from nki_mlir.transforms.link_kernels import Linked, link

if TYPE_CHECKING:
    from nki_mlir.targets.neuron.codegen.emission import Emission

class LinkedProgram:
    """A linked and compiled module. Called with arrays, it returns the list of results.

    Arguments:
        source: as for run_linked
        on: "isa" runs instruction streams on the simulator; otherwise the module is compiled for the CPU
        target: the machine of the streams, by default that of NEURON_PLATFORM_TARGET_OVERRIDE, of the module, or trn2

    Errors:
        The errors of run_linked, and ``UnknownTarget``.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(LinkedProgram(module, "jit")(np.arange(4, dtype=np.float32))[0], [0, 2, 4, 6])
    """

    def __init__(self, source: str | bytes, on: str = "", target: str = "") -> None:
        with ALONE, graph_context(), ir.Location.unknown():
            module = for_target(read_graph(source), target)
            main = public_function(module)
            self.name = main.attributes["sym_name"].value
            signature = main.attributes["function_type"].value
            self.inputs = [array_type(t) for t in signature.inputs]
            self.outputs = [array_type(t) for t in signature.results]
            self.run = simulated(module) if isinstance(on, str) and on == "isa" else compiled(module)

    @property
    def is_one_program(self) -> bool:
        """Return whether graph and kernels are compiled as a single program. Otherwise the graph calls the programs of
        the kernels."""
        return not isinstance(self.run, NativeCalls)

    def __call__(self, *arguments: object) -> list[np.ndarray]:
        arrays = checked(arguments, self.inputs, self.name)
        results = [result_memory.empty(shape, dtype) for shape, dtype in self.outputs]
        self.run(arrays, results)
        return results


def run_linked(module: str | bytes, arguments: Sequence[object]) -> list[np.ndarray]:
    """Run a StableHLO module that calls kernels.

    Arguments:
        module: text, or a portable artifact such as ``jax.export`` writes
        arguments: an array for each parameter of the module's function

    Result:
        The list of the function's results, as NumPy arrays.

    Errors:
        ``BadModule`` if the module cannot be read or linked, ``BadArguments`` if the number, a shape or a dtype of the
        arrays differs from the function's parameters.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(run_linked(module, [np.arange(4, dtype=np.float32)])[0], [0, 2, 4, 6])
    """
    return LinkedProgram(module)(*argument_list(arguments))


def simulate_linked(module: str | bytes, arguments: Sequence[object]) -> list[np.ndarray]:
    """Run a StableHLO module as ``run_linked`` does, compiled to instruction streams on the simulator.

    Arguments:
        module: as for run_linked
        arguments: as for run_linked

    Result:
        The list of the function's results, as NumPy arrays.

    Errors:
        The errors of run_linked.

    Example:
        module = ("func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> { %y = stablehlo.add %x, %x : tensor<4xf32>"
                  "return %y : tensor<4xf32> }")
        assert np.array_equal(simulate_linked(module, [np.arange(4, dtype=np.float32)])[0], [0, 2, 4, 6])
    """
    return LinkedProgram(module, "isa")(*argument_list(arguments))


def for_target(module: Module, target: str) -> Module:
    """Set a module's target to ``target``, or else to that of the environment. Return the module. Raise
    ``UnknownTarget``."""
    if target := target or TARGET.text():
        module.operation.attributes["nki.target"] = ir.StringAttr.get(machine_named(target).name)
    return module


def linked_streams(module: str | bytes, options: "Emission", file: str = "-", target: str = "") -> list[Program]:
    """Compile a StableHLO module with its kernels to instruction streams. ``file`` names its source in the locations
    of instructions."""
    with ALONE, graph_context(), ir.Location.unknown():
        graph = for_target(read_graph(module), target)
        name_operations(graph, file)
        from nki_mlir.targets.neuron.codegen.emission import emit_module  # start-up: loads MLIR
        run_passes(graph, passes_to("nisa", graph))
        return [emit_module(graph, options)]


def simulated(module: Module) -> Callable[[list[np.ndarray], list[np.ndarray]], None]:
    """Compile the module to instruction streams, and return a function that simulates them on arrays."""
    from nki_mlir.targets.neuron.codegen.emission import emit_for_values, emit_module  # start-up: loads MLIR
    from nki_mlir.targets.neuron.simulator import simulate
    run_passes(module, passes_to("nisa", module))
    program = emit_for_values(lambda options: emit_module(module, options))
    inputs, outputs = ([v.dtype.numpy for v in program.of_kind(kind)] for kind in ("input", "output"))

    def run(arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        ends = [r if r.dtype == dtype else np.empty(r.shape, dtype) for r, dtype in zip(results, outputs, strict=True)]
        simulate(program, narrowed(arrays, inputs), ends)
        for result, end in zip(results, ends):
            if result is not end:                               # an integer of 64 bits, which the streams narrowed
                result[...] = end
    return run


def compiled(module: Module) -> Callable[[list[np.ndarray], list[np.ndarray]], None]:
    """Compile the module for the CPU and return its executable: a single program for graph and kernels where the CPU
    compiler supports both, else ``NativeCalls``."""
    if default_executor() == "jit":
        from nki_mlir.targets.cpu.kernel import NativeKernel  # start-up: loads MLIR
        graph = cloned(module)
        try:
            for step in (StablehloToLinalg(), FuseGraph()):
                step.run(graph)
            return NativeKernel(Captured({(): Variant(graph, [], None, 0)}, 0, {}), ())
        except Unsupported:
            pass                        # NativeCalls may still support the graph
    return NativeCalls(module)


# -- reading -----------------------------------------------------------------------------------------------------------
def read_graph(source: str | bytes) -> Module:
    """Parse the module of a text or a portable artifact. Raise ``BadModule`` or ``UnsafeInput``."""
    if not isinstance(source, (str, bytes)):
        raise BadModule(what=f"it is a value of type {type(source).__name__}, not text or bytes")
    if isinstance(source, str):
        check_text(source)
    try:
        if isinstance(source, bytes):
            module: Module = load("_mlir_libs._stablehlo").deserialize_portable_artifact(ir.Context.current, source)
        else:
            module = ir.Module.parse(source)
    except (ir.MLIRError, ValueError) as error:
        raise unreadable(source, str(error)) from None
    check_safe(module)
    if operations_of(module, lambda name: name.startswith(("nki.", "nisa."))):
        raise BadModule(what="its kernels are linked already; give the module that has the custom calls")
    return module


def unreadable(source: str | bytes, message: str) -> NkiMlirError:
    """Return the error for a module that MLIR does not parse. A program for several devices gets a separate error,
    since MLIR lacks the dialect of its shardings. Any other error quotes MLIR's first message and its line."""
    devices = re.search(r"mhlo\.num_partitions = (\d+)", source) if isinstance(source, str) else None
    if devices is not None and int(devices[1]) > 1 and "sdy." in str(source):
        return Unsupported(feature=f"a program that JAX divides among {devices[1]} devices, as one program",
                           instead="lower the function of one device, without shard_map and shardings, or run this one "
                                   "with jax.jit")
    first, *details = message.splitlines()
    reasons = [match for line in details if (match := re.match(r'error: "-":(\d+):(\d+): (.*)', line))]
    reason = f" line {reasons[0][1]}, column {reasons[0][2]}: {reasons[0][3].strip()}" if reasons else ""
    return BadModule(what=f"it does not parse: {first}{reason}")


def array_type(kind: Type) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype of the arrays that a tensor type stands for. Raise ``BadModule`` for types that
    arrays do not have."""
    try:
        tensor = ir.RankedTensorType(kind)
        if not tensor.has_static_shape:
            raise ValueError
        element = str(tensor.element_type)
        return tuple(tensor.shape), np.dtype(np.float64) if element == "f64" else BY_MLIR[element].numpy
    except (ValueError, KeyError):
        raise BadModule(what=f"a parameter or result is a {kind}") from None


# -- graphs around calls of the kernels' native entries ----------------------------------------------------------------
TO_BUFFERS = f"builtin.module({upstream.BUFFERS}canonicalize)"
OUT_PARAMETERS = (
    "builtin.module(buffer-results-to-out-params{hoist-static-allocs=1 add-result-attr=1 modify-public-functions=1},"
    "buffer-deallocation-pipeline,canonicalize,cse)")
# The deallocation of buffers of several branches calls a function on memrefs of any shape, which pointers alone cannot
# pass; inlined, no function has such parameters.
HELPERS_INLINED = "builtin.module(inline,symbol-dce)"
# On a host without an instruction that rounds to bfloat16, LLVM calls these functions, which no loaded library defines;
# where there is one, it flushes denormals. So all rounding in arith, here and in the graph, becomes integer operations.
# A float64 is rounded once: the 24 bits of float32 end with a 1 if the lower bits are not zero.
ROUNDED_TO_ODD = """
  %bits = arith.bitcast %x : f64 to i64
  %last_bit = arith.constant 0x20000000 : i64
  %behind = arith.constant 0x1FFFFFFF : i64
  %none = arith.constant 0 : i64
  %rest = arith.andi %bits, %behind : i64
  %is_inexact = arith.cmpi ne, %rest, %none : i64
  %odd = arith.select %is_inexact, %last_bit, %none : i64
  %first_bits = arith.xori %bits, %rest : i64
  %rounded_bits = arith.ori %first_bits, %odd : i64
  %rounded = arith.bitcast %rounded_bits : i64 to f64
  %y = arith.truncf %rounded : f64 to f32"""
ROUNDING = f"""
func.func @__truncsfbf2(%x: f32) -> bf16 {{ %r = arith.truncf %x : f32 to bf16 return %r : bf16 }}
func.func @__truncdfbf2(%x: f64) -> bf16 {{{ROUNDED_TO_ODD} %r = arith.truncf %y : f32 to bf16 return %r : bf16 }}
func.func @__truncdfhf2(%x: f64) -> f16 {{{ROUNDED_TO_ODD} %r = arith.truncf %y : f32 to f16 return %r : f16 }}"""
BFLOAT16_BY_INTEGERS = (
    "func.func(arith-emulate-unsupported-floats{source-types=bf16 target-type=f32}),arith-expand{include-bf16=true},")
BYTES_BY_FLOAT32 = (
    "builtin.module(func.func(convert-linalg-to-loops,"
    "math-extend-to-supported-types{extra-types=f16,bf16 target-type=f32},"
    "arith-emulate-unsupported-floats{source-types=f8E4M3FN,f8E4M3,f8E5M2,f8E8M0FNU target-type=f32}))")
TO_LLVM = (
    f"builtin.module({BFLOAT16_BY_INTEGERS}expand-strided-metadata,lower-affine,"
    "convert-scf-to-cf,convert-math-to-llvm,convert-math-to-libm,convert-arith-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-cf-to-llvm,reconcile-unrealized-casts)")


_engines: list[object] = []            # keeps engines alive: code is never unloaded


class NativeCalls:
    """A graph's executable that calls the native entries of its kernels. Call it with the arrays of arguments and
    results."""

    def __init__(self, module: Module) -> None:
        name = public_function(module).attributes["sym_name"].value
        linked = link(module)
        self.callees = [callee_from(linked_kernel.record.config, default_executor()) for linked_kernel in linked]
        self.statuses = np.zeros(len(linked) + 1, np.int32)
        self.lock = threading.Lock()            # guards the statuses
        engine = self.compile(module, linked)
        _engines.append(engine)
        address = engine.raw_lookup(name)
        if not address:
            raise InternalError(f"the code of {name} does not link")
        self.entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

    def compile(self, module: Module, linked: list[Linked]) -> Any:
        for linked_kernel in linked:
            declare(module, linked_kernel)
        upstream.to_stablehlo(module)
        drop_barriers(module)
        rewrite_extremes_of_truths(module)
        widen_sums(module)
        sign_indices(module)
        rewrite_sequential(module)
        rewrite_gathers(module)
        rewrite_selected_windows(module)
        ControlFlowToScf().run(module)
        run_pipeline(module, upstream.TO_LINALG)
        run_pipeline(module, upstream.SIGNLESS)
        saturate_conversions(module)
        pass_named("host-floats", "conversions=false").run(module)
        refuse_leftovers(module)
        copy_yielded_parts(module)
        for k, linked_kernel in enumerate(linked):
            define(module, linked_kernel, self.callees[k], self.statuses.ctypes.data + 4 * k)
        upstream.to_buffers(module, TO_BUFFERS)
        results_apart(module)
        run_pipeline(module, OUT_PARAMETERS)
        if any("dealloc_helper" in str(op.attributes["callee"])
               for op in operations_of(module, lambda name: name == "func.call")):
            run_pipeline(module, HELPERS_INLINED)
        copies_to_linalg(module)
        flatten_empty(module)
        with ir.InsertionPoint(module.body):
            for function in ir.Module.parse(ROUNDING).body:
                function.operation.clone()
        run_pipeline(module, BYTES_BY_FLOAT32)
        pass_named("host-floats", "functions=false").run(module)
        run_pipeline(module, TO_LLVM)
        refuse_untranslated(module)
        return load("execution_engine").ExecutionEngine(module, opt_level=3)

    def __call__(self, arrays: list[np.ndarray], results: list[np.ndarray]) -> None:
        pointers = (ctypes.c_void_p * (len(arrays) + len(results)))(*(a.ctypes.data for a in (*arrays, *results)))
        first = ctypes.addressof(pointers)
        with self.lock:
            self.statuses[:] = 0
            self.entry((ctypes.c_void_p * len(pointers))(*range(first, first + 8 * len(pointers), 8)))
            failed = np.flatnonzero(self.statuses)
            if len(failed):
                raise self.callees[failed[0]].entry.error(int(self.statuses[failed[0]]))


def declare(module: Module, linked: Linked) -> None:
    """Replace a linked kernel by a declaration of its type, since passes over tensors would change its body;
    ``define`` adds a body after them."""
    function = named(module, linked.name)
    kind = function.attributes["function_type"]
    for name in (linked.name, *linked.parts):
        named(module, name).erase()
    with ir.InsertionPoint(module.body):
        declared(ir.StringAttr.get(linked.name), kind)


def define(module: Module, linked: Linked, callee: Callee, status: int) -> None:
    """Give a linked kernel's function a body that calls the native entry and stores a status other than 0 at address
    ``status``."""
    declared = named(module, linked.name)
    kind = declared.attributes["function_type"].value
    operands, results = ([str(t).removeprefix("tensor") for t in types] for types in (kind.inputs, kind.results))
    text = native_text(linked.name, callee, operands, results, status)
    declared.erase()
    defined = ir.Module.parse(text, module.context)
    with ir.InsertionPoint(module.body):
        for op in defined.body.operations:
            op.operation.clone()


def native_text(name: str, callee: Callee, operands: list[str], results: list[str], status: int) -> str:
    """Return the text of the function that calls a kernel's native entry.

    ``operands`` and ``results`` are the types without their first word: ``<4x4xf32>``.
    """
    record = callee.record
    operand_of = {result: operand for operand, result in record.form.aliases.items()}
    lines = []
    for k, body in enumerate(operands):
        lines.append(f"%operand{k} = bufferization.to_buffer %o{k} read_only : tensor{body} to memref{body}")
    for n, body in enumerate(results):
        lines.append(f"%result{n} = memref.alloc() {{alignment = 64 : i64}} : memref{body}")
        if n in operand_of:
            lines.append(f"memref.copy %operand{operand_of[n]}, %result{n} : memref{body} to memref{body}")
        elif record.starts_from_zero(record.form.results[n]):
            size = prod(record.results[n].shape) * record.results[n].dtype.itemsize         # type: ignore[union-attr]
            lines += [f"%zi{n} = memref.extract_aligned_pointer_as_index %result{n} : memref{body} -> index",
                      f"%za{n} = arith.index_cast %zi{n} : index to i64",
                      f"%zp{n} = llvm.inttoptr %za{n} : i64 to !llvm.ptr",
                      f"%zb{n} = arith.constant 0 : i8", f"%zs{n} = arith.constant {size} : i64",
                      f'"llvm.intr.memset"(%zp{n}, %zb{n}, %zs{n}) <{{isVolatile = false}}>'
                      " : (!llvm.ptr, i8, i64) -> ()"]
    slots = [record.form.source(slot) for slot in record.slots]
    lines.append(f"%data = memref.alloca() : memref<{len(slots)}xindex>")
    for number, (kind, n) in enumerate(slots):
        body = (operands if kind == "operand" else results)[n]
        lines += [f"%a{number} = memref.extract_aligned_pointer_as_index %{kind}{n} : memref{body} -> index",
                  f"%c{number} = arith.constant {number} : index",
                  f"memref.store %a{number}, %data[%c{number}] : memref<{len(slots)}xindex>"]
    lines += [f"%di = memref.extract_aligned_pointer_as_index %data : memref<{len(slots)}xindex> -> index",
              "%da = arith.index_cast %di : index to i64", "%dp = llvm.inttoptr %da : i64 to !llvm.ptr",
              f"%ea = arith.constant {callee.entry.address} : i64", "%ep = llvm.inttoptr %ea : i64 to !llvm.ptr",
              f"%sa = arith.constant {status} : i64", "%sp = llvm.inttoptr %sa : i64 to !llvm.ptr",
              "%new = llvm.call %ep(%dp) : !llvm.ptr, (!llvm.ptr) -> i32",
              "%old = llvm.load %sp : !llvm.ptr -> i32", "%both = arith.ori %old, %new : i32",
              "%zero = arith.constant 0 : i32", "%first = arith.cmpi eq, %old, %zero : i32",
              "%kept = arith.select %first, %both, %old : i32", "llvm.store %kept, %sp : i32, !llvm.ptr"]
    for n, body in enumerate(results):
        lines.append(f"%t{n} = bufferization.to_tensor %result{n} restrict writable : memref{body} to tensor{body}")
    parameters = ", ".join(f"%o{k}: tensor{body}" for k, body in enumerate(operands))
    types = ", ".join(f"tensor{body}" for body in results)
    values = ", ".join(f"%t{n}" for n in range(len(results)))
    return (f'func.func private @"{name}"({parameters}) -> ({types}) attributes {{no_inline}} {{\n  '
            + "\n  ".join(lines) + f"\n  return {values} : {types}\n}}")


def results_apart(module: Module) -> None:
    """Copy a buffer that a function returns twice: the pass that turns results into parameters would crash."""
    memref = load("dialects.memref")
    for end in operations_of(module, lambda name: name == "func.return"):
        values_before = []
        for k, value in enumerate(end.operands):
            if value in values_before:
                with ir.InsertionPoint(end), end.location:
                    copy = memref.alloc(value.type, [], [])
                    memref.copy(value, copy)
                end.operands[k] = copy
            values_before.append(value)


def copies_to_linalg(module: Module) -> None:
    """Rewrite ``memref.copy`` as ``linalg.copy``: a strided ``memref.copy`` lowers to a runtime function that the
    bindings lack."""
    linalg = load("dialects.linalg")
    for op in operations_of(module, lambda name: name == "memref.copy"):
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()


def flatten_empty(module: Module) -> None:
    """Give arguments without elements a single dim: the pass to LLVM does not convert a function if one of its
    arguments has a dim of 0 after another dim."""
    memref, function = load("dialects.memref"), public_function(module)
    block = function.regions[0].blocks[0]
    for argument in block.arguments:
        shape = ir.MemRefType(argument.type).shape
        if 0 not in shape[1:]:
            continue
        flat = ir.MemRefType.get([0], ir.MemRefType(argument.type).element_type)
        if list(argument.uses):
            strides = [prod(shape[d + 1:]) for d in range(len(shape))]
            with ir.InsertionPoint.at_block_begin(block), function.location:
                view = memref.reinterpret_cast(argument.type, argument, [], [], [], [0], shape, strides)
            argument.replace_all_uses_except(view, view.owner)
        argument.set_type(flat)
    set_argument_types(function)


__all__ = ["LinkedProgram", "run_linked", "simulate_linked"]
