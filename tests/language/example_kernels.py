# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The examples of ``help()`` as kernels: what the tests, the site and ``docs/coverage.md`` run."""

import functools
import importlib
import importlib.util
import inspect
import itertools
import re
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from nki_mlir.language.current.simulator import simulate_ranks
from nki_mlir.language.documentation.page import COLLECTIVES, ISA, LANGUAGE, TENSOR, example
from nki_mlir.language.kernel import Kernel, unwrap
from nki_mlir.language.signatures.table import CURRENT

TILE = re.compile(r"(\w+(?:, \w+)*): (\w+)\[([\d, ]+)\](?: in (\w+))?( > 0)?")
VALUE = re.compile(r"((\w+)(?:\[.*?\])?) == (.*)")
HOMES = {"nisa": ISA, "nl": LANGUAGE, "ncc": COLLECTIVES}


def home_of(module: str, generation: str) -> Any:
    """Return the module, or the class, that has the names of a documented module."""
    short, _, cls = module.removeprefix("nki.").partition(".")
    home = importlib.import_module(f"nki_mlir.language.{generation}.{short}")
    return getattr(home, cls) if cls else home


def public(module: str, generation: str) -> dict[str, Callable]:
    """Return the functions of a module by name. ``dir`` lists its public names alone."""
    home = home_of(module, generation)
    return {n: getattr(home, n) for n in dir(home) if hasattr(getattr(home, n), "record")}


def is_late(code: str) -> bool:
    """Return whether an example calls a function that came with NeuronCore-v4, as its page says."""
    called = [functions[n] for m, n in re.findall(r"\b(\w+)\.(\w+)\(", code)
              for functions in [public(HOMES.get(m, TENSOR), CURRENT)] if n in functions]
    return any(re.search("(from|before) NeuronCore-v4", inspect.getdoc(f).partition("Result:")[2]) for f in called)


def drawn(random: np.random.Generator, dtype: str, shape: tuple[int, ...], positive: bool) -> np.ndarray:
    """Return random contents of a tile."""
    numbers = random.standard_normal(shape) if dtype.startswith("float") else random.integers(0, 8, shape)
    return (np.abs(numbers) + 0.5 if positive else numbers).astype(dtype)


_FOLDER = tempfile.TemporaryDirectory(prefix="examples-")         # messages and stepping read the kernels' sources
_NUMBERS = itertools.count()


def source(generation: str, parameters: list[str], body: list[str]) -> ModuleType:
    """Write and import the module that defines the kernel ``example``. Each operation has a line for itself."""
    file = Path(_FOLDER.name, f"example_{next(_NUMBERS)}.py")
    lines = ["import numpy as np", f"from nki_mlir.language.{generation} import isa as nisa, language as nl, nki",
             "from nki_mlir.language.current import collectives as ncc", "", "",
             f"def example({', '.join(f'{t}_in' for t in parameters)}):", textwrap.indent("\n".join(body), "    ")]
    file.write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Tile:
    """A tile that an example declares."""

    dtype: str
    shape: tuple[int, ...]
    memory: str
    positive: bool


@dataclass(frozen=True)
class Example:
    """The parsed example of a function, or of another public name.

    ``values`` are (tile or part of it, tile, NumPy expression), ``grid`` the expression of a launch grid or "", ``ranks``
    the number of ranks that run it or 0.
    """

    generation: str
    module: str
    name: str
    tiles: dict[str, Tile]
    code: list[str]
    values: list[tuple[str, str, str]]
    grid: str = ""
    ranks: int = 0
    simulated = ""                      # the reason why it runs in the simulator alone: none

    @property
    def results(self) -> list[str]:
        """The tiles that the kernel returns, in order."""
        return list(dict.fromkeys(tile for _, tile, _ in self.values))

    @property
    def inputs(self) -> list[str]:
        """The tiles that are parameters of the kernel: all but those in PSUM and the results in HBM."""
        return [name for name, tile in self.tiles.items() if tile.memory != "psum" and not self.is_stored(name)]

    def is_stored(self, name: str) -> bool:
        """Return whether the example stores a result to HBM."""
        return name in self.results and self.tiles[name].memory == "hbm"

    @functools.cached_property
    def contents(self) -> dict[str, np.ndarray]:
        """The contents of the tiles before the example runs; of ranks, along an axis in front."""
        random = np.random.default_rng(1)
        return {name: drawn(random, t.dtype, (*[self.ranks] * bool(self.ranks), *t.shape), t.positive)
                for name, t in self.tiles.items()}

    @functools.cached_property
    def target(self) -> str:
        """The machine that has the functions of the example."""
        return "trn3" if is_late("\n".join(self.code)) else "trn2"

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The kernel's arguments, of the first rank."""
        return self.of_ranks[0]

    @property
    def of_ranks(self) -> list[tuple[np.ndarray, ...]]:
        """The kernel's arguments, for each rank."""
        arrays = [self.contents[name] for name in self.inputs]
        return [tuple(a[r] for a in arrays) for r in range(self.ranks)] or [tuple(arrays)]

    def body(self) -> list[str]:
        """Return the lines of the kernel: it loads the tiles, runs the example and stores the results."""
        current, lines = self.generation == CURRENT, []
        for name, tile in self.tiles.items():
            if self.is_stored(name):
                lines.append(f"{name} = nl.ndarray({tile.shape}, dtype=nl.{tile.dtype}, buffer=nl.shared_hbm)")
            elif tile.memory == "hbm":
                lines.append(f"{name} = {name}_in")
            elif not current and tile.memory == "sbuf":
                lines.append(f"{name} = nl.load({name}_in)")
            elif current:
                lines.append(f"{name} = nl.ndarray({tile.shape}, dtype=nl.{tile.dtype}, buffer=nl.{tile.memory})")
                lines += [f"nisa.dma_copy(dst={name}, src={name}_in)"] if tile.memory == "sbuf" else []
        lines += self.code
        for name in self.results:
            lines += self.storing(name, self.tiles[name], current)
        return [*lines, f"return {', '.join(f'{name}_out' for name in self.results)}"]

    def storing(self, name: str, tile: Tile, current: bool) -> list[str]:
        """Return the lines that store a result."""
        if self.is_stored(name):
            return [f"{name}_out = {name}"]
        lines = [f"{name}_out = nl.ndarray({tile.shape}, dtype=nl.{tile.dtype}, buffer=nl.shared_hbm)"]
        if not current:
            return [*lines, f"nl.store({name}_out, {name})"]
        copied = f"{name}_copy" if tile.memory == "psum" else name
        if tile.memory == "psum":
            lines += [f"{copied} = nl.ndarray({tile.shape}, dtype=nl.{tile.dtype}, buffer=nl.sbuf)",
                      f"nisa.tensor_copy(dst={copied}, src={name})"]
        return [*lines, f"nisa.dma_copy(dst={name}_out, src={copied})"]

    def kernel(self, **options: Any) -> Kernel:
        """Return the kernel, launched on the example's grid; ``options`` are those of ``nki.jit``."""
        module = source(self.generation, self.inputs, self.body())
        if self.generation == CURRENT:
            options["platform_target"] = self.target
        kernel = unwrap(module.nki.jit(module.example, **options))
        return kernel[eval(self.grid, {"nl": home_of(LANGUAGE, self.generation)})] if self.grid else kernel

    def run(self, on: str) -> list[dict[str, np.ndarray]]:
        """Return the results on an executor, by tile, of each rank."""
        kernel = self.kernel()
        got = simulate_ranks(kernel, self.of_ranks, executor=on) if self.ranks else [kernel.run(self.arrays, {}, on)]
        return [dict(zip(self.results, map(np.asarray, r if isinstance(r, (tuple, list)) else [r]))) for r in got]


def example_of(module: str, name: str, generation: str) -> Example:
    """Parse the example of a public name."""
    tiles, code, values, launch = {}, list[str](), [], {"grid": "", "ranks": "0"}
    for line in example(module, name, generation).splitlines():
        if match := TILE.fullmatch(line):
            labels, dtype, shape, memory, positive = match.groups()
            tile = Tile(dtype, tuple(int(n) for n in shape.split(",")), memory or "sbuf", bool(positive))
            tiles |= dict.fromkeys(labels.split(", "), tile)
        elif match := VALUE.fullmatch(line):
            values.append((match[1], match[2], match[3]))
        elif line.startswith(("grid: ", "ranks: ")):
            key, _, launch[key] = line.partition(": ")
        else:
            code.append(line)
    return Example(generation, module, name, tiles, code, values, launch["grid"], int(launch["ranks"]))
