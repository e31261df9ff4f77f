# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Build nisa-level records for tests, and run them in program order on one array for each buffer."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from nki_mlir.dialects.access import Access, Linear, Tile
from nki_mlir.dialects.isa.instruction import ARITHMETIC
from nki_mlir.dialects.nisa.elementwise import ActivationOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, MemsetOp, TensorCopyOp
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.interpreter.execute import compile_op
from nki_mlir.targets.neuron.codegen.records import (
    Block,
    Branch,
    Code,
    Computed,
    DeviceBuffer,
    InstructionStep,
    Load,
    Loop,
    LoopVariable,
    While,
    value_range,
)

Start = "int | tuple[int, dict]"            # a number, or a number and {value: factor}


class Builder:
    """Makes a ``Code``. A tile is (buffer, first partition, count, free start, count); in HBM rows and columns."""

    def __init__(self, target: str = "trn2") -> None:
        self.code = Code("kernel", machine_named(target), [], Block())
        self.open = [self.code.body]

    # -- memory --------------------------------------------------------------------------------------------------------
    def hbm(self, name, shape, role="local", dtype=FLOAT32):
        index = sum(b.role == role for b in self.code.globals)
        buffer = DeviceBuffer(name, "hbm", shape, dtype, role, index)
        if role != "local":
            self.code.globals.append(buffer)
        else:
            self.open[-1].buffers.append(buffer)
        return buffer

    def on_chip(self, name, shape, space="sbuf", dtype=FLOAT32, address=None):
        buffer = DeviceBuffer(name, space, shape, dtype, address=address, fixed=address is not None)
        self.open[-1].buffers.append(buffer)
        return buffer

    # -- structure -----------------------------------------------------------------------------------------------------
    @contextmanager
    def loop(self, count, start=0, step=1) -> Iterator[LoopVariable]:
        span = range(start, start + count * step, step)
        loop = Loop(LoopVariable("i", span[0], span[-1]), span, Block())
        self.open[-1].nodes.append(loop)
        self.open.append(loop.body)
        yield loop.variable
        self.open.pop()

    @contextmanager
    def while_loop(self, comparison, buffer, limit) -> Iterator[None]:
        """While the first element of a buffer compares so with a number, or with that of another buffer."""
        test, body = Block(), Block()
        sides = [self.load(test, side) if isinstance(side, DeviceBuffer) else side for side in (buffer, limit)]
        self.open[-1].nodes.append(While(test, Computed(comparison, *sides), body))
        self.open.append(body)
        yield
        self.open.pop()

    @staticmethod
    def load(into, buffer) -> LoopVariable:
        access = Access(buffer.dtype, Linear(), Linear(), ((1, 1), (1, 1)))
        variable = LoopVariable("loaded", -1 << 31, (1 << 31) - 1)
        into.nodes.append(Load(variable, Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)))
        return variable

    @contextmanager
    def when(self, condition) -> Iterator[Branch]:
        branch = Branch(condition, Block(), Block())
        self.open[-1].nodes.append(branch)
        self.open.append(branch.then)
        yield branch
        self.open.pop()

    @contextmanager
    def otherwise(self, branch) -> Iterator[None]:
        self.open.append(branch.otherwise)
        yield
        self.open.pop()

    # -- operations ----------------------------------------------------------------------------------------------------
    def step(self, cls: type[Op], symbols: dict | None = None, **fields) -> None:
        op = cls(**fields)
        used = tuple(symbols or ())
        op.symbols, op.ranges = used, tuple(value_range(s) for s in used)
        op.engine = op.runs_on.value
        verify(op)
        self.open[-1].nodes.append(InstructionStep(op))

    def tile(self, symbols: dict, buffer, first, count, free, length, stride=1) -> Tile:
        """``first`` and ``free`` are numbers or (number, {value: factor}); values get numbers in ``symbols``."""
        def form(start):
            const, terms = start if isinstance(start, tuple) else (start, {})
            return Linear(const, tuple((symbols.setdefault(v, len(symbols)), c) for v, c in terms.items()))

        lanes, offset = form(first), form(free)
        if buffer.space == "hbm":
            row = buffer.shape[1]
            offset = offset.plus(lanes, row)
            access = Access(buffer.dtype, None, offset, ((row, count), (stride, length)))
        else:
            access = Access(buffer.dtype, lanes, offset, ((1, count), (stride, length)))
        return Tile(buffer, buffer.space, buffer.shape, buffer.dtype, access, buffer.name)

    def copy(self, dst, src, cls=DmaCopyOp, **fields):
        symbols: dict = {}
        tiles = {"dst": self.tile(symbols, *dst), "src": self.tile(symbols, *src)}
        self.step(cls, symbols, **tiles, **fields)

    def add(self, dst, lhs, rhs, op="add", engine="vector"):
        symbols: dict = {}
        tiles = {n: self.tile(symbols, *t) for n, t in (("dst", dst), ("lhs", lhs), ("rhs", rhs))}
        self.step(TensorTensorOp, symbols, op=op, engine=engine, **tiles)

    def activation(self, dst, src, fn="relu"):
        symbols: dict = {}
        self.step(ActivationOp, symbols, dst=self.tile(symbols, *dst), src=self.tile(symbols, *src), fn=fn)

    def memset(self, dst, value):
        symbols: dict = {}
        self.step(MemsetOp, symbols, dst=self.tile(symbols, *dst), value=float(value))

    def matmul(self, dst, stationary, moving, accumulate=False):
        symbols: dict = {}
        tiles = {n: self.tile(symbols, *t) for n, t in (("dst", dst), ("stationary", stationary), ("moving", moving))}
        self.step(NcMatmulOp, symbols, accumulate=accumulate, **tiles)

    def tensor_copy(self, dst, src, engine="vector"):
        self.copy(dst, src, TensorCopyOp, engine=engine)


def run_in_order(code: Code, arrays: dict[DeviceBuffer, np.ndarray]) -> None:
    """Execute the records one after the other; ``arrays`` has the HBM tensors, on-chip buffers are added."""
    def value(v, values):
        match v:
            case int():
                return v
            case LoopVariable():
                return values[v]
            case Computed():
                return ARITHMETIC[v.op](value(v.lhs, values), value(v.rhs, values))

    def block(body, values):
        for buffer in body.buffers:
            arrays[buffer] = np.full(buffer.shape, np.nan if buffer.dtype.is_float else -1, buffer.dtype.numpy)
        for node in body.nodes:
            match node:
                case InstructionStep():
                    operands = [arrays[t.handle] for _, t in node.op.operands()]
                    compile_op(node.op)(operands, [value(s, values) for s in node.op.symbols])
                case Loop():
                    for i in node.span:
                        block(node.body, {**values, node.variable: i})
                case Load():
                    values[node.variable] = int(arrays[node.tile.handle].reshape(-1)[0])
                case While():
                    inner = dict(values)
                    while block(node.test, inner) or value(node.condition, inner):
                        block(node.body, dict(inner))
                case Branch():
                    block(node.then if value(node.condition, values) else node.otherwise, values)

    block(code.body, {})
