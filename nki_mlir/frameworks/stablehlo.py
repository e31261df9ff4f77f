# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs StableHLO modules that call kernels: the kernels are linked, the graph around them is compiled for the CPU.

The graph goes through linalg, bufferization and loops to LLVM with the upstream passes. A kernel's function gets as its
body a call of the kernel's native entry on the buffers, so that it runs as it does everywhere else.
"""

import ctypes
import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nki_mlir.bindings import ir, load
from nki_mlir.conversion.control_flow_to_scf import ControlFlowToScf
from nki_mlir.conversion.link_kernels import Linked, link
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.mlir_ops import load_dialects
from nki_mlir.frameworks.registry import Callee, callee_from
from nki_mlir.language.kernel import default_executor
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.transforms.safety import check_safe

TO_LINALG = (
    "builtin.module(func.func(stablehlo-legalize-composite-to-call),inline,symbol-dce,"
    "func.func(chlo-legalize-to-stablehlo),func.func(stablehlo-aggressive-simplification,stablehlo-legalize-to-linalg),"
    "stablehlo-convert-to-signless)")
TO_BUFFERS = (
    "builtin.module(func.func(linalg-fuse-elementwise-ops),canonicalize,cse,empty-tensor-to-alloc-tensor,"
    "one-shot-bufferize{bufferize-function-boundaries=1 allow-return-allocs-from-loops=1 "
    "function-boundary-type-conversion=identity-layout-map},"
    "buffer-results-to-out-params{hoist-static-allocs=1 add-result-attr=1 modify-public-functions=1},"
    "buffer-deallocation-pipeline,canonicalize,cse)")
TO_LLVM = (
    "builtin.module(func.func(convert-linalg-to-loops),expand-strided-metadata,lower-affine,convert-scf-to-cf,"
    "convert-math-to-llvm,convert-math-to-libm,convert-arith-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-cf-to-llvm,reconcile-unrealized-casts)")


class BadModule(NkiMlirError, ValueError):
    code = "NKI-STABLEHLO"
    message = "the StableHLO module cannot be run: {what}"
    fix = "give a module with one public function on tensors of static shape, as jax.jit(f).lower(...).as_text() does"


class BadArguments(NkiMlirError, TypeError):
    code = "NKI-STABLEHLO-ARGUMENTS"
    message = "argument {number} is {found}; @{function} takes {expected}"
    fix = "give one array for each parameter, of its shape and dtype"


_engines: list[Any] = []            # code is never unloaded


class LinkedProgram:
    """A linked and compiled module. Call it with arrays; it returns the list of results."""

    def __init__(self, source: str | bytes) -> None:
        context = graph_context()
        with context, ir.Location.unknown():
            module = read_graph(source, context)
            main = public_function(module)
            self.name = main.attributes["sym_name"].value
            signature = main.attributes["function_type"].value
            self.inputs = [array_type(t) for t in signature.inputs]
            self.outputs = [array_type(t) for t in signature.results]
            linked = link(module)
            self.callees = [callee_from(one.record.config, default_executor()) for one in linked]
            self.statuses = np.zeros(len(linked) + 1, np.int32)
            self.lock = threading.Lock()            # over the statuses
            self.engine = self.compile(module, linked)
        _engines.append(self.engine)
        self.entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup(self.name))

    def compile(self, module: Any, linked: list[Linked]) -> Any:
        for one in linked:
            declare(module, one)
        ControlFlowToScf().run(module)
        run_pipeline(module, TO_LINALG)
        refuse_leftovers(module)
        for k, one in enumerate(linked):
            define(module, one, self.callees[k], self.statuses.ctypes.data + 4 * k)
        run_pipeline(module, TO_BUFFERS)
        copies_to_linalg(module)
        run_pipeline(module, TO_LLVM)
        return load("execution_engine").ExecutionEngine(module, opt_level=3)

    def __call__(self, *arguments: Any) -> list[np.ndarray]:
        if len(arguments) != len(self.inputs):
            raise BadArguments(number=len(arguments), found="missing" if len(arguments) < len(self.inputs) else "extra",
                               function=self.name, expected=f"{len(self.inputs)} arrays")
        arrays = [self.checked(k, value) for k, value in enumerate(arguments)]
        results = [np.empty(shape, dtype) for shape, dtype in self.outputs]
        pointers = (ctypes.c_void_p * (len(arrays) + len(results)))(*(a.ctypes.data for a in (*arrays, *results)))
        first = ctypes.addressof(pointers)
        with self.lock:
            self.statuses[:] = 0
            self.entry((ctypes.c_void_p * len(pointers))(*range(first, first + 8 * len(pointers), 8)))
            failed = np.flatnonzero(self.statuses)
            if len(failed):
                raise self.callees[failed[0]].entry.error(int(self.statuses[failed[0]]))
        return results

    def checked(self, number: int, value: Any) -> np.ndarray:
        array = np.asarray(value, order="C")
        shape, dtype = self.inputs[number]
        if array.shape != shape or array.dtype != dtype:
            raise BadArguments(number=number, found=f"{array.shape} {array.dtype}", function=self.name,
                               expected=f"{shape} {dtype}")
        return array


def run_linked(module: str | bytes, arguments: Sequence[Any]) -> list[np.ndarray]:
    """Run a StableHLO module, text or portable artifact, on arrays; the list of its results."""
    return LinkedProgram(module)(*arguments)


# -- reading -----------------------------------------------------------------------------------------------------------
def graph_context() -> Any:
    """A context with our dialects, StableHLO and its passes."""
    load("_mlir_libs._torchMlir")                   # importing it registers the passes to linalg
    stablehlo = load("_mlir_libs._stablehlo")
    context = ir.Context()
    context.allow_unregistered_dialects = True      # attributes of JAX; operations are checked by ``check_safe``
    load_dialects(context)
    stablehlo.register_dialect(context, load=True)
    stablehlo.register_stablehlo_passes()
    return context


def read_graph(source: str | bytes, context: Any) -> Any:
    """The module of a text or a portable artifact; raises ``BadModule`` or ``UnsafeInput``."""
    try:
        if isinstance(source, bytes):
            module = load("_mlir_libs._stablehlo").deserialize_portable_artifact(context, source)
        else:
            module = ir.Module.parse(source, context)
    except (ir.MLIRError, ValueError) as error:
        raise BadModule(what=f"it does not parse: {str(error).splitlines()[0]}") from None
    check_safe(module)
    if first_operation(module, ("nki.", "nisa.")):
        raise BadModule(what="its kernels are linked already; give the module that has the custom calls")
    return module


def public_function(module: Any) -> Any:
    """The module's one public function."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    public = [f for f in functions if "sym_visibility" not in f.attributes
              or f.attributes["sym_visibility"].value == "public"]
    if len(public) != 1:
        raise BadModule(what=f"it has {len(public)} public functions")
    return public[0]


def array_type(kind: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the arrays for a tensor type."""
    try:
        tensor = ir.RankedTensorType(kind)
        if not tensor.has_static_shape:
            raise ValueError
        element = str(tensor.element_type)
        return tuple(tensor.shape), np.dtype(np.float64) if element == "f64" else BY_MLIR[element].numpy
    except (ValueError, KeyError):
        raise BadModule(what=f"a parameter or result is a {kind}") from None


# -- compiling ---------------------------------------------------------------------------------------------------------
def run_pipeline(module: Any, pipeline: str) -> None:
    try:
        load("passmanager").PassManager.parse(pipeline).run(module.operation)
    except ir.MLIRError as error:
        raise BadModule(what=str(error).splitlines()[0]) from None


def refuse_leftovers(module: Any) -> None:
    """Operations that the passes to linalg do not know."""
    found = first_operation(module, ("stablehlo.", "chlo."))
    if found:
        raise Unsupported(feature=f"'{found}' in a linked module",
                          instead="run this program with jax.jit, where XLA compiles what is around the kernels")


def first_operation(module: Any, prefixes: tuple[str, ...]) -> str | None:
    """The name of the first operation whose name begins so."""
    found: list[str] = []

    def visit(op: Any) -> Any:
        if op.name.startswith(prefixes):
            found.append(op.name)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found[0] if found else None


def named(module: Any, name: str) -> Any:
    return next(op.operation for op in module.body.operations
                if "sym_name" in op.operation.attributes and op.operation.attributes["sym_name"].value == name)


def declare(module: Any, one: Linked) -> None:
    """Leave only the type of a linked kernel: passes over tensors change it, and its body comes when they are done."""
    function = named(module, one.name)
    kind = function.attributes["function_type"]
    for name in (one.name, *one.parts):
        named(module, name).erase()
    with ir.InsertionPoint(module.body):
        ir.Operation.create("func.func", regions=1, attributes={
            "sym_name": ir.StringAttr.get(one.name), "function_type": kind,
            "sym_visibility": ir.StringAttr.get("private")})


def define(module: Any, one: Linked, callee: Callee, status: int) -> None:
    """The function of a linked kernel as a call of its entry, which leaves a status other than 0 at an address."""
    declared = named(module, one.name)
    kind = declared.attributes["function_type"].value
    operands, results = ([str(t).removeprefix("tensor") for t in types] for types in (kind.inputs, kind.results))
    text = native_text(one.name, callee, operands, results, status)
    declared.erase()
    defined = ir.Module.parse(text, module.context)
    with ir.InsertionPoint(module.body):
        for op in defined.body.operations:
            op.operation.clone()


def native_text(name: str, callee: Callee, operands: list[str], results: list[str], status: int) -> str:
    """``operands`` and ``results`` are the types without their first word: ``<4x4xf32>``."""
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
    for place, (kind, n) in enumerate(slots):
        body = (operands if kind == "operand" else results)[n]
        lines += [f"%a{place} = memref.extract_aligned_pointer_as_index %{kind}{n} : memref{body} -> index",
                  f"%c{place} = arith.constant {place} : index",
                  f"memref.store %a{place}, %data[%c{place}] : memref<{len(slots)}xindex>"]
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


def copies_to_linalg(module: Any) -> None:
    """A strided ``memref.copy`` becomes a call of a runtime function that the bindings do not have."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "memref.copy":
            found.append(op)
        return ir.WalkResult.ADVANCE
    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    linalg = load("dialects.linalg")
    for op in found:
        with ir.InsertionPoint(op), op.location:
            linalg.copy(op.operands[0], outs=[op.operands[1]])
        op.erase()
