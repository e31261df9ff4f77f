# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The base of passes on a function's records.

A pass is one class in one file of its name in ``passes``; fields are its options. ``nki-opt --cpu-passes`` runs others
than ``pipeline.py`` has, and ``--mlir-print-ir-after=NAME`` prints the function after one.
"""

import dataclasses
from importlib import import_module
from typing import ClassVar

from nki_mlir.passes.pass_manager import PassObserver, UnknownPass, options_of
from nki_mlir.passes.pipeline_text import split_pipeline
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.pipeline import NAMES, PIPELINE, REQUIRED


class FunctionPass:
    """The base of all passes. Subclasses define ``rewrite(function)``; options are annotated class attributes,
    integers."""

    name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str) -> None:
        cls.name = name
        dataclasses.dataclass(cls)

    def rewrite(self, function: NativeFunction) -> None:
        """Change the function in place. It computes the same before and after."""


def function_pass(name: str, options: str = "") -> FunctionPass:
    """Instantiate a pass with options written as ``name=value other=value``."""
    if name not in NAMES:
        raise UnknownPass(name=name)
    module = import_module(f"nki_mlir.targets.cpu.passes.{name.replace('-', '_')}")
    cls: type[FunctionPass] = getattr(module, "".join(word.capitalize() for word in name.split("-")))
    return cls(**options_of(cls, name, options))


def passes_of(text: str | None = None) -> list[FunctionPass]:
    """Return the passes of a pipeline's text, A,B{x=1}, or those that every kernel goes through."""
    if text is not None:
        chosen = {**dict.fromkeys(REQUIRED, ""), **dict(split_pipeline(text))}
    else:
        chosen = {name: PIPELINE[name] for name in NAMES if name in PIPELINE}
    return [function_pass(name, options) for name, options in chosen.items()]


def run_passes(function: NativeFunction, passes: list[FunctionPass], observer: PassObserver | None = None) -> None:
    """Run passes in order."""
    for function_pass in passes:
        (observer or PassObserver()).around(function_pass.name, function, function_pass.rewrite)
