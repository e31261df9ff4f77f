# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Docstrings of what is public beside ``nl`` and ``nisa``: they say arguments, results and errors, and examples run.

Examples are run as they stand, with ``double``, a function that is a kernel in either generation, in an empty folder
with the sources of an operator.
"""

import dataclasses
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "examples" / "custom_operators"
FRAMEWORKS = "nki_mlir.frameworks"
# Modules with what their examples import beside them, and the marker of their tests.
MODULES = {
    "nki_mlir": ("import nki_mlir", ""), "nki_mlir.language.lowered": ("", ""),
    "nki_mlir.language.beta.nki": ("", ""), "nki_mlir.language.current.nki": ("", ""),
    "nki_mlir.language.current.host_arrays": (
        "from nki_mlir.language.current import host_arrays as tensor", ""), "nki_mlir.language.current.compiler": (
        "from nki_mlir.language.current.driver import *", ""), "nki_mlir.language.current.driver": ("", ""),
    "nki_mlir.language.current.compiled": ("from nki_mlir.language.current.driver import *", ""),
    "nki_mlir.language.current.runtime": ("from nki_mlir.language.current.driver import *\nimport json", ""),
    "nki_mlir.compat.nkipy_runtime": ("", ""),
    "nki_mlir.language.beta.compiler": ("", ""), "nki_mlir.language.beta.typing": ("", ""),
    "nki_mlir.compat": ("import importlib.util", ""), "nki_mlir.customop": ("", ""),
    f"{FRAMEWORKS}.framework_kernel": ("", ""), f"{FRAMEWORKS}.stablehlo": ("", ""),
    f"{FRAMEWORKS}.recovery": ("import jax, jax.numpy as jnp", "jax"),
    f"{FRAMEWORKS}.jax": ("import jax, jax.numpy as jnp", "jax"),
    f"{FRAMEWORKS}.jax_neuronx": ("import jax, jax.numpy as jnp", "jax"),
    f"{FRAMEWORKS}.torch": ("import torch", "torch"), f"{FRAMEWORKS}.torch_neuronx": ("import torch", "torch"),
    f"{FRAMEWORKS}.torch_device": ("import torch", "torch"),
    f"{FRAMEWORKS}.torch_stablehlo": (f"import torch\nfrom {FRAMEWORKS}.stablehlo import run_linked", "torch"),
    f"{FRAMEWORKS}.torch_xla": ("import torch, torch_xla", "torch"),
}
NEEDED = {"jax": "jax", "torch": "torch", f"{FRAMEWORKS}.torch_xla": "torch_xla"}
PARTS = ("Arguments", "Result", "Errors", "Example")
PRELUDE = """
import importlib, os, warnings
import numpy as np
from nki_mlir.language.{generation} import isa as nisa, language as nl, nki
{imports}
from {module} import *

def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out

"""
RUN = "import runpy, sys\nfor file in sys.argv[1:]:\n    print(file, flush=True)\n    runpy.run_path(file)"


def cases(test):
    return pytest.mark.parametrize("module", [
        pytest.param(m, marks=[getattr(pytest.mark, mark)] if mark else []) for m, (_, mark) in MODULES.items()])(test)


def public(module):
    """The functions and classes of a module's ``__all__``, and the classes' methods; ``nki.tensor`` is a namespace."""
    for name in (NEEDED.get(MODULES[module][1]), NEEDED.get(module)):
        if name:
            pytest.importorskip(name)
    home, objects = importlib.import_module(module), {}
    for name in home.__all__:
        value = getattr(home, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            objects[name] = value
        if inspect.isclass(value):
            methods = {n: m.fget if isinstance(m, property) and m.__doc__ else m for n, m in vars(value).items() if n[0] != "_"}
            objects |= {f"{name}.{n}": m for n, m in methods.items() if inspect.isfunction(m)}
    return objects


def parts_of(value):
    """The parts of a docstring with their titles, the first sentence under ''."""
    pieces = re.split(rf"(?:^|\n)({'|'.join(PARTS)}):\n", inspect.getdoc(value) or "")
    return {"": pieces[0].strip(), **dict(zip(pieces[1::2], pieces[2::2]))}


def arguments_of(value):
    """The parameters of a function, or of a class that users make."""
    if inspect.isclass(value):
        constructor = next((vars(value)[n] for n in ("__init__", "__new__") if n in vars(value)), None)
        constructor = None if dataclasses.is_dataclass(value) or issubclass(value, Exception) else constructor
        return list(inspect.signature(constructor).parameters)[1:] if constructor else []
    return list(inspect.signature(value).parameters)


def test_every_method_of_what_lower_gives__has_an_example():
    objects = public("nki_mlir.language.lowered")
    without = {name for name, value in objects.items() if "Example" not in parts_of(value)}
    assert without == {"Lowered.name", "Spec.shape"}      # in their classes' examples


@cases
def test_docstring__has_every_part(module):
    for name, value in public(module).items():
        parts = parts_of(value)
        assert parts[""], name
        if "." in name and "Example" not in parts:
            continue                            # methods are shown in their classes' examples
        is_class = inspect.isclass(value)
        plain = is_class and not arguments_of(value)
        assert "Example" in parts and (plain or "Errors" in parts), name
        assert is_class or "Result" in parts, name
        if not plain:
            listed = re.findall(r"^    (\w+): |^    (none)$", parts["Arguments"], re.MULTILINE)
            wanted = [n for n in arguments_of(value) if n != "self"]
            assert [a for a, _ in listed if a] == wanted, name


@pytest.mark.share(4)
@cases
def test_examples__run(module, tmp_path):
    imports, _ = MODULES[module]
    generation = "current" if ".current." in module else "beta"
    prelude, files = PRELUDE.format(generation=generation, imports=imports, module=module), []
    for file in SOURCES.glob("relu*.cpp"):
        shutil.copy(file, tmp_path)
    for name, value in public(module).items():
        if example := parts_of(value).get("Example"):
            files.append(f"example_{name.replace('.', '_')}.py")
            (tmp_path / files[-1]).write_text(prelude + textwrap.dedent(example))
    assert files
    root = str(Path(__file__).parent.parent)
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r})\n{RUN}", *files],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
