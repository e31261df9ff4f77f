# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads a kernel function of the waist and writes the machine's program for it.

Loops and branches become the machine's, structured operations calls of routines, views nothing: an address is a linear
form of slots. Index arithmetic that is linear costs nothing either.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import Location, Unsupported
from nki_mlir.dialects.access import Constraint, Linear
from nki_mlir.dialects.attributes import read_linear
from nki_mlir.dialects.buffer_types import global_array
from nki_mlir.dialects.kernel_function import KernelFunction
from nki_mlir.dialects.mlir_ops import is_tile_op
from nki_mlir.dialects.places import place_of
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.host_operations import HostOperations
from nki_mlir.targets.cpu.independence import Access, independent
from nki_mlir.targets.cpu.limits import SITE_BITS, Limits
from nki_mlir.targets.cpu.nests import Nest
from nki_mlir.targets.cpu.program import (
    CODE,
    FIRST_ID,
    MEMORY,
    SELF,
    Address,
    Assembly,
    Extent,
    Instruction,
    slot_address,
    slot_value,
)
from nki_mlir.targets.cpu.storage import Buffer, Lifetimes
from nki_mlir.targets.cpu.structured import DYNAMIC, Reader, Structured
from nki_mlir.targets.cpu.upstream import NAMES

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
ARITHMETIC = {"arith.addi", "arith.subi", "arith.muli", "arith.andi", "arith.ori", "arith.xori", "arith.minsi",
              "arith.maxsi"}
SAME_MEMORY = {"nki.reinterpret", "memref.cast", "memref.transpose", "memref.collapse_shape", "memref.expand_shape",
               "memref.memory_space_cast"}          # the result's type has the layout


WORTH_WAKING = 50_000               # nanoseconds of work below which the pool's threads are not asked


@dataclass(frozen=True)
class View:
    """A memref: its address in bytes, and its memory: a buffer of this program, or something that stands for others."""

    address: Linear
    root: Any


@dataclass
class Sites:
    """The places that can fail, by number from 1 on. The number has few bits: those beyond share the last."""

    places: list[Location | None]

    def add(self, place: Location | None) -> int:
        if len(self.places) < (1 << SITE_BITS) - 1:
            self.places.append(place)
        return len(self.places)


class Assembler:
    """One function. ``hosts`` and ``sites`` are shared by all functions of a kernel."""

    def __init__(self, kernel: KernelFunction, axes: int, reader: Reader, hosts: HostOperations, sites: Sites) -> None:
        self.reader, self.hosts, self.sites = reader, hosts, sites
        self.kernel = kernel
        inputs = len(kernel.inputs)
        self.code = Assembly(FIRST_ID + axes + inputs + len(kernel.shared))
        self.lives = Lifetimes()
        self.forms: dict[Any, Linear] = {}          # index and i1 values
        self.views: dict[Any, View] = {}            # memrefs
        self.memory = MEMORY
        self.globals: list[np.ndarray] = []         # arrays whose addresses are in the program
        self.cost = 0.0                             # of one run, in nanoseconds, roughly
        self.times = 1                              # how often the current block runs
        self.parallel = False                       # whether the program uses the pool
        self.ranges: dict[int, tuple[int, int]] = {}        # of loop variables, by slot
        self.accesses: list[Access] | None = None   # of the parallel loop that is being written
        self.block = kernel.op.regions[0].blocks[0]
        for argument, spec in zip(self.block.arguments, kernel.arguments):
            match spec.kind:
                case "program_id":
                    self.forms[argument] = slot_value(FIRST_ID + spec.place)
                case "shared":
                    self.views[argument] = View(slot_value(FIRST_ID + axes + inputs + spec.place), spec.name)
                case _:
                    self.views[argument] = View(slot_value(FIRST_ID + axes + spec.place), spec.name)

    def assemble(self) -> Assembly:
        operations: list[Any] = []

        def visit(op: Any) -> Any:
            operations.append(op)
            return ir.WalkResult.ADVANCE
        self.kernel.op.walk(visit, ir.WalkOrder.PRE_ORDER)
        self.body(iter(operations[1:]))
        self.code.items.append(None)
        return self.code

    def body(self, operations: Iterator[Any]) -> None:
        """The operations of one block, up to its terminator. Operations inside others follow them in the sequence."""
        for op in operations:
            name = op.name
            if name in ("scf.yield", "func.return"):
                return
            if name == "scf.for":
                self.loop(op, operations)
            elif name == "scf.if":
                self.branch(op, operations)
            elif name in ("linalg.generic", "linalg.fill"):
                self.computation(op, self.reader.read(op))
                for inner in operations:
                    if inner.name == "linalg.yield":
                        break
            elif name == "memref.copy":
                self.computation(op, self.reader.copy(op))
            elif is_tile_op(op):
                self.on_host(op)
            else:
                self.simple(op)

    # -- structure -----------------------------------------------------------------------------------------------------
    def loop(self, op: Any, operations: Iterator[Any]) -> None:
        if len(op.results):
            raise Unsupported(feature="a loop that carries values on the CPU", instead="keep them in a buffer"
                              ).located(place_of(op))
        low, high, step = (self.form(v) for v in op.operands)
        static = not (low.symbols or high.symbols or step.symbols)
        span = range(low.const, high.const, step.const) if static else None
        memory, variable = self.code.slot(), self.code.slot()
        self.forms[op.regions[0].blocks[0].arguments[0]] = slot_value(variable)
        if span:
            self.ranges[variable] = span[0], span[-1]
            if len(span) > 1 and self.accesses is None and _is_parallel(op):
                return self.parallel_loop(operations, span, memory, variable)
        outer, self.times = self.times, self.times * (len(span) if span else 1)
        again, end = self.code.label(), self.code.label()
        self.code.emit("nki_set", slot_address(variable), low)
        if not span:
            self.code.emit("nki_unless", self.compute("cmpi_slt", low, high), end)
        self.code.mark(again)
        self.inside(operations)
        self.code.emit("nki_next", slot_address(variable), step, high, again)
        self.code.mark(end)
        self.times = outer
        return None

    def inside(self, operations: Iterator[Any]) -> None:
        """A nested block. Buffers from outside that it uses live on until it has ended, one instruction later."""
        self.lives.open()
        self.body(operations)
        self.lives.close(len(self.code.items))

    def parallel_loop(self, operations: Iterator[Any], span: range, memory: int, variable: int) -> None:
        """A loop whose iterations run on the pool, if they are independent and worth it; else one like the others.

        The body is the same in both cases, so it is written first: two items before it and two after it decide.
        """
        start, end = self.code.label(), self.code.label()
        head = len(self.code.items)
        self.code.items += [None, start]
        outside, self.memory, self.accesses = self.memory, memory, []
        cost, self.times, hosts = self.cost, self.times * len(span), len(self.hosts.runners)
        self.inside(operations)
        private = {buffer for buffer, where in self.code.buffers if where == memory}
        if (self.cost - cost >= WORTH_WAKING and len(self.hosts.runners) == hosts
                and independent(self.accesses, variable, span.step, self.ranges, private)):
            first = Instruction("nki_parallel", (
                slot_value(SELF), slot_value(CODE), start, Linear(variable), Linear(span[0]), Linear(span.step),
                Linear(len(span)), Extent(), Extent(memory), end))
            self.code.items.append(None)
            self.parallel = True
        else:
            self.code.move(memory, outside)
            first = Instruction("nki_set", (slot_address(variable), Linear(span[0])))
            self.code.emit("nki_next", slot_address(variable), Linear(span.step), Linear(span.stop), start)
        self.code.items[head] = first
        self.code.mark(end)
        self.memory, self.accesses, self.times = outside, None, self.times // len(span)

    def branch(self, op: Any, operations: Iterator[Any]) -> None:
        if len(op.results):
            raise Unsupported(feature="a branch that gives values on the CPU", instead="keep them in a buffer"
                              ).located(place_of(op))
        otherwise, end = self.code.label(), self.code.label()
        has_else = len(op.regions[1].blocks) > 0
        self.code.emit("nki_unless", self.form(op.operands[0]), otherwise)
        self.inside(operations)
        if has_else:
            self.code.emit("nki_unless", Linear(), end)
        self.code.mark(otherwise)
        if has_else:
            self.inside(operations)
        self.code.mark(end)

    # -- index values --------------------------------------------------------------------------------------------------
    def form(self, value: Any) -> Linear:
        if value not in self.forms:
            raise Unsupported(feature="an index that is computed from other values on the CPU",
                              instead="compute it from loop variables and program ids")
        return self.forms[value]

    def compute(self, name: str, a: Linear, b: Linear) -> Linear:
        """A value that is not linear, computed into a slot of its own."""
        slot = self.code.slot()
        self.code.emit(f"nki_{name}", slot_address(slot), a, b)
        return slot_value(slot)

    def affine(self, e: Any, operands: list[Linear], dims: int) -> Linear:
        match e:
            case ir.AffineModExpr():
                return self.compute("mod", self.affine(e.lhs, operands, dims), read_linear(e.rhs))
            case ir.AffineFloorDivExpr():
                return self.compute("floordiv", self.affine(e.lhs, operands, dims), read_linear(e.rhs))
            case ir.AffineCeilDivExpr():
                negative = Linear().plus(self.affine(e.lhs, operands, dims), -1)
                return Linear().plus(self.compute("floordiv", negative, read_linear(e.rhs)), -1)
            case ir.AffineAddExpr():
                return self.affine(e.lhs, operands, dims).plus(self.affine(e.rhs, operands, dims))
            case ir.AffineMulExpr():
                left, right = self.affine(e.lhs, operands, dims), self.affine(e.rhs, operands, dims)
                return self.product(left, right)
            case ir.AffineConstantExpr():
                return Linear(e.value)
            case ir.AffineDimExpr():
                return operands[e.position]
            case ir.AffineSymbolExpr():
                return operands[dims + e.position]
        raise Unsupported(feature=f"the affine expression {e}", instead="use sums, products, mod and floordiv")

    def product(self, a: Linear, b: Linear) -> Linear:
        if not b.symbols:
            return Linear().plus(a, b.const)
        return Linear().plus(b, a.const) if not a.symbols else self.compute("muli", a, b)

    def arithmetic(self, op: Any) -> Linear:
        a, b = (self.form(v) for v in op.operands)
        match op.name:
            case "arith.addi":
                return a.plus(b)
            case "arith.subi":
                return a.plus(b, -1)
            case "arith.muli":
                return self.product(a, b)
            case "arith.cmpi":
                return self.compute(f"cmpi_{PREDICATES[op.attributes['predicate'].value]}", a, b)
        return self.compute(op.name.removeprefix("arith."), a, b)

    # -- memory --------------------------------------------------------------------------------------------------------
    def use(self, value: Any) -> View:
        view = self.views[value]
        if isinstance(view.root, Buffer):
            self.lives.use(view.root, len(self.code.items))
        return view

    def simple(self, op: Any) -> None:
        """An operation that makes one value and no computation on tiles."""
        match op.name:
            case "arith.constant":
                if isinstance(op.results[0].type, ir.IndexType | ir.IntegerType):
                    self.forms[op.results[0]] = Linear(int(op.attributes["value"].value))
            case "affine.apply":
                mapping = op.attributes["map"].value
                operands = [self.form(v) for v in op.operands]
                self.forms[op.results[0]] = self.affine(mapping.results[0], operands, mapping.n_dims)
            case "memref.alloc" | "memref.alloca":
                dtype, shape, _ = self.reader.layout(op.results[0].type)
                address, buffer = self.code.allocate(prod(shape) * dtype.itemsize, self.memory, self.lives.depth)
                self.views[op.results[0]] = View(address, buffer)
            case "memref.get_global":
                array = np.ascontiguousarray(global_array(op))
                self.globals.append(array)
                self.views[op.results[0]] = View(Linear(array.ctypes.data), "constants")
            case "memref.reinterpret_cast" | "memref.subview":
                self.views[op.results[0]] = self.part(op)
            case name if name in SAME_MEMORY:
                self.views[op.results[0]] = self.views[op.operands[0]]
            case "arith.index_cast":
                self.forms[op.results[0]] = self.form(op.operands[0])
            case name if (name in ARITHMETIC or name == "arith.cmpi") and op.operands[0] in self.forms:
                self.forms[op.results[0]] = self.arithmetic(op)
            case name if name in NAMES or name.startswith("scalar.") or name == "memref.dealloc":
                pass                    # scalars outside of bodies are read with the body that uses them
            case name:
                raise Unsupported(feature=f"'{name}' on the CPU", instead="lower to the nki, waist or nisa level"
                                  ).located(place_of(op))

    def part(self, op: Any) -> View:
        """A view of a memref: the offset is in elements, in steps of the source for a subview."""
        source = self.views[op.operands[0]]
        dtype, _, strides = self.reader.layout(op.operands[0].type)
        dynamic = iter(list(op.operands)[1:])
        offset = Linear()
        for step, static in zip(strides if op.name == "memref.subview" else (1,), op.attributes["static_offsets"]):
            offset = offset.plus(self.form(next(dynamic)) if static == DYNAMIC else Linear(static), step)
        return View(source.address.plus(offset, dtype.itemsize), source.root)

    # -- computations --------------------------------------------------------------------------------------------------
    def computation(self, op: Any, read: Structured) -> None:
        symbols = [self.form(v) for v in read.symbols]
        if read.limits:
            self.check(op, read, symbols)
        views = [self.use(v) for v, _ in read.views]
        places = [view.address.plus(Linear(start)) if start else view.address
                  for view, (_, start) in zip(views, read.views)]
        self.cost += self.times * read.nest.cost
        parts = read.nest.parts(host.threads(), 4 * host.threads()) if self.is_large(read.nest) else None
        if parts is None:
            self.code.emit(read.nest, *places, *symbols)
        else:
            self.spread(read.nest, *parts, places, symbols)
        if self.accesses is not None:
            roots = [view.root for view in views]
            self.accesses += [Access(root, place, *read.nest.reach(k), k >= len(read.nest.inputs))
                              for k, (root, place) in enumerate(zip(roots, places))]

    def is_large(self, nest: Nest) -> bool:
        """Whether one operation is worth several threads, which nothing around it uses."""
        alone = self.accesses is None and prod(self.kernel.grid) == 1
        return alone and nest.cost >= WORTH_WAKING and host.threads() > 1

    def spread(self, nest: Nest, part: Nest, count: int, extent: int, places: list[Linear], symbols: list[Linear]
               ) -> None:
        """The parts of a large operation, on the pool."""
        steps = [o.strides[0] * extent * o.dtype.itemsize for o in nest.operands] + [0] * len(symbols)
        given = [n for value, step in zip((*places, *symbols), steps) for n in (value, Linear(step))]
        self.code.emit("nki_spread", Address(part), Linear(count), Linear(len(steps)), *given)
        self.parallel = True

    def check(self, op: Any, read: Structured, symbols: list[Linear]) -> None:
        """The bounds that were left to run time, before the operation runs."""
        site = Linear(self.sites.add(place_of(op)))
        if read.mask:
            routine = Limits(read.extents, read.mask, read.limits, len(symbols))
            self.code.emit(routine, *symbols, site)
            return
        for constraint in read.limits:
            self.code.emit("nki_check", _least(constraint, read.extents, symbols), site)

    def on_host(self, op: Any) -> None:
        site = self.sites.add(place_of(op))
        values = self.hosts.add(site, op)
        arguments = [self.use(v).address if v in self.views else self.form(v) for v in values]
        self.code.emit(self.hosts.address, Linear(site), *arguments)


def _is_parallel(op: Any) -> bool:
    return "nki.loop" in op.attributes and op.attributes["nki.loop"].value == "parallel"


def _least(constraint: Constraint, extents: tuple[int, ...], symbols: list[Linear]) -> Linear:
    """The lowest value of a form over all elements, as a form of slots."""
    form = constraint.form
    least = Linear(form.const + sum(min(0, c * (extents[axis] - 1)) for axis, c in form.axes))
    for position, c in form.symbols:
        least = least.plus(symbols[position], c)
    return least
