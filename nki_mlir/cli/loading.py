# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--load-plugin MODULE``: what plugins add, before a command's options are read, among which are names of theirs."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nki_mlir import extensions
from nki_mlir.diagnostics import NkiMlirError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _ArgumentGroup

OPTION = "--load-plugin"


def add_plugins(parser: "ArgumentParser | _ArgumentGroup") -> None:
    """The option."""
    parser.add_argument(OPTION, action="append", default=[], metavar="MODULE",
                        help="load a plugin that is not installed, a module of the path or of this directory; repeated")


def load_plugins(arguments: Sequence[str]) -> None:
    """Load those that the arguments name. One that cannot be loaded ends the command."""
    named = [after for text, after in zip(arguments, [*arguments[1:], ""]) if text == OPTION]
    named += [text.partition("=")[2] for text in arguments if text.startswith(f"{OPTION}=")]
    for module in named:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            extensions.add(module)
        except NkiMlirError as error:
            print(error, file=sys.stderr)
            sys.exit(1)


def of_plugins(group: str) -> str:
    """What plugins add to the values of an option, for its help."""
    names = extensions.of(group)
    return f"; of plugins: {', '.join(names)}" if names else ""
