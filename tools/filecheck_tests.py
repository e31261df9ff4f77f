# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pytest plugin that runs FileCheck tests (``.mlir``) in this process: each RUN line of pipelines is a test.

lit starts processes, which do not have the mutant that a process has loaded (``tools/direct_mutants.py``).
"""

import importlib
import io
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from .seeding import ROOT

MODULES = {"nki-opt": "nki_mlir.cli.opt", "nki-run": "nki_mlir.cli.run", "nki-translate": "nki_mlir.cli.translate"}


BOTH = "with-errors"            # the last word of a command whose errors go to its output


class FailedCommand(Exception):
    """A command of a RUN line that does not end with status 0."""


def substitutions() -> dict[str, str]:
    """Return the words that lit replaces, without those of commands."""
    config = SimpleNamespace(environment={}, available_features=set(), substitutions=[])
    file = ROOT / "lit_tests" / "lit.cfg.py"
    exec(compile(file.read_text(), file, "exec"), {"config": config, "__file__": str(file)})
    return {name: text for name, text in config.substitutions if name.startswith("%")}


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return FileCheckFile.from_parent(parent, path=file_path) if file_path.suffix == ".mlir" else None


class FileCheckFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        words = {"%s": str(self.path), "%S": str(self.path.parent), **substitutions()}
        for number, line in enumerate(re.findall(r"// RUN: (.*)", self.path.read_text()), 1):
            for word in sorted(words, key=len, reverse=True):
                line = line.replace(word, words[word])
            lexer = shlex.shlex(line.replace("2>&1", BOTH), posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            tokens = [*lexer]
            if not {"&&", ">", ">&", "<", ";"}.intersection(tokens):
                yield RunLine.from_parent(self, name=f"RUN {number}", tokens=tokens)


class RunLine(pytest.Item):
    """A RUN line that is one pipeline."""

    def __init__(self, *, tokens: list[str], **settings: object) -> None:
        super().__init__(**settings)            # type: ignore[arg-type]
        self.tokens = tokens

    def runtest(self) -> None:
        text, tokens = "", self.tokens
        while tokens:
            end = tokens.index("|") if "|" in tokens else len(tokens)
            text, tokens = execute(tokens[:end], text), tokens[end + 1:]


def execute(command: Sequence[str], text: str) -> str:
    """Run one command with a text as its standard input, and return its output."""
    negated, environment, words = False, {}, [*command]
    while words[0] in ("not", "env") or "=" in words[0]:
        negated |= words[0] == "not"
        name, _, value = words.pop(0).partition("=")
        environment |= {name: value} if value else {}
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    if words[-1] == BOTH:
        del words[-1]
        errors = output
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, environment))
        stack.enter_context(mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8")))
        stack.enter_context(redirect_stdout(output))
        stack.enter_context(redirect_stderr(errors))
        try:
            if words[0] == "FileCheck":
                importlib.import_module("filecheck.main").main(words)
                status = 0
            else:
                status = importlib.import_module(MODULES[words[0]]).main(words[1:])
        except SystemExit as end:
            status = int(end.code or 0)
    printed, failed = (stream.buffer.getvalue().decode() for stream in (output, errors))    # type: ignore[attr-defined]
    if bool(status) is not negated:
        raise FailedCommand(f"{shlex.join(command)} ends with status {status}\n{printed[-2000:]}{failed[-2000:]}")
    return printed
