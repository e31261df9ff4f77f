# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compare native code with the interpreter, operation by operation, on arrays that overlap.

Outputs that a kernel creates become inputs that it writes, so that any two of its arrays can share memory.
"""

import contextlib
from unittest.mock import patch

import numpy as np

from nki_mlir.analysis.effects import argument_number, effects_of
from nki_mlir.bindings import cloned, ir
from nki_mlir.capture.attempts import Captured, Variant
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import kernel_functions, the_kernel
from nki_mlir.targets import interpreter
from nki_mlir.targets.cpu import lowering
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE
from nki_mlir.targets.runtime import host

LEAST_SIZES = {host: {"WORTH_WAKING": 1}, lowering: {"WORTH_FUSING": 1}}
LEAST_OPTIONS = {"parallelize": "worth=1", "form-products": "worth=1024 depth=64 rows=64 columns=128", "forward-copies": "least=1",
                 "chunk-rows": "large=1 chunk=1024 least=1 shared=1 worth=1", "spread-nests": "worth=1"}


@contextlib.contextmanager
def least_sizes():
    """Optimizations of the JIT at the least sizes."""
    with contextlib.ExitStack() as stack:
        for module, sizes in LEAST_SIZES.items():
            for name, size in sizes.items():
                stack.enter_context(patch.object(module, name, size))
        stack.enter_context(patch.dict(PIPELINE, dict.fromkeys(NAMES, "") | LEAST_OPTIONS))
        yield


def with_outputs_as_inputs(captured):
    """The kernel with every array as an input; those that it made are written by it."""
    variants, modules = {}, {}
    for fixed, variant in captured.variants.items():
        if id(variant.module) not in modules:
            module = cloned(variant.module)
            for kernel in kernel_functions(module):
                marks = [ir.DictAttr.get({a.name: a.attr for a in mark if a.name != "nki.shared"}, module.context)
                         for mark in kernel.op.attributes["arg_attrs"]]
                kernel.op.attributes["arg_attrs"] = ir.ArrayAttr.get(marks, module.context)
            modules[id(variant.module)] = module
        variants[fixed] = Variant(modules[id(variant.module)], [], None, 0)
    return Captured(variants, 0, {})


class AliasedKernel:
    """A captured kernel, on arrays that lie in one memory."""

    def __init__(self, spec):
        captured = with_outputs_as_inputs(spec.captured)
        modules = [v.module for v in captured.variants.values()]            # a function keeps no module alive
        functions = [the_kernel(module) for module in modules]
        self.inputs = functions[0].inputs
        self.written = sorted({a.index for f in functions for value in effects_of(f.op).writes
                               if (n := argument_number(value, f.op.regions[0].blocks[0])) is not None
                               and (a := f.arguments[n]).kind == "input"})
        self.interpreter = interpreter.load(captured, spec.grid)
        with least_sizes():
            self.native = NativeKernel(captured, spec.grid)
            assert not self.native.image.pairs or self.native.for_overlapping     # compiled at the least sizes, too
        self.sizes = [int(np.prod(a.shape)) * a.dtype.itemsize for a in self.inputs]

    def placed(self, pair, offset, arrays):
        """Memory with all arrays, of which the second of a pair begins so many bytes behind the first, and views."""
        starts, end = [], max(0, -offset)
        for k, size in enumerate(self.sizes):
            starts.append(starts[pair[0]] + offset if k == pair[1] else end)
            end = max(end, starts[-1] + size + max(0, -offset))
            end += -end % 64
        memory = np.zeros(end + 64, np.uint8)
        views = [memory[s:s + n].view(a.dtype.numpy).reshape(a.shape)
                 for s, n, a in zip(starts, self.sizes, self.inputs)]
        for view, a in zip(views, self.inputs):
            if a.name in arrays:
                view[...] = arrays[a.name]
        return memory, views

    def run(self, program, pair, offset, arrays):
        """The arrays after a run, or the class of its error."""
        _, views = self.placed(pair, offset, arrays)
        try:
            with np.errstate(all="ignore"):
                program(views, [])
        except NkiMlirError as error:
            return type(error)
        return views

    def difference(self, pair, offset, arrays, tolerance):
        """What the JIT and the interpreter differ in where two arrays overlap; nothing where they agree.

        A kernel that reads its results makes rounding errors larger: by as much as inputs that are rounded differently
        change the results, the two may differ besides.
        """
        expected, got = (self.run(program, pair, offset, arrays) for program in (self.interpreter, self.native))
        if isinstance(expected, type) or isinstance(got, type):
            return "" if expected is got else f"{got}, not {expected}"
        others = None
        for k, (a, one, other) in enumerate(zip(self.inputs, got, expected)):
            same = agree(one, other, tolerance, 0)
            if not same.all() and one.dtype.kind not in "iub":
                others = others or self.run(self.interpreter, pair, offset, {n: jittered(v) for n, v in arrays.items()})
                if isinstance(others, type):
                    continue
                same = agree(one, other, tolerance, largest(others[k], other))
                if not np.isfinite(others[k].astype(np.float64)).all():         # where some overflow is by chance, too
                    same |= ~(np.isfinite(one.astype(np.float64)) & np.isfinite(other.astype(np.float64)))
            if not same.all():
                at = tuple(map(int, np.argwhere(~same)[0]))
                return (f"{a.name} differs in {(~same).sum()} of {same.size} elements, first {at}: {one[at]}, "
                        f"not {other[at]}")
        return ""


def agree(one, other, tolerance, further):
    if one.dtype.kind in "iub":
        return one == other
    x, y = (np.asarray(v, np.float64) for v in (one, other))
    with np.errstate(all="ignore"):
        near = abs(x - y) <= tolerance * (1 + abs(y)) + 16 * further
    return near | (x == y) | (np.isnan(x) & np.isnan(y))


def largest(one, other):
    with np.errstate(all="ignore"):
        apart = abs(np.asarray(one, np.float64) - np.asarray(other, np.float64))
    return apart[np.isfinite(apart)].max(initial=0)


def jittered(array):
    """Some elements of floats are the next ones."""
    if array.dtype.kind in "iub":
        return array
    jittered_copy = array.copy()
    bits = jittered_copy.view(f"u{array.itemsize}")
    with np.errstate(all="ignore"):
        normal = np.isfinite(array.astype(np.float32)) & (array.astype(np.float32) != 0)
    bits[normal & (np.random.default_rng(0).random(array.shape) < 0.1)] ^= 1
    return jittered_copy


def offsets_of(kernel, pair, rng):
    """Where the second array of a pair begins in the first: at its start, and at some other element."""
    item = kernel.inputs[pair[1]].dtype.itemsize
    item = max(item, kernel.inputs[pair[0]].dtype.itemsize)
    size = kernel.sizes[pair[0]] // item
    row = int(kernel.inputs[pair[0]].shape[-1]) if kernel.inputs[pair[0]].shape else 1
    others = [1, -1, row, -row, size // 2, -(size // 2), size - 1]
    return [0, item * int(others[rng.integers(len(others))])]
