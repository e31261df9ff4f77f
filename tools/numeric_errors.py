# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measure the largest error of each scalar function and conversion on each executor (``make numerics``, minutes).

    python -m tools.numeric_errors [--chunks N]

The arguments are all values of 8 and 16 bits, all pairs of 8-bit values, and 10^7 float32 values: edges, random bits
and numbers of usual sizes. The errors go to ``bench/numeric_errors.json``, from which ``tools/numerics.py`` writes
``docs/numerics.md``.
"""

import argparse
import json
import math
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np

from nki_mlir.cli.runnable import run_module
from nki_mlir.cli.source import read_module
from nki_mlir.diagnostics import NkiMlirError, Unsupported
from nki_mlir.dialects.nki.elementwise import BinaryOp, SelectOp, UnaryOp
from nki_mlir.dialects.nki.movement import CopyOp
from nki_mlir.dialects.op import Op
from nki_mlir.frameworks.stablehlo import LinkedProgram
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import (
    ALL,
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    INT8,
    INT16,
    INT32,
    TFLOAT32,
    UINT8,
    UINT16,
    UINT32,
    DType,
    convert,
)
from nki_mlir.scalar.mathematics import MATH
from nki_mlir.targets.interpreter.execute import compile_op
from tests.dialects.samples import tile
from tests.scalar.exact import BITS, GRAPHS, ONE, TWO
from tests.scalar.samples import EDGES, of_dtype, random_bits

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "numeric_errors.json"
EXECUTORS = ("eager", "interpreter", "jit", "isa")
FLOATS = (FLOAT32, BFLOAT16, FLOAT16, FLOAT8_E4M3, FLOAT8_E4M3FN, FLOAT8_E5M2)
INTEGERS = (INT8, INT16, INT32, UINT8, UINT16, UINT32)
PARTITIONS, CHUNK = 128, 128 * 4096
CHUNKS = 20                     # number of chunks of float32: 10,485,760 values
STABLEHLO = {"log1p": "log_plus_one", "expm1": "exponential_minus_one", "cbrt": "cbrt", "round": "round_nearest_afz",
             "roundeven": "round_nearest_even", "atan2": "atan2"}

Formula = Callable[..., np.ndarray]
Errors = dict[str, float | None]                # executor -> error; None if it refuses the case


@dataclass(frozen=True)
class Case:
    """A function as an operation with attributes, from values of a dtype to another; ``exact`` computes it in float64.
    """

    name: str
    op: type[Op]
    attributes: Mapping[str, str]
    sources: tuple[DType, ...]
    result: DType
    exact: Formula
    absolute: float = 0.0       # subtracted from each distance

    def build(self, free: int) -> Op:
        """Return the operation on tiles of ``free`` elements a partition."""
        labels = [f.name for f in self.op.tiles]
        tiles = {label: tile(f"sbuf {PARTITIONS}x{free}x{dtype.mlir}", label)
                 for label, dtype in zip(labels, (self.result, *self.sources))}
        return self.op(**tiles, **self.attributes)


class Group(NamedTuple):
    """Cases with the same operands, which run as a module, and the operands in chunks."""

    cases: list[Case]
    operands: Callable[[int], Iterator[list[np.ndarray]]]


# -- values ------------------------------------------------------------------------------------------------------------
def every(dtype: DType) -> np.ndarray:
    """Return all values of a dtype of at most 16 bits."""
    if dtype is BOOL:
        return np.array([False, True])
    return np.arange(2**dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)


def float32_values(number: int, seed: int = 0) -> np.ndarray:
    """Return a chunk of float32: random bits, then numbers of usual sizes; the first chunk begins with the edges."""
    rng = np.random.default_rng((number, seed))
    half, quarter, eighth = CHUNK // 2, CHUNK // 4, CHUNK // 8
    chunk = np.concatenate([random_bits(FLOAT32, half, 1 + number + 1000 * seed), rng.uniform(-110, 110, quarter),
                            rng.uniform(-20, 20, eighth), rng.normal(size=eighth)]).astype(np.float32)
    if number == 0:
        chunk[:EDGES.size] = EDGES if not seed else rng.permutation(EDGES)
    return chunk


def singles(dtype: DType) -> Callable[[int], Iterator[list[np.ndarray]]]:
    def operands(chunks: int) -> Iterator[list[np.ndarray]]:
        if dtype.bits <= 16:
            yield [every(dtype)]
        elif dtype is FLOAT32:
            yield from ([float32_values(k)] for k in range(chunks))
        elif dtype is TFLOAT32:
            yield from ([convert(float32_values(k), TFLOAT32)] for k in range(-(-chunks // 5)))
        else:
            yield from ([of_dtype(dtype, CHUNK)[:CHUNK] if not k else random_bits(dtype, CHUNK, k)]
                        for k in range(-(-chunks // 5)))
    return operands


def pairs(dtype: DType) -> Callable[[int], Iterator[list[np.ndarray]]]:
    """Return a function that yields operands: all pairs of 8 bits, each value of 16 bits beside random ones, and chunks
    of wider dtypes."""
    def operands(chunks: int) -> Iterator[list[np.ndarray]]:
        if dtype.bits <= 8:
            all_of = every(dtype)
            yield [np.repeat(all_of, all_of.size), np.tile(all_of, all_of.size)]
        elif dtype.bits <= 16:
            for k in range(max(1, chunks // 5)):
                yield [every(dtype), np.random.default_rng(k).permutation(every(dtype))]
        elif dtype is FLOAT32:
            yield from ([float32_values(k), float32_values(k, 1)] for k in range(chunks))
        else:
            yield from ([random_bits(dtype, CHUNK, k + 1), random_bits(dtype, CHUNK, -k - 1 + 2**20)]
                        for k in range(-(-chunks // 5)))
    return operands


# -- errors ------------------------------------------------------------------------------------------------------------
def error(actual: np.ndarray, exact: np.ndarray, dtype: DType, absolute: float = 0.0) -> float:
    """Return the largest distance from exact values, in units in the last place; for integers, in units of 1.

    Infinity counts as the next value after the largest. The error is infinite if only one of two values is NaN.
    """
    wide = np.longdouble if exact.dtype == np.longdouble else np.float64
    if not dtype.is_float:
        limits = (0, 1) if dtype is BOOL else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
        clipped = np.clip(np.nan_to_num(exact, nan=0.0, posinf=np.inf, neginf=-np.inf), *map(wide, limits))
        return float(np.max(np.abs(actual.astype(wide) - clipped), initial=0))
    largest, smallest = limits_of(dtype)
    top = wide(largest + 2.0**(math.floor(math.log2(largest)) - dtype.mantissa))
    values = actual.astype(wide)
    clipped = np.clip(exact.astype(wide), -top, top)
    if dtype is FLOAT8_E4M3FN:                  # this dtype has NaN instead of infinity
        values = np.where(np.isnan(values) & (np.abs(clipped) >= largest), np.copysign(top, clipped), values)
    if not np.array_equal(np.isnan(values), np.isnan(clipped)):
        return math.inf
    values = np.clip(values, -top, top)
    number = ~np.isnan(clipped)
    _, exponent = np.frexp(clipped[number])
    step = np.maximum(np.ldexp(wide(1), np.clip(exponent - 1, -1000, 1000) - dtype.mantissa), wide(smallest))
    distance = np.maximum(np.abs(values[number] - clipped[number]) - absolute, 0)
    return float(np.max(distance / step, initial=0))


def limits_of(dtype: DType) -> tuple[float, float]:
    """Return the largest value of a dtype, and the step between its smallest values."""
    if dtype is TFLOAT32:
        return float(np.finfo(np.float32).max) * (1 - 2.0**-12), 2.0**-136
    info = ml_dtypes.finfo(dtype.numpy)
    return float(info.max), float(info.smallest_subnormal)


# -- running -----------------------------------------------------------------------------------------------------------
def module_text(cases: Sequence[Case], free: int) -> str:
    """Return a module that loads the operands, and computes and stores each case."""
    def memref(dtype: DType, space: str) -> str:
        return f'memref<{PARTITIONS}x{free}x{dtype.mlir}, "{space}">'

    def access(dtype: DType, space: str) -> str:
        start, step = ("(0)", free) if space == "hbm" else ("(0, 0)", 1)
        return f"#nki.access<{dtype.mlir}, affine_map<() -> {start}>, [[{step}, {PARTITIONS}], [1, {free}]]>"

    def operation(name: str, operands: Sequence[tuple[str, DType, str]], attributes: Mapping[str, str]) -> str:
        words = "".join(f', {key} = "{value}"' for key, value in attributes.items())
        return (f'"{name}"({", ".join(value for value, _, _ in operands)}) '
                f'{{access = [{", ".join(access(d, s) for _, d, s in operands)}], mask = #all{words}}} : '
                f'({", ".join(memref(d, s) for _, d, s in operands)}) -> ()')

    sources = cases[0].sources
    arguments = [f'%x{k}: {memref(d, "hbm")} {{nki.name = "x{k}"}}' for k, d in enumerate(sources)]
    arguments += [f'%o{k}: {memref(c.result, "hbm")} {{nki.name = "o{k}", nki.shared = {k} : i64}}'
                  for k, c in enumerate(cases)]
    results = ", ".join(str(len(sources) + k) for k in range(len(cases)))
    lines = [line for k, d in enumerate(sources)
             for line in (f'%a{k} = memref.alloc() : {memref(d, "sbuf")}',
                          operation("nki.load", [(f"%a{k}", d, "sbuf"), (f"%x{k}", d, "hbm")], {}))]
    loaded = [(f"%a{k}", d, "sbuf") for k, d in enumerate(sources)]
    for k, case in enumerate(cases):
        result_operand = (f"%r{k}", case.result, "sbuf")
        lines += [f'%r{k} = memref.alloc() : {memref(case.result, "sbuf")}',
                  operation(f"nki.{case.op.name}", [result_operand, *loaded], case.attributes),
                  operation("nki.store", [(f"%o{k}", case.result, "hbm"), result_operand], {})]
    return "\n".join(["#all = affine_set<() : (0 == 0)>", 'module attributes {nki.target = "trn3"} {',
                      f'func.func @f({", ".join(arguments)}) attributes {{nki.results = [{results}]}} {{', *lines,
                      "return", "}", "}"])


Program = Callable[[list[np.ndarray]], list[np.ndarray | None]]         # operands -> result of each case


def programs(cases: Sequence[Case], free: int) -> dict[str, Program]:
    """Return a program that runs the cases for each executor."""
    runners = [compile_op(case.build(free)) for case in cases]

    def eager(operands: list[np.ndarray]) -> list[np.ndarray | None]:
        results = [np.zeros(operands[0].shape, case.result.numpy) for case in cases]
        for run, result in zip(runners, results):
            run([result, *operands], ())
        return list(results)
    return {"eager": eager} | {on: compiled(cases, free, on) for on in EXECUTORS[1:]}


def compiled(cases: Sequence[Case], free: int, on: str) -> Program:
    """Compile the cases as a module. Cases that an executor refuses have no result."""
    module = read_module(module_text(cases, free), "cases")

    def run(operands: list[np.ndarray]) -> list[np.ndarray | None]:
        try:
            return [array for _, array in run_module(module, operands, on)]
        except NkiMlirError:
            if len(cases) == 1:
                return [None]
        return [compiled([case], free, on)(operands)[0] for case in cases]
    return run


def measure(group: Group, chunks: int) -> Iterator[tuple[Case, Errors]]:
    """Yield the largest error of each case on each executor."""
    worst: list[Errors] = [{on: 0.0 for on in EXECUTORS} for _ in group.cases]
    cached_programs: dict[int, dict[str, Program]] = {}
    for operands in group.operands(chunks):
        size = -(-operands[0].size // PARTITIONS) * PARTITIONS
        arrays = [np.resize(a, size).reshape(PARTITIONS, -1) for a in operands]
        wide = np.longdouble if operands[0].dtype.itemsize == 8 else np.float64
        with np.errstate(all="ignore"):
            exact = [np.asarray(case.exact(*(a.astype(wide) for a in arrays))).astype(wide) for case in group.cases]
        free = arrays[0].shape[1]
        for on, program in cached_programs.setdefault(free, programs(group.cases, free)).items():
            for case, expected, values, errors in zip(group.cases, exact, program(arrays), worst):
                before = errors[on]
                errors[on] = None if values is None or before is None else max(
                        before, error(values, expected, case.result, case.absolute))
    yield from zip(group.cases, worst)


# -- what is measured --------------------------------------------------------------------------------------------------
def groups() -> Iterator[tuple[str, Group]]:
    """Yield the functions of one and two numbers, of bits, the selection, and the conversions."""
    of_one = [*ACTIVATIONS, *(n for n, op in ALU.items() if op.arity == 1 and op.floats and n not in ACTIVATIONS)]
    two = [n for n, op in ALU.items() if op.arity == 2 and op.floats]
    bits = [op for op in ALU.values() if op.on_bits]
    for d in FLOATS:
        yield "one", Group([Case(n, UnaryOp, {"fn": n}, (d,), d, ONE[n], absolute(n)) for n in of_one], singles(d))
        yield "two", Group([Case(n, BinaryOp, {"op": n}, (d, d), d, TWO[n]) for n in two], pairs(d))
    for d in INTEGERS:
        def of_bits(name: str, d: DType = d) -> Formula:
            return lambda *values: BITS[name](*(v.astype(d.numpy) for v in values))
        yield "bits", Group([Case(op.name, BinaryOp, {"op": op.name}, (d, d), d, of_bits(op.name))
                             for op in bits if op.arity == 2], pairs(d))
        yield "bits", Group([Case("invert", UnaryOp, {"fn": "invert"}, (d,), d, of_bits("invert"))], singles(d))
    for d in (FLOAT32, INT32):
        yield "two", Group([Case("select", SelectOp, {}, (d, d, d), d, lambda c, a, b: np.where(c != 0, a, b))],
                           lambda chunks, d=d: ([a, b, a[::-1].copy()] for a, b in pairs(d)(chunks)))
    for d in ALL:
        yield "conversions", Group([Case(to.name, CopyOp, {}, (d,), to, to_bool if to is BOOL else lambda x: x)
                                    for to in ALL if to is not d], singles(d))


def absolute(name: str) -> float:
    """Return the absolute error that the bound of a function allows near its zeros, in addition to units in the last
    place."""
    return ACTIVATIONS[name].absolute if name in ACTIVATIONS else 0.0


def to_bool(x: np.ndarray) -> np.ndarray:
    return x != 0


def graph_errors(chunks: int) -> dict[str, Errors]:
    """Measure the functions that only graphs have, as programs of StableHLO."""
    errors: dict[str, Errors] = {}
    for name, function in MATH.items():
        if name not in STABLEHLO:
            continue
        shape = f"tensor<{PARTITIONS}x{CHUNK // PARTITIONS}xf32>"
        parameters = [f"%a{k}" for k in range(function.arity)]
        text = (f"func.func @main({', '.join(f'{p}: {shape}' for p in parameters)}) -> {shape} {{\n"
                f"%r = stablehlo.{STABLEHLO[name]} {', '.join(parameters)} : {shape}\nreturn %r : {shape}\n}}")
        errors[name] = {}
        for on in ("jit", "isa"):
            try:
                program = LinkedProgram(text, on)
            except Unsupported:
                errors[name][on] = None
                continue
            errors[name][on] = 0.0
            for k in range(chunks):
                arrays = [float32_values(k, seed).reshape(PARTITIONS, -1) for seed in range(function.arity)]
                with np.errstate(all="ignore"):
                    exact = GRAPHS[name](*(a.astype(np.float64) for a in arrays))
                worst = error(np.asarray(program(*arrays)[0]), exact, FLOAT32)
                errors[name][on] = float(f"{max(worst, errors[name][on] or 0.0):.4g}")
    return errors


def host() -> dict[str, object]:
    """Return the properties of the host that determine the figures: NumPy chooses the form of a function by the
    processor."""
    from numpy._core._multiarray_umath import __cpu_features__ as features  # its record of the processor
    return {"machine": platform.machine(), "numpy": np.__version__,
            "avx512": bool(features.get("AVX512_SKX", False))}


def measured(chunks: int) -> dict[str, object]:
    """Return all figures."""
    figures: dict[str, dict[str, dict[str, Errors]]] = {}
    for title, group in groups():
        source = group.cases[0].sources[0].name
        for case, errors in measure(group, chunks):
            rounded = {on: None if e is None else float(f"{e:.4g}") for on, e in errors.items()}
            figures.setdefault(title, {}).setdefault(case.name, {})[source] = rounded
    return {"host": host(), "values": chunks * CHUNK, "errors": figures, "graphs": graph_errors(chunks)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the errors of scalar functions and conversions.")
    parser.add_argument("--chunks", type=int, default=CHUNKS,
                        help=f"how many chunks of {CHUNK:,} float32 values to compute ({CHUNKS})")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    RESULTS.write_text(json.dumps(measured(options.chunks), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
