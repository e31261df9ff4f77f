# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of ``--pass-pipeline``: passes with options, nested as in MLIR."""

import re

from nki_mlir.diagnostics import NkiMlirError

NAMED = re.compile(r"([\w-]+)\s*(?:\{(.*)\})?", re.DOTALL)
NESTED = re.compile(r"[\w.]+\s*\(.*\)", re.DOTALL)
CLOSING = {"}": "{", ")": "("}

# Passes of MLIR that nki-opt --help lists; a pipeline may have all of them.
MLIR_PASSES = {"canonicalize": "simplify operations to their canonical form",
               "cse": "compute equal operations once",
               "loop-invariant-code-motion": "move invariant operations out of loops",
               "sccp": "propagate constants through branches",
               "symbol-dce": "drop functions and globals that nothing uses",
               "inline": "inline calls",
               "strip-debuginfo": "drop locations"}


class MalformedPipeline(NkiMlirError, ValueError):
    code = "NKI-PASS-LIST"
    message = "'{text}' is not a list of passes such as A,B{{x=1 y=2}}"
    fix = "close each bracket, and put a comma between two passes"


def split_pipeline(text: str) -> list[tuple[str, str]]:
    """Split ``a,b{x=1 y=2}`` into (name, options) pairs; ``builtin.module(...)`` may be around it.

    A nest on another operation, ``func.func(cse)``, is a pass of MLIR's of that name.
    """
    inner = re.fullmatch(r"\s*builtin\.module\((.*)\)\s*", text, re.DOTALL)
    passes = []
    for part in commas(inner[1] if inner else text, text):
        named = NAMED.fullmatch(part)
        if named:
            passes.append((named[1], named[2] or ""))
        elif NESTED.fullmatch(part):
            passes.append((part, ""))
        else:
            raise MalformedPipeline(text=text)
    return passes


def commas(text: str, pipeline: str) -> list[str]:
    """Split a text at the commas outside of brackets."""
    parts, opened = [""], list[str]()
    for letter in text:
        if letter in "{(":
            opened.append(letter)
        elif letter in CLOSING and (not opened or opened.pop() != CLOSING[letter]):
            raise MalformedPipeline(text=pipeline)
        if letter == "," and not opened:
            parts.append("")
        else:
            parts[-1] += letter
    if opened:
        raise MalformedPipeline(text=pipeline)
    return [part.strip() for part in parts]
