# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs of each entry, drawn from the op classes and the writers of random programs, some of them then damaged.

Modules of the nki and nisa levels are one operation of a class with tiles of drawn sizes and attributes of their types;
assembly and binaries are random streams; kernels are those of the random programs, and configs those of a kernel.
Damage keeps the properties that a reader checks first: brackets stay in pairs, types agree with each other, and
checksums and keys are computed anew, so that inputs reach the rules behind these checks.
"""

import ast
import base64
import hashlib
import json
import random
import re
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nki_mlir.bindings import ir
from nki_mlir.cli.source import read_module
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.frameworks.registry import PlainResults, record_of
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.scalar.dtypes import BY_MLIR
from nki_mlir.targets.neuron import disassemble
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.container import assembled, encode_program, split

from ..dialects.samples import SAMPLES, module_text
from ..random_graphs.kernels import by_rows, doubled_plus
from ..random_programs import beta_rules, current_rules  # noqa: F401
from ..random_programs.beta import BetaWriter
from ..random_programs.current import CurrentWriter
from ..random_programs.modules import ModuleWriter
from ..random_programs.writer import Program
from ..scoring.mutations import Mutation
from ..targets.neuron.random_code import RandomCode

DAMAGED = 0.8           # of modules that are drawn as a whole; the others have another size, and most of these run
POOL = 60               # random programs that several inputs are drawn from
SORTED = 256            # elements of a sort that is drawn as often as others
USUAL = 1 << 16         # elements of the largest tensor of a module that is drawn as often as others
ROOT = Path(__file__).resolve().parent.parent.parent
NUMBER = re.compile(r"(?<![\w.%@#!x])-?\d+(?![\w.x])")
EDGES = (0, 1, 2, 7, 127, 128, 129, 511, 512, 2048, 32767, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63)
WORDS = ("add", "subtract", "multiply", "max", "minimum", "divide", "exp", "rsqrt", "vector", "scalar", "tensor",
         "gpsimd", "logical_and", "abs_max", "bypass", "is_gt", "", "nothing")


def number(rng: random.Random, near: int) -> int:
    return rng.choice([near + 1, near - 1, -near, near * 2, near // 2, rng.choice(EDGES), -rng.choice(EDGES)])


# -- modules -----------------------------------------------------------------------------------------------------------
def module(level: str, rng: random.Random) -> str:
    """Return an operation of a random class of the level, with sizes, dtypes and attributes drawn by type."""
    sample = SAMPLES[rng.choice([name for name in SAMPLES if name.startswith(f"{level}.")])]
    sizes = dict(rng.choice([{}, *sample.sizes]))
    changes: dict[str, object] = {}
    if rng.random() < 0.4:
        fields = REGISTRY[sample.name].attributes
        for name in rng.sample(sorted(fields), min(len(fields), rng.choice([1, 1, 2]))):
            now = sample.attributes.get(name, REGISTRY[sample.name].defaults.get(name))
            changes[name] = value(fields[name], now, rng)
    if rng.random() < 0.3:
        name = rng.choice(sorted(sample.tiles))
        changes[name] = re.sub(r"x(\w+)$", f"x{rng.choice(sorted(BY_MLIR))}", sample.tiles[name])
    try:
        text = module_text(sample.make(sizes=sizes, **changes))
    except Exception:                           # the op class refuses it as it is made; damage the sample
        text = module_text(sample.make(sizes=sizes))
    return damaged(text, rng) if rng.random() < 0.4 else text


def value(kind: type, now: object, rng: random.Random) -> object:
    """Return another value of the attribute's type."""
    if kind is bool:
        return not now
    if kind is int:
        return number(rng, now if isinstance(now, int) else 1)
    if kind is float:
        return rng.choice([0.0, -1.0, 1e38, float("inf"), float("nan"), 0.5])
    if kind is str:
        return rng.choice(WORDS)
    if kind is Linear:
        return Linear(rng.choice((-1, 0, 1, 100)), (), ((0, rng.choice((0, 1, 2))), (1, rng.choice((-1, 0, 1)))))
    return tuple(number(rng, n) for n in now) if isinstance(now, tuple) and all(type(n) is int for n in now) else now


def damaged(text: str, rng: random.Random) -> str:
    """Change numbers and a word of a text; a type that occurs repeatedly changes everywhere."""
    for _ in range(rng.choice((1, 1, 2))):
        change = rng.randrange(4)
        numbers = list(NUMBER.finditer(text))
        if change < 2 and numbers:
            at = rng.choice(numbers)
            text = text[:at.start()] + str(number(rng, int(at[0]))) + text[at.end():]
        elif change == 2 and (types := sorted(set(re.findall(r"(?:memref|tensor)<[^>]*>", text)))):
            old = rng.choice(types)
            new = re.sub(r"\d+", lambda m: m[0] if rng.random() < 0.5 else str(rng.choice((1, 2, 127, 129, 513))), old)
            text = text.replace(old, new)
        elif words := list(re.finditer(r'(?<== )"(\w+)"', text)):
            at = rng.choice(words)
            text = text[:at.start(1)] + rng.choice(WORDS) + text[at.end(1):]
    return text


@cache
def parts_of(folder: str) -> list[str]:
    """Return the modules of the FileCheck tests of a level."""
    files = sorted((ROOT / "lit_tests" / folder).glob("*.mlir"))
    return [part for file in files if "invalid" not in file.name
            for part in re.split(r"^// -----.*\n", file.read_text(), flags=re.MULTILINE)]


@cache
def weights_of(folder: str) -> list[float]:
    """Return the weights with which modules are drawn; modules with large tensors, which take long, have small ones."""
    shapes = [re.findall(r"(?:memref|tensor)<((?:\d+x)+)", part) for part in parts_of(folder)]
    return [min(1.0, USUAL / max([prod(map(int, shape.split("x")[:-1])) for shape in of_part], default=1))
            for of_part in shapes]


def from_tests(folder: str, rng: random.Random) -> str:
    """Return a module of a FileCheck test, damaged or with another size."""
    text = re.sub(r"//.*", "", rng.choices(parts_of(folder), weights_of(folder))[0])
    text = damaged(text, rng) if rng.random() < DAMAGED else resized(text, rng)
    return from_tests(folder, rng) if sorts_many(text) and rng.random() < 0.9 else text


def sorts_many(text: str) -> bool:
    """Return whether a module compiles to a long network of exchanges: 0.3% of inputs take two thirds of the time."""
    extents = [int(n) for shape in re.findall(r"tensor<((?:\d+x)+)", text) for n in shape.split("x")[:-1]]
    return ("stablehlo.sort" in text or "chlo.top_k" in text) and max(extents, default=0) > SORTED


def resized(text: str, rng: random.Random) -> str:
    """Replace a size of types throughout the text, so that types still agree."""
    sizes = {size for shape in re.findall(r"(?:memref|tensor)<((?:\d+x)+)", text) for size in shape.split("x")[:-1]}
    if not sizes:
        return text
    old = rng.choice(sorted(sizes))
    new = rng.choice([max(1, int(old) - 1), int(old) + 1, -(-int(old) // 2), rng.randrange(1, 2 * int(old) + 1)])
    return re.sub(rf"(?<![\w.%@#]){old}(?=x|(?![\w.]))|(?<=x){old}(?=x)", str(new), text)


@lru_cache(maxsize=2 * POOL)
def random_module(seed: int, level: str) -> str:
    """Return a random nki module, lowered to a level."""
    text = ModuleWriter(seed).text
    if level == "nki":
        return text
    module = read_module(text, "random.mlir")
    with module.context, ir.Location.unknown():
        run_passes(module, passes_to(level, module))
    return str(module)


def nki_module(rng: random.Random, pool: int) -> str:
    """Return one operation, or a random module of many, damaged or with another size."""
    if rng.random() < 0.95:
        return module("nki", rng)
    text = random_module(pool * POOL + rng.randrange(POOL), "nki")
    return damaged(text, rng) if rng.random() < DAMAGED else resized(text, rng)


def waist_module(rng: random.Random, pool: int) -> str:
    """Return a module of a FileCheck test or a lowered random module, damaged or with another size."""
    if rng.random() < 0.8:
        return from_tests("waist", rng)
    text = random_module(pool * POOL + rng.randrange(POOL), "linalg")
    return damaged(text, rng) if rng.random() < DAMAGED else resized(text, rng)


# -- streams -----------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=2 * POOL)
def stream(seed: int) -> bytes:
    """Return streams of 2 to 8 statements, as small ones find a defect in less time."""
    return encode_program(emit_code(RandomCode(seed, 2 + seed % 7).code, Emission(unroll_limit=10)))


@lru_cache(maxsize=2 * POOL)
def assembly_of(seed: int) -> str:
    return disassemble(stream(seed))


def assembly(rng: random.Random, pool: int) -> str:
    """Return random streams, some with changed numbers, exchanged lines, or a line repeated or deleted."""
    text = assembly_of(pool * POOL + rng.randrange(POOL))
    if rng.random() < 0.2:
        return text
    lines = text.splitlines(keepends=True)
    at, change = rng.randrange(len(lines)), rng.randrange(4)
    if change == 0:
        del lines[at]
    elif change == 1:
        lines.insert(at, lines[at])
    elif change == 2 and at:
        lines[at - 1:at + 1] = lines[at], lines[at - 1]
    else:
        return damaged(text, rng)
    return "".join(lines)


def binary(rng: random.Random, pool: int) -> bytes:
    """Return random streams as binaries, some with a changed byte or another length; checksums are recomputed."""
    data = stream(pool * POOL + rng.randrange(POOL))
    if rng.random() < 0.3:
        return data
    sections = split(data)
    tag = rng.choice(sorted(tag for tag, content in sections.items() if content))
    content = bytearray(sections[tag])
    match rng.randrange(5):
        case 0:
            del content[rng.randrange(len(content)):]
        case 1:
            content += rng.randbytes(rng.randrange(40))
        case _:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return assembled({**sections, tag: bytes(content)})


# -- kernels and configs -----------------------------------------------------------------------------------------------
WRITERS = {"beta": BetaWriter, "current": CurrentWriter}


class KernelMutation(Mutation):
    """Changes any node except a counter of a ``while`` loop, without which the loop might not end."""

    counts_iterations = True            # whether the program has such statements

    def visit(self, node: ast.AST) -> Any:
        counts = self.counts_iterations and isinstance(node, ast.Assign | ast.Expr) and any(
            isinstance(inner, ast.Name) and inner.id.startswith("left") for inner in ast.walk(node))
        return node if counts else super().visit(node)


@lru_cache(maxsize=1)
def program(key: str) -> tuple[str, Program]:
    """Return a random program and its generation."""
    rng = random.Random(key)
    generation = rng.choice(sorted(WRITERS))
    return generation, WRITERS[generation](rng.randrange).program()


def kernel(key: str, change: int) -> tuple[str, Program]:
    """Return a random program of a generation, as it was written (0) or with one change of its syntax tree."""
    generation, written = program(key)
    if not change:
        return generation, written
    rng = random.Random(f"{key} change {change}")
    tree = ast.parse(written.text)
    counter = KernelMutation(-1, rng)           # which changes nothing
    counter.counts_iterations = "left" in written.text
    counter.visit(tree)
    counter.chosen, counter.count = rng.randrange(max(1, counter.count)), 0
    return generation, replace(written, text=ast.unparse(counter.visit(tree)))


@cache
def configs() -> list[str]:
    arrays = (np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32))
    calls = ((doubled_plus, arrays), (by_rows, arrays[:1]))
    return [base64.b64decode(record_of(k.specialize(k.bind(a, {}, is_array, describe_array)), PlainResults(())).config)
            .decode() for k, a in calls]


def config(rng: random.Random) -> str:
    """Return the config of a custom call with a changed number, name or module, and a key computed from the changes."""
    fields = json.loads(rng.choice(configs()))
    modules = fields["nki_mlir"]["modules"]
    match rng.randrange(5):
        case 0 | 1:
            chosen = rng.choice(modules)
            chosen["text"] = damaged(chosen["text"], rng)
        case 2:
            holder = rng.choice((fields, fields["nki_mlir"]))
            name = rng.choice(sorted(set(holder) - {"nki_mlir", "key"}))
            holder[name] = rng.choice([None, [], {}, "", 0, -1, 1 << 70, 1.5, [holder[name]], "[" * 500])
        case 3:
            fields = json.loads(damaged(json.dumps(fields), rng))
    digest = hashlib.sha256()
    with suppress(KeyError, TypeError, AttributeError):             # a field that has become something else
        for m in fields["nki_mlir"]["modules"]:
            digest.update(repr(tuple(map(tuple, m["fixed"]))).encode() + m["text"].encode())
        fields["nki_mlir"]["key"] = digest.hexdigest()
    return base64.b64encode(json.dumps(fields).encode()).decode()
