# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Defines the pass class, finds passes by name, and runs lists of passes with checks between them.

A pass is one class in one file named after it: ``split-masked-loops`` is in ``transforms/split_masked_loops.py``,
conversions are in ``conversion``, code generation is in ``targets/neuron/codegen``. The name leads to the file, so
there is no list of passes. Fields are options.
"""

import dataclasses
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from nki_mlir import extensions
from nki_mlir.alone import alone
from nki_mlir.bindings import Module, ir, load
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.passes import packages
from nki_mlir.passes.levels import Level, check_level
from nki_mlir.passes.pipeline_text import MLIR_PASSES, split_pipeline
from nki_mlir.progress import phase
from nki_mlir.similar_names import nearest

PASSES: dict[str, type["Pass"]] = {}


class UnknownPass(NkiMlirError):
    code = "NKI-PASS"
    message = "there is no pass named '{name}'"
    fix = "use a pass that nki-opt --help lists"

    @property
    def advice(self) -> tuple[str, str]:
        suggestion = nearest(self.values["name"], [*file_names(), *PASSES, *MLIR_PASSES])
        return "", f"write {suggestion}, or {self.fix}" if suggestion else self.fix


class BadOption(NkiMlirError):
    code = "NKI-PASS-OPTION"
    message = "{what}"
    fix = "give options as {{name=value other=value}}; the pass has {options}"


@dataclasses.dataclass(repr=False, eq=False)
class Pass:
    """Base class of all passes. A subclass defines ``run(module)`` and declares the level it reads and the level it
    writes.

    ``reads`` and ``writes`` are members of ``Level``; None stands for any level, which the pass keeps. Options are
    annotated class attributes of type bool, int, float or str.
    """

    name: ClassVar[str] = ""
    reads: ClassVar[Level | None] = None
    writes: ClassVar[Level | None] = None

    def __init_subclass__(cls, *, name: str = "", reads: Level | None = None, writes: Level | None = None) -> None:
        if name:
            cls.name, cls.reads, cls.writes = name, reads, writes if writes is not None else reads
            PASSES[name] = cls
        cls.__doc__ = cls.__doc__ or getattr(sys.modules.get(cls.__module__), "__doc__", None)
        if "__annotations__" in cls.__dict__:               # start-up: it takes long, and few passes have options
            dataclasses.dataclass(repr=False, eq=False)(cls)        # start-up: either would take as long again

    def run(self, module: Module) -> None:
        """Change the module in place. It stays valid and keeps its meaning."""


# A class statement of a pass, which has a name; classes of operations also have a name, but then engines, too.
DECLARED_PASS = re.compile(r"^class \w+\((?:\w+\.)*Pass,[^)]*\bname=[\"']([^\"']+)[\"']", re.MULTILINE)


def file_names(only: str = "") -> dict[str, str]:
    """Map pass names to modules, for one name or all, from the files of the registered packages."""
    check_plugin_files(only)
    modules: dict[str, str] = {}
    stem = only.replace("-", "_")
    for module, file in packages.files(stem) if not only or stem.isidentifier() else ():
        name = file.stem.replace("_", "-")
        if f'name="{name}"' in file.read_text(encoding="utf-8") and modules.setdefault(name, module) != module:
            raise extensions.SameName(what="pass", name=name, one=modules[name], other=module)
    return modules


def check_plugin_files(only: str = "") -> None:
    """Raise an error if a plugin defines a pass in a file that is not named after it."""
    for plugin, file in packages.plugin_files():
        for name in DECLARED_PASS.findall(file.read_text(encoding="utf-8")):
            home = f"{name.replace('-', '_')}.py"
            if only in ("", name) and file.name != home:
                raise extensions.BrokenPlugin(what=f"pass '{name}'", origin=plugin.origin,
                                              text=f"it is in {file.name}, and its file must be {home}")


def passes_named(name: str, options: str = "") -> "list[Pass]":
    """Return the pass of that name, or the passes of a plugin's pipeline."""
    pipeline = extensions.of("pipelines").get(name)
    if pipeline is None:
        return [pass_named(name, options)]
    if options:
        raise BadOption(what=f"pipeline '{name}' has no option '{options}'", options="none")
    text = extensions.load(pipeline)
    try:
        return [pass_named(*entry) for entry in split_pipeline(text)]
    except (TypeError, ValueError):
        raise extensions.BrokenPlugin(what=f"pipeline '{name}'", origin=pipeline.origin,
                                      text="it must be a text such as "
                                           f"A,B{{x=1 y=2}}, got {text!r}") from None


def pass_named(name: str, options: str = "") -> Pass:
    """Return a pass with options, which are written as ``name=value other=value``."""
    if name not in PASSES:
        modules = file_names(name)
        if name not in modules:
            return upstream_pass(name, options)
        extensions.load_module(modules[name])
    cls = PASSES[name]
    if cls.__module__ in sys.modules:
        extensions.load_module(cls.__module__)  # another thread may be importing it: wait for the rest of the module
    return cls(**options_of(cls, name, options))


def options_of(cls: type, name: str, options: str) -> dict[str, Any]:
    """Parse ``name=value other=value`` to values of the fields of a pass."""
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(cls)}
    values = {}
    for item in re.findall(r"[^\s,]+", options):
        key, _, text = item.partition("=")
        if key not in fields:
            raise BadOption(what=f"pass '{name}' has no option '{key}'", options=", ".join(fields) or "none")
        values[fields[key].name] = _option(name, key, text, fields[key].type)
    return values


def _option(name: str, key: str, text: str, kind: object) -> object:
    try:
        if kind in (bool, "bool"):
            return {"": True, "true": True, "1": True, "false": False, "0": False}[text]
        if kind in (float, "float"):
            return float(text)
        return int(text) if kind in (int, "int") else text
    except (KeyError, ValueError):
        raise BadOption(what=f"option '{key}' of pass '{name}' cannot be '{text}'", options=key) from None


Code = TypeVar("Code")


class PassObserver:
    """An observer of each pass as it runs; ``module()`` returns the module on which the pass works."""

    def before(self, name: str, module: Callable[[], Module]) -> None:
        """Observe the module before a pass."""

    def after(self, name: str, module: Callable[[], Module]) -> None:
        """Observe the module after a pass, once its result has been checked."""

    def observe(self, name: str, code: Code, run: Callable[[Code], None], module_of: Callable[[Code], Module]) -> None:
        """Run a pass between the two calls; ``module_of`` returns the module."""
        self.before(name, lambda: module_of(code))
        run(code)
        self.after(name, lambda: module_of(code))

    def observe_module(self, name: str, module: Module, run: Callable[[Module], None]) -> None:
        self.observe(name, module, run, lambda module: module)


@alone
def run_passes(module: Module, passes: Sequence[Pass], observer: PassObserver | None = None) -> None:
    """Run passes in order; check the level of the module before the first pass and after each."""
    for k, current in enumerate(passes):
        if current.reads is not None and (k == 0 or passes[k - 1].writes is not current.reads):
            check_level(module, current.reads, f"before {current.name}")
        with phase(f"pass {current.name}, {k + 1} of {len(passes)}"):
            (observer or PassObserver()).observe_module(current.name, module, partial(_checked, current))


def _checked(current: Pass, module: Module) -> None:
    current.run(module)
    if current.writes is not None:
        check_level(module, current.writes, f"after {current.name}")


# -- passes of MLIR itself ---------------------------------------------------------------------------------------------
# By name: ``canonicalize``, ``func.func(cse)`` and all others that the bindings have.

class UpstreamOption(NkiMlirError):
    code = "NKI-PASS-OPTION"
    message = "{text}"
    fix = "give options as MLIR's documents have them: name{{option=value other=value}}"


NOT_OF_MODULES = "on a PassManager intended to run on 'builtin.module'"     # MLIR's words


class UpstreamFailed(NkiMlirError):
    code = "NKI-PASS-FAILED"
    message = "pass '{name}' failed: {text}"
    fix = "run it with --mlir-print-ir-before={name} to see its input"


def is_upstream_pass(name: str) -> bool:
    """Return whether MLIR has a pass of that name."""
    try:
        upstream_pass(name, "")
    except UnknownPass:
        return False
    except UpstreamOption:              # it has, and needs options
        pass
    return True


def upstream_pass(name: str, options: str) -> Pass:
    """Return MLIR's pass of that name; raise ``UnknownPass`` or ``UpstreamOption``. A pass of functions, or of another
    operation, runs on each of these operations in the module."""
    text = f"{name}{{{options}}}" if options else name
    manager = load("passmanager").PassManager
    try:
        manager.parse(f"builtin.module({text})", context=ir.Context())
    except ValueError as error:
        if unknown := re.search(r"'([^']*)' does not refer to a registered pass", str(error)):    # name may nest it
            raise UnknownPass(name=unknown[1]) from None
        if nested := re.search(rf"restricted to '([^']*)' {NOT_OF_MODULES}", str(error)):
            return upstream_pass(f"{nested[1]}({text})", "")
        lines = str(error).splitlines()
        raise UpstreamOption(text=f"{text}: {lines[0].rpartition('error: ')[2]}") from None

    class Upstream(Pass):
        def run(self, module: Module) -> None:
            with module.context:
                try:
                    try:
                        manager.parse(f"builtin.module({text})").run(module.operation)
                    except ir.MLIRError as error:
                        if NOT_OF_MODULES not in str(error):          # nothing has run then
                            raise
                        manager.parse(f"builtin.module(func.func({text}))").run(module.operation)
                except ir.MLIRError as error:
                    reasons = str(error).splitlines()[1:] or [str(error)]
                    raise UpstreamFailed(name=name, text=reasons[0].rpartition("error: ")[2]) from None
    Upstream.name = name
    return Upstream()
