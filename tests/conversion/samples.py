# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random operations of every class that has a loop form: shapes, dtypes, patterns, masks, overlap, edge values."""

from dataclasses import dataclass, replace

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Access, Constraint, Linear, Tile
from nki_mlir.dialects.nisa.accumulating import COMMANDS
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.verification import verify
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    DType,
    convert,
)

BINARY = [name for name, op in ALU.items() if op.arity == 2]
REDUCTIONS = [name for name, op in ALU.items() if op.reduce is not None]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 127.0, -128.0, 300.0, 65504.0, 1e-40, 3e38, np.inf, -np.inf, np.nan]
MATRIX = ("matmul", "nc_matmul", "nc_matmul_double_row")
UNMASKED = ("nc_matmul_double_row",)


@dataclass
class Sampler:
    """Makes the tiles of one operation; their handles are the arrays of their buffers.

    With ``alike`` all have one dtype and, where the operation allows it, one memory, so that they can overlap.
    """

    rng: np.random.Generator
    extents: tuple[int, ...] = (3, 4)                   # of the symbols
    alike: bool = False
    common: DType = FLOAT32

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def values(self, count: int, dtype: DType, edges: bool = True) -> np.ndarray:
        numbers = self.rng.standard_normal(count).astype(np.float32) * np.float32(self.rng.choice([1.0, 10.0, 1000.0]))
        if edges:
            numbers[self.rng.random(count) < 0.15] = self.rng.choice(EDGES)
        return convert(numbers, dtype)

    def start(self, p: float = 0.4) -> tuple[Linear, int]:
        """A start and the most that its symbols add to it."""
        const = int(self.rng.integers(0, 4))
        if not self.chance(p):
            return Linear(const), const
        symbol, c = int(self.rng.integers(0, len(self.extents))), int(self.rng.integers(1, 6))
        return Linear(const, ((symbol, c),)), const + c * (self.extents[symbol] - 1)

    def tile(self, shape: tuple[int, ...], dtype: DType, space: str, writes: bool, label: str) -> Tile:
        free = shape[1:] if space != HBM else shape
        steps, span = [0] * len(free), 1
        for k in self.rng.permutation(len(free)) if self.chance(0.3) else reversed(range(len(free))):
            steps[k] = span * int(self.rng.choice([1, 1, 1, 2, 3]))
            span = steps[k] * (free[k] - 1) + steps[k]
            if not writes and self.chance(0.15):
                steps[k] = 0
            elif self.chance(0.1):
                steps[k] = -steps[k]
        low = sum(min(0, s * (n - 1)) for s, n in zip(steps, free))
        high = sum(max(0, s * (n - 1)) for s, n in zip(steps, free))
        offset, reach = self.start()
        offset = offset.plus(Linear(-low))
        row = reach - low + high + 1 + int(self.rng.integers(0, 3))
        base = dtype
        if not self.alike and self.chance(0.15) and dtype is not BOOL:
            base = ALL[self.rng.integers(0, len(ALL) - 1)]
            row = -(-row * dtype.itemsize // 8) * 8 // dtype.itemsize
        width = row * dtype.itemsize // base.itemsize
        dims = list(zip(steps, free))
        partition, partitions = None, 1
        if space != HBM:
            partition, reach = self.start(0.2)
            step = 0 if not writes and self.chance(0.15) else 1
            partitions = reach + (shape[0] - 1) * step + 1
            dims.insert(0, (step, shape[0]))
        array = np.zeros((partitions, width) if space != HBM else (width,), base.numpy)
        memory = np.ndarray(array.nbytes // dtype.itemsize, dtype.numpy, array)
        memory[...] = self.values(memory.size, dtype)
        access = Access(dtype, partition, offset, tuple((int(s), int(n)) for s, n in dims))
        return Tile(array, space, array.shape, base, access, label)

    # -- fields --------------------------------------------------------------------------------------------------------
    def shape(self) -> tuple[int, ...]:
        rank = int(self.rng.integers(1, 4))
        return (int(self.rng.integers(1, 9)), *(int(n) for n in self.rng.integers(1, 7, rank)))

    def linear(self, shape: tuple[int, ...]) -> Linear:
        axes = tuple((k, int(c)) for k, c in enumerate(self.rng.integers(-3, 4, len(shape))) if c)
        symbols = tuple((k, int(c)) for k, c in enumerate(self.rng.integers(-2, 3, len(self.extents))) if c)
        return Linear(int(self.rng.integers(-5, 6)), symbols if self.chance(0.5) else (), axes)

    def shapes(self, cls: type[Op], attributes: dict) -> dict[str, tuple[int, ...]]:
        shape = self.shape()
        if cls.name in MATRIX:
            k, m, n = (int(v) for v in self.rng.integers(1, 9, 3))
            split = (n, 2) if self.chance(0.3) else (n,)
            rows = (k, 2) if cls.name == "nc_matmul_double_row" else (k,)
            return {"dst": (m, *split), "stationary": (*rows, m), "moving": (*rows, *split)}
        if cls.name in ("transpose", "nc_transpose"):
            p, f = (int(v) for v in self.rng.integers(1, 9, 2))
            return {"dst": (f, p), "src": (p, f)}
        if cls.name == "dma_transpose":
            return {"dst": tuple(shape[k] for k in attributes["permutation"]), "src": shape} if len(shape) == len(
                attributes["permutation"]) else self.shapes(cls, attributes)
        if cls.name == "bn_stats":
            return {"dst": (shape[0], 6), "src": shape}
        if cls.name == "bn_aggr":
            return {"dst": (shape[0], 2), "src": (*shape[:-1], 3 * shape[-1])}
        shapes_of_tiles = {f.name: shape for f in cls.tiles}
        if "axes" in cls.attributes:
            shapes_of_tiles["dst"] = tuple(1 if k in attributes["axes"] else n for k, n in enumerate(shape))
        if cls.name == "tensor_partition_reduce":
            shapes_of_tiles["dst"] = (1, *shape[1:])
        accumulates = "reduce_cmd" in cls.attributes
        for name in shapes_of_tiles if accumulates else [n for n in shapes_of_tiles if n == "reduce_res"]:
            if name not in ("dst", "src", "predicate", "on_true"):
                shapes_of_tiles[name] = (shape[0], *(1 for _ in shape[1:]))
        return shapes_of_tiles

    def attribute(self, cls: type[Op], name: str, kind: type) -> object:
        match name:
            case "engine":
                return self.rng.choice([*(e.value for e in cls.engines), "unknown"])
            case "op" if "axes" in cls.attributes or cls.name == "tensor_partition_reduce":
                return self.rng.choice(REDUCTIONS)
            case "reduce_op":
                return self.rng.choice(REDUCTIONS)
            case "reduce_cmd":
                return self.rng.choice(COMMANDS)
            case "comp0" | "comp1":
                return self.rng.choice(["equal", "less", "less_equal", "greater", "greater_equal"])
            case "op0" | "op1" if cls.name == "activate2":
                return self.rng.choice(["multiply", "add", "subtract", "bypass"])
            case "op" | "op0" | "op1":
                return self.rng.choice([*BINARY, "bypass"] if name == "op1" else BINARY)
            case "fn":
                other = ["invert"] if cls.dialect == "nki" else ["prelu"] * (cls.name == "activate2")
                return self.rng.choice([*ACTIVATIONS, *other])
            case "axes":
                axes = tuple(int(k) for k in range(1, 4) if self.chance(0.5))
                return axes or (1,)
            case "permutation":
                return tuple(int(k) for k in self.rng.permutation(self.rng.integers(2, 5)))
        if kind is bool:
            return self.chance(0.5)
        if kind is Linear:
            return None                     # needs the shape
        return float(self.rng.choice([0.0, 1.0, -3.0, 2.5, 100.0, 1e10, float(self.rng.standard_normal())]))

    def dtype(self, cls: type[Op], name: str) -> DType:
        if cls.name == "nc_matmul_double_row":
            return FLOAT32 if name == "dst" else [FLOAT8_E4M3, FLOAT8_E5M2][self.rng.integers(2)]
        if cls.name in MATRIX:
            return FLOAT32 if name == "dst" and self.chance(0.8) else [FLOAT32, BFLOAT16, FLOAT16][self.rng.integers(3)]
        if name in ("accumulator", "highest", "bound0", "bound1"):
            return FLOAT32
        if self.alike:
            return self.common
        return FLOAT32 if self.chance(0.4) else ALL[self.rng.integers(0, len(ALL))]

    def space(self, cls: type[Op], name: str) -> str:
        if cls.name in MATRIX:
            return PSUM if name == "dst" else SBUF
        if (cls.name, name) in (("load", "src"), ("store", "dst")) or (cls.name.startswith("dma") and self.chance(0.5)):
            return HBM
        if self.alike:
            return SBUF
        return PSUM if self.chance(0.2) else SBUF

    def operation(self, cls: type[Op]) -> Op:
        """One that obeys its rules."""
        for _ in range(2000):
            self.common = FLOAT32 if self.chance(0.6) else ALL[self.rng.integers(0, len(ALL))]
            attributes = {n: self.attribute(cls, n, k) for n, k in cls.attributes.items()}
            attributes = {n: str(v) if isinstance(v, np.str_) else v for n, v in attributes.items()}
            shapes = self.shapes(cls, attributes)
            if any(a >= len(shapes["src"]) for a in attributes.get("axes", ())):
                continue
            for name, kind in cls.attributes.items():
                if kind is Linear:
                    attributes[name] = self.linear(shapes["dst"])
            present = [f for f in cls.tiles if not (f.optional and self.chance(0.5))]
            tiles = {f.name: self.tile(shapes[f.name], self.dtype(cls, f.name), self.space(cls, f.name), f.writes,
                                       f.name) for f in present}
            op = cls(symbols=tuple(range(len(self.extents))), ranges=tuple((0, n - 1) for n in self.extents),
                     **tiles, **attributes)
            try:
                verify(op)
                return op
            except KernelError:
                continue
        raise AssertionError(f"no sample of {cls.full_name()} obeys its rules: teach this file its attributes")

    # -- variations ----------------------------------------------------------------------------------------------------
    def masked(self, op: Op) -> Op:
        """With one or two constraints: on one axis, on several, with symbols, equalities."""
        iteration = op.iteration()
        # Complete rows: a mask cannot be on the axes that only results have.
        extents = [n for a, n in enumerate(iteration.extents) if op.is_loop_nest or a not in iteration.reduced]
        constraints = []
        for _ in range(self.rng.integers(1, 3)):
            axes = self.rng.permutation(len(extents))[:self.rng.integers(0, min(3, len(extents)) + 1)]
            coefficients = tuple(sorted((int(a), int(self.rng.choice([-2, -1, 1, 2]))) for a in axes))
            middle = sum(c * extents[a] // 2 for a, c in coefficients)
            symbols = ((0, int(self.rng.choice([-1, 1]))),) if self.chance(0.4) else ()
            form = Linear(int(self.rng.integers(-2, 3)) - middle, symbols, coefficients)
            constraints.append(Constraint(form, self.chance(0.1)))
        op.mask = tuple(constraints)
        return op

    def overlapping(self, op: Op) -> Op | None:
        """The destination moved into the buffer of a source, a little beside it or in the same place."""
        (name, target), fitting = op.targets()[0], []
        for other, tile in op.sources():
            if other == name or (tile.dtype, tile.base_dtype, tile.space) != (target.dtype, tile.dtype, target.space):
                continue
            if len(tile.shape) == len(target.shape) and all(
                    n <= m and (step or n == 1) for n, (step, m) in zip(target.shape, tile.access.dims)):
                fitting.append(tile)
        if not fitting:
            return None
        source = fitting[self.rng.integers(0, len(fitting))]
        dims = [(step or 1, n) for (step, _), n in zip(source.access.dims, target.shape)]
        if len(dims) > 2 and dims[1][1] == dims[2][1] and self.chance(0.3):
            dims[1], dims[2] = dims[2], dims[1]             # transposed in place
        access = Access(source.dtype, source.access.partition, source.access.free, tuple(dims))
        moved = replace(access, free=access.free.plus(Linear(int(self.rng.integers(-2, 3)))))
        (low, high), reach = moved.free.interval(op.ranges), moved.reach()
        inside = low + reach[0] >= 0 and high + reach[1] < source.row
        setattr(op, name, replace(source, access=moved if inside else access, label=name))
        try:
            verify(op)
        except KernelError:
            return None
        return op


def classes() -> list[type[Op]]:
    """Every class that is lowered to a loop form."""
    return [cls for cls in REGISTRY.values() if _has_loop_form(cls)]


def _has_loop_form(cls: type[Op]) -> bool:
    class Kept:
        def keep(self, op: Op) -> bool:
            return True

        def __getattr__(self, name: str) -> object:
            raise LookupError(name)
    try:
        cls.lower(object.__new__(cls), Kept())
    except (LookupError, AttributeError):
        return True
    return False
