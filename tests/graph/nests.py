# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations of graphs on buffers in HBM, as text, with their meaning in NumPy, and what the placement emits for them."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.bindings import ir, operations_of
from nki_mlir.conversion import tile_and_place
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.machine import Machine, machine_named
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.targets.interpreter.module import compile_function

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "i32": np.int32}
Axes = tuple[int, ...]


@dataclass(frozen=True)
class Operation:
    """``result[output] = body(inputs, old)`` over axes of these extents.

    ``inputs`` and ``output`` are the axes that index each buffer, in order. ``body`` has the arguments %p0, %p1, ...
    and %old, of ``kind``, and defines ``result``; ``meaning`` computes it from arrays over all axes, without the old value.
    Reduced axes are those that ``output`` lacks. ``start`` fills the output first.
    """

    extents: tuple[int, ...]
    inputs: tuple[Axes, ...]
    output: Axes
    kind: str
    body: str
    meaning: Callable[..., np.ndarray]
    fold: str = ""
    start: float | None = None
    result: str = "new"
    padding: tuple[int, ...] = ()           # elements before each row of an input

    @property
    def reduced(self) -> set[int]:
        return {*range(len(self.extents))} - {*self.output}

    def shape(self, axes: Axes) -> list[int]:
        return [self.extents[a] for a in axes]

    def before_rows(self, number: int) -> int:
        return self.padding[number] if self.padding and self.inputs[number] else 0

    def padded(self, number: int) -> list[int]:
        """Return the shape of an input's buffer."""
        shape = self.shape(self.inputs[number])
        return [*shape[:-1], *(n + self.before_rows(number) for n in shape[-1:])]

    @property
    def text(self) -> str:
        arguments, lines, views = [], [], []
        for k, axes in enumerate(self.inputs):
            shape, more = self.shape(axes), self.before_rows(k)
            arguments.append(f"%a{k}: {memref(self.padded(k), self.kind)}")
            views.append((f"%a{k}", memref(shape, self.kind)))
            if more:
                steps = [prod(shape[d + 1:-1]) * (shape[-1] + more) if d + 1 < len(shape) else 1
                         for d in range(len(shape))]
                kind = memref(shape, self.kind, f"strided<{steps}, offset: {more}>, ")
                lines.append(f"%v{k} = memref.subview %a{k}[{', '.join(['0'] * (len(shape) - 1) + [str(more)])}] "
                             f"{shape} {[1] * len(shape)} : {arguments[-1].split(': ')[1]} to {kind}")
                views[-1] = (f"%v{k}", kind)
        result = memref(self.shape(self.output), self.kind)
        if self.start is not None:
            number = repr(float(self.start)) if self.kind != "i32" else str(int(self.start))
            lines += [f"%c = arith.constant {number} : {self.kind}",
                      f"linalg.fill ins(%c : {self.kind}) outs(%r : {result})"]
        names = ", ".join(f"d{a}" for a in range(len(self.extents)))
        maps = ", ".join(f"affine_map<({names}) -> ({', '.join(f'd{a}' for a in axes)})>"
                         for axes in (*self.inputs, self.output))
        kinds = ", ".join('"reduction"' if a in self.reduced else '"parallel"' for a in range(len(self.extents)))
        block = ", ".join([*(f"%p{k}: {self.kind}" for k in range(len(views))), f"%old: {self.kind}"])
        ins = f"ins({', '.join(v for v, _ in views)} : {', '.join(t for _, t in views)})" if views else ""
        lines.append(f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}} {ins} "
                     f"outs(%r : {result}) {{\n^bb0({block}):\n{self.body}\nlinalg.yield %{self.result} : {self.kind}\n}}")
        return (f"func.func @k({', '.join([*arguments, f'%r: {result} {{nki.shared = 0 : i64}}'])}) "
                f"attributes {{nki.results = [{len(arguments)}]}} {{\n" + "\n".join(lines) + "\nreturn\n}")

    def arrays(self, random: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray]:
        """Return random inputs with their padding, and what the output has before."""
        def integers(shape: list[int]) -> np.ndarray:
            return np.asarray(random.integers(-2, 3, shape)).astype(DTYPES[self.kind])
        return [integers(self.padded(k)) for k in range(len(self.inputs))], integers(self.shape(self.output))

    def expected(self, inputs: Sequence[np.ndarray], before: np.ndarray) -> np.ndarray:
        wide = np.int32 if self.kind == "i32" else np.float32
        over_all = []
        for k, (array, axes) in enumerate(zip(inputs, self.inputs, strict=True)):
            if self.before_rows(k):
                array = array[..., self.before_rows(k):]
            order = sorted(range(len(axes)), key=lambda d: axes[d])
            shape = [n if a in axes else 1 for a, n in enumerate(self.extents)]
            over_all.append(array.astype(wide).transpose(order).reshape(shape))
        values = np.broadcast_to(self.meaning(*over_all), self.extents).astype(wide)
        old = np.full_like(before, self.start) if self.start is not None else before
        kept = sorted(self.output)
        order = [kept.index(a) for a in self.output]
        if self.fold:
            ufunc = getattr(np, self.fold)
            folded = ufunc.reduce(values, axis=tuple(self.reduced)) if self.reduced else values
            return ufunc(old.astype(wide), folded.transpose(order)).astype(before.dtype)
        return values.transpose(order).astype(before.dtype)


def memref(shape: Sequence[int], kind: str, layout: str = "") -> str:
    return f"memref<{''.join(f'{n}x' for n in shape)}{kind}, {layout}\"hbm\">"


def placed(text: str, monkeypatch: pytest.MonkeyPatch, machine: Machine | None = None) -> ir.Module:
    """Return the module after the placement for a machine."""
    if machine is not None:
        monkeypatch.setattr(tile_and_place, "machine_named", lambda name: machine)
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("tile-and-place")])
    return module


def run(module: ir.Module, inputs: Sequence[np.ndarray], before: np.ndarray) -> np.ndarray:
    result = before.copy()
    compile_function(the_kernel(module))((), [*inputs], [result])
    return result


def steps(module: ir.Module) -> str:
    """Return what the placement emitted, each with the shape of the tile and with its count."""
    counts: Counter[str] = Counter()
    for op in operations_of(module, lambda name: name in ("linalg.generic", "linalg.fill")):
        kinds = [ir.MemRefType(v.type) for v in op.operands if isinstance(v.type, ir.MemRefType)]
        *sources, target = ["hbm" if k.memory_space is None else k.memory_space.value for k in kinds]
        shape = "x".join(map(str, kinds[-1].shape))
        turned = "affine_map<(d0, d1) -> (d1, d0)>" in str(op.attributes["indexing_maps"]) if sources else False
        name = ("fill" if not sources else "load" if sources == ["hbm"] and target != "hbm" else
                "store" if target == "hbm" and sources != ["hbm"] else "copy" if target == "hbm" else
                "transpose" if turned else "multiply" if target == "psum" else "compute")
        counts[f"{name} {shape}"] += 1
    return ", ".join(f"{n} {step}" if n > 1 else step for step, n in counts.items())


def small_machine(**changes: int) -> Machine:
    return replace(machine_named("trn2"), **changes)
