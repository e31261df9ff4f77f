# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``help()`` of instructions says all of them, and its examples compute what NumPy does beside them."""

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from nki_mlir.language.documentation.page import EXAMPLES_OF
from nki_mlir.language.signatures.table import CURRENT

PARTS = ("Arguments", "Result", "Errors", "Engine", "Cost", "Example", "Source")
TILE = re.compile(r"(\w+): (\w+)\[([\d, ]+)\](?: in (\w+))?")
VALUE = re.compile(r"((\w+)\S*(?:, \d\])?) == (.*)")
CASES = [(generation, name) for generation, examples in EXAMPLES_OF.items() for name in examples]


def function(generation, name):
    return getattr(importlib.import_module(f"nki_mlir.language.{generation}.isa"), name)


@pytest.mark.parametrize("generation, name", CASES)
def test_help__has_every_part(generation, name):
    said = inspect.getdoc(function(generation, name))
    sentence, *paragraphs = re.split(rf"\n\n(?=(?:{'|'.join(PARTS)}):\n)", said)
    assert sentence and [p.split(":")[0] for p in paragraphs] == list(PARTS)
    assert all(p.split("\n")[1].strip() for p in paragraphs)
    arguments = re.findall(r"^    (\w+): \S", paragraphs[0], re.MULTILINE)
    wanted = list(inspect.signature(function(generation, name)).parameters)
    assert arguments == wanted[:len(arguments)] and set(wanted[len(arguments):]) <= {"dst_rmw_op", "perf_mode"}
    assert f"nki.isa.{name}" in paragraphs[-1]


def parts(text):
    """The tiles of an example, its code, and what its results are."""
    tiles, code, values = {}, [], []
    for line in textwrap.dedent(text).strip().splitlines():
        if found := TILE.fullmatch(line):
            label, dtype, shape, space = found.groups()
            tiles[label] = dtype, tuple(int(n) for n in shape.split(",")), space or "sbuf"
        elif found := VALUE.fullmatch(line):
            values.append(found.groups())
        else:
            code.append(line)
    return tiles, code, values


def kernel(generation, tiles, code, results, path):
    """A kernel of the example: tiles are loaded in front of it, and results stored behind."""
    current, body = generation == CURRENT, []
    given = [t for t, (_, _, space) in tiles.items() if space != "psum"]
    for label, (dtype, shape, space) in tiles.items():
        if space == "hbm":
            body.append(f"{label} = {label}_in")
        elif not current and space == "sbuf":
            body.append(f"{label} = nl.load({label}_in)")
        elif current:
            body.append(f"{label} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.{space})")
            body += [f"nisa.dma_copy(dst={label}, src={label}_in)"] if space == "sbuf" else []
    body += code
    for label in results:
        dtype, shape, space = tiles[label]
        body.append(f"{label}_out = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.shared_hbm)")
        if not current:
            body.append(f"nl.store({label}_out, {label})")
            continue
        if space == "psum":
            body += [f"{label}_held = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.sbuf)",
                     f"nisa.tensor_copy(dst={label}_held, src={label})"]
        body.append(f"nisa.dma_copy(dst={label}_out, src={label}{'_held' if space == 'psum' else ''})")
    body.append(f"return {', '.join(f'{label}_out' for label in results)}")
    lines = [f"from nki_mlir.language.{generation} import isa as nisa, language as nl, nki", "", "",
             f"def example({', '.join(f'{t}_in' for t in given)}):", textwrap.indent("\n".join(body), "    ")]
    (path / "example.py").write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("example", path / "example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, given


@pytest.mark.parametrize("generation, name", CASES)
def test_example__computes_what_it_says(generation, name, tmp_path):
    tiles, code, values = parts(EXAMPLES_OF[generation][name])
    assert any(f"nisa.{name}(" in line for line in code) and values
    results = list(dict.fromkeys(label for _, label, _ in values))
    module, given = kernel(generation, tiles, code, results, tmp_path)
    random = np.random.default_rng(1)
    held = {t: (random.standard_normal(shape) if dtype.startswith("float") else random.integers(0, 8, shape)
                ).astype(dtype) for t, (dtype, shape, _) in tiles.items()}
    made = module.nki.jit(module.example, mode="simulation")(*(held[t] for t in given))
    made = dict(zip(results, made if isinstance(made, (tuple, list)) else [made]))
    for left, _, expression in values:
        got = eval(left, {}, {t: np.asarray(v) for t, v in made.items()})
        expected = eval(expression, {"np": np}, held)
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_documentation__is_read_when_it_is_asked_for():
    code = ("import sys, nki_mlir.language.current.isa as i\n"
            "assert not [m for m in sys.modules if m.startswith('nki_mlir.language.documentation')]\n"
            "assert 'Example:' in __import__('inspect').getdoc(i.activation)")
    subprocess.run([sys.executable, "-c", code], check=True)
