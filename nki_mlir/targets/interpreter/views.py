# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of buffers: memrefs with a strided layout, which are (array, offset in elements) at run time.

The array is the whole buffer; sizes and strides are static and come from the type. Nothing is formed before the
elements are accessed, because a view may name elements outside of its buffer that a mask takes out.
"""

from collections.abc import Sequence

import numpy as np

from nki_mlir.bindings import Operation, Type, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.buffer_types import element_dtype, memref_parts
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.dialects.view import start_of
from nki_mlir.targets.interpreter.module import Env, FunctionCompiler, Step, executes
from nki_mlir.waist.reader import layout_of


def buffer_of(value: object) -> tuple[np.ndarray, int]:
    """The array and the offset behind a memref's run-time value."""
    return value if type(value) is tuple else (value, 0)


class IterationWindow:
    """How an iteration space reads or writes a memref: an offset and a stride per iteration axis, in elements.

    ``axes`` are those that its subscripts use.
    """

    def __init__(self, kind: Type, label: str, steps: Sequence[int], start: int, axes: frozenset[int]) -> None:
        layout = layout_of(kind)
        self.sizes, self.dtype = layout.sizes, layout.dtype.numpy
        self.label, self.steps, self.start, self.axes = label, steps, start, axes

    def view(self, memref: object, starts: Sequence[int], counts: Sequence[int], axes: Sequence[int]) -> np.ndarray:
        """The elements of a box of the iteration space along ``axes``; a negative axis is a dim of extent 1."""
        array, offset = buffer_of(memref)
        offset += self.start
        for s, step in zip(starts, self.steps):
            offset += s * step
        shape = tuple([counts[a] if a >= 0 else 1 for a in axes])
        steps = [self.steps[a] if a >= 0 else 0 for a in axes]
        low = high = offset
        for n, step in zip(shape, steps):
            if step > 0:
                high += (n - 1) * step
            else:
                low += (n - 1) * step
        self.check(array, low, high)
        size = self.dtype.itemsize
        return np.ndarray(shape, self.dtype, array, offset * size, [step * size for step in steps])

    def elements(self, memref: object, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The whole buffer in one dimension, and the places of the given positions ``[rank, n]`` in it."""
        array, offset = buffer_of(memref)
        places = offset + self.start + np.dot(self.steps, positions)
        if places.size:
            self.check(array, int(places.min()), int(places.max()))
        return np.ndarray(array.nbytes // self.dtype.itemsize, self.dtype, array), places

    def check(self, array: np.ndarray, low: int, high: int) -> None:
        extent = array.nbytes // self.dtype.itemsize
        if low < 0 or high >= extent:
            raise OutOfBounds(tensor=self.label, dim="0 (flat)", low=low, high=high, extent=extent)


def full_window(kind: Type, label: str) -> IterationWindow:
    """A memref as the iteration space of its own dims."""
    strides = layout_of(kind).strides
    return IterationWindow(kind, label, strides, 0, frozenset(range(len(strides))))


# -- operations --------------------------------------------------------------------------------------------------------
@executes("memref.reinterpret_cast", "memref.subview", "nki.view")
def _view(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    layout_of(op.results[0].type)
    start, terms = start_of(op)
    given = [(code.slot(value), c) for value, c in terms]
    is_part = op.name == "memref.subview"           # others count from the start of the buffer

    def run(env: Env) -> None:
        array, offset = buffer_of(env[source])
        env[out] = array, (offset if is_part else 0) + start + sum([int(env[slot]) * c for slot, c in given])
    return run


@executes("memref.cast", "memref.transpose", "memref.expand_shape", "memref.collapse_shape", "memref.memory_space_cast")
def _same_start(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    layout_of(op.results[0].type)
    return lambda env: env.__setitem__(out, env[source])


@executes("nki.reinterpret")
def _reinterpret(code: FunctionCompiler, op: Operation) -> Step:
    source, out = code.slot(op.operands[0]), code.slot(op.results[0])
    shape, dtype, _ = memref_parts(op.results[0].type)
    return lambda env: env.__setitem__(out, np.ndarray(shape, dtype.numpy, env[source]))


@executes("memref.load", "memref.store")
def _element(code: FunctionCompiler, op: Operation) -> Step:
    loads = op.name == "memref.load"
    memref, *subscripts = list(op.operands)[0 if loads else 1:]
    window, place = full_window(memref.type, op.name), code.slot(memref)
    at, scalar = [code.slot(v) for v in subscripts], code.slot(op.results[0] if loads else op.operands[0])
    sizes = window.sizes

    def run(env: Env) -> None:
        starts = [int(env[s]) for s in at]
        for dim, (i, n) in enumerate(zip(starts, sizes)):
            if not 0 <= i < n:
                raise OutOfBounds(tensor=window.label, dim=dim, low=i, high=i, extent=n)
        element = window.view(env[place], starts, sizes, ())
        if loads:
            env[scalar] = element[()]
        else:
            element[()] = env[scalar]
    return code.located(op, run)


@executes("linalg.fill", "linalg.copy", "memref.copy")
def _copy(code: FunctionCompiler, op: Operation) -> Step:
    source, target = op.operands[0], op.operands[1]
    out, to, frm = full_window(target.type, op.name), code.slot(target), code.slot(source)
    rank = len(out.sizes)
    zeros, axes = (0,) * rank, range(rank)
    if op.name == "linalg.fill":
        if element_dtype(source.type) is not element_dtype(ir.MemRefType(target.type).element_type):
            raise Unsupported(feature=f"'linalg.fill' of {target.type} with a {source.type}",
                              instead="convert it first")

        def fill(env: Env) -> None:
            out.view(env[to], zeros, out.sizes, axes)[...] = env[frm]
        return code.located(op, fill)
    into = full_window(source.type, op.name)
    if into.dtype != out.dtype:
        raise Unsupported(feature=f"'{op.name}' between {source.type} and {target.type}",
                          instead="convert the elements")

    def copy(env: Env) -> None:
        out.view(env[to], zeros, out.sizes, axes)[...] = into.view(env[frm], zeros, out.sizes, axes)
    return code.located(op, copy)
