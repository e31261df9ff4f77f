# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Passes of MLIR itself by name: ``canonicalize``, ``func.func(cse)`` and all others that the bindings have."""

import re
from typing import Any

from nki_mlir.bindings import Module, ir, load
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.passes.pass_manager import Pass


class UpstreamOption(NkiMlirError):
    code = "NKI-PASS-OPTION"
    message = "{text}"
    fix = "give options as MLIR's documents have them: name{{option=value other=value}}"


class UpstreamFailed(NkiMlirError):
    code = "NKI-PASS-FAILED"
    message = "pass '{name}' failed: {text}"
    fix = "run it with --mlir-print-ir-before={name} to see what it was given"


def upstream_pass(name: str, options: str) -> Pass | None:
    """The pass of that name; None where MLIR has none."""
    text = f"{name}{{{options}}}" if options else name
    manager: Any = load("passmanager").PassManager
    try:
        manager.parse(f"builtin.module({text})", context=ir.Context())
    except ValueError as error:
        if re.search(rf"'{re.escape(name)}' does not refer to a registered pass", str(error)):
            return None
        lines = str(error).splitlines()
        raise UpstreamOption(text=f"{text}: {lines[0].rpartition('error: ')[2]}") from None

    class Upstream(Pass):
        def run(self, module: Module) -> None:
            with module.context:
                try:
                    manager.parse(f"builtin.module({text})").run(module.operation)
                except ir.MLIRError as error:
                    raise UpstreamFailed(name=name, text=str(error).splitlines()[0]) from None
    Upstream.name = name
    return Upstream()
