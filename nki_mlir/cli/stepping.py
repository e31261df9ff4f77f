# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of ``nki-run`` that stop: with a screen on a terminal, with commands as text elsewhere."""

import argparse
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from nki_mlir.cli.runnable import NotTaken, Runnable
from nki_mlir.cli.source import SourceError
from nki_mlir.stepping.commands import CommandError, TextFront, source_line
from nki_mlir.stepping.debugger import Debugger, Quit, Stops

if TYPE_CHECKING:
    from nki_mlir.cli.runnable import Results

STEPPED = ("eager", "interpreter", "isa")       # executors that run operation by operation


def run_stepped(runnable: Runnable, options: argparse.Namespace, source: str) -> "Results | None":
    """Run under the debugger and return the results. Return None if the user ended the run."""
    possible = [on for on in runnable.executors if on in STEPPED]
    on = options.on or possible[0]
    if on not in possible:
        raise NotTaken(what=f"{source}, step by step,", on=on, executors=" or ".join(possible))
    stops = stops_of(options)
    if options.script is None and sys.stdin.isatty() and sys.stdout.isatty() and screen_is_there():
        from nki_mlir.stepping.screen import run_on_screen  # start-up: loads what draws on a terminal
        return run_on_screen(lambda front: runnable.stepped(on, Debugger(front, stops, options.step), options.at_level))
    with ExitStack() as stack:
        script = sys.stdin
        if options.script not in (None, "-"):
            try:
                script = stack.enter_context(open(options.script, encoding="utf-8", errors="replace"))
            except OSError as error:
                raise SourceError(f"{options.script}: {error.strerror}") from None
        debugger = Debugger(TextFront(script, sys.stdout, echo=not script.isatty()), stops, options.step)
        try:
            results = runnable.stepped(on, debugger, options.at_level)
        except Quit:
            return None
    for line in [b for b in stops.lines if b not in debugger.reached]:
        nearest_lines = ", ".join(f"{line.file}:{number}" for number in line.nearest(debugger.passed))
        print(f"warning: the run never came to {line.file}:{line.line}"
              + f"; the nearest operations are at {nearest_lines}" * bool(nearest_lines), file=sys.stderr)
    for name in [name for name in stops.watched if name not in debugger.tiles]:
        print(f"warning: the run has no tile {name}", file=sys.stderr)
    return results


def stops_of(options: argparse.Namespace) -> Stops:
    """Return the lines, tiles and values at which the options stop."""
    try:
        lines = [source_line(text) for text in options.breaks]
    except CommandError as error:
        raise SourceError(f"--break: {error}") from None
    return Stops(lines, list(options.watch), list(options.break_on))


def screen_is_there() -> bool:
    """Return whether the library that draws the screen is installed."""
    from importlib.util import find_spec  # start-up: imported on first use
    return find_spec("textual") is not None
