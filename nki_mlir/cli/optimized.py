# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki_mlir.opt``: passes on a module, from Python."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nki_mlir import display
from nki_mlir.alone import alone
from nki_mlir.cli.source import SourceError, read_module
from nki_mlir.frontend.locations import user_location
from nki_mlir.passes.pipeline_text import split_pipeline

if TYPE_CHECKING:
    from nki_mlir.bindings import Module

GOALS = ("linalg", "nisa")


@alone
def optimized(module: "Module | str", passes: str | Sequence[str], to: str, target: str) -> "Module":
    """As ``nki_mlir.opt`` says."""
    from nki_mlir.bindings import ir  # start-up: loads MLIR
    from nki_mlir.cli.runnable import set_target
    from nki_mlir.passes.pass_manager import passes_named, run_passes
    from nki_mlir.passes.pipelines import passes_to
    text = module if isinstance(module, str) else module.operation.get_asm(enable_debug_info=True)
    made = read_module(text, "<module>")
    named = [one for part in ([passes] if isinstance(passes, str) else passes) if part for one in pipeline(part)]
    if to and to not in GOALS:
        raise SourceError(f"nki_mlir.opt lowers to {' or '.join(GOALS)}, not to {to!r}: "
                          "streams are of kernel.lower(...)").located(user_location())
    with made.context, ir.Location.unknown():
        if target:
            set_target(made, target)
        run_passes(made, [one for name, options in named for one in passes_named(name, options)])
        run_passes(made, passes_to(to, made) if to else [])
        made.operation.verify()
    display.register()
    return made


def pipeline(text: str) -> list[tuple[str, str]]:
    """Passes with their options; what is no list of them is an error at the user's line."""
    try:
        return split_pipeline(text)
    except ValueError as error:
        raise SourceError(str(error)).located(user_location()) from None
