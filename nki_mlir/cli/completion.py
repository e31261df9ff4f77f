# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Options of every command: ``--version``, and ``--completion SHELL``, a script that completes options and files.

The script is made from the command's parser.
"""

import argparse
from collections.abc import Sequence

from nki_mlir.version import __version__

SHELLS = ("bash", "zsh", "fish")


class _Print(argparse.Action):
    """Prints the script and ends the command, as ``--version`` does."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace,
                 value: str | Sequence[object] | None,
                 option_string: str | None = None) -> None:
        print(script(parser, str(value)), end="")
        parser.exit()


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--completion", choices=SHELLS, action=_Print, default=argparse.SUPPRESS,
                        help=f'print what completes its options in a shell: eval "$({parser.prog} --completion bash)"')


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The text for a shell. Options that take one of some words complete those after ``=``."""
    words, name = [], parser.prog
    if shell == "fish":
        return "".join(f"complete -c {name} {fish(action)}\n" for action in parser._actions if action.option_strings)
    for action in parser._actions:
        for option in action.option_strings:
            words.append(option)
            words += [f"{option}={choice}" for choice in action.choices or () if option.startswith("--")]
    function = f"_{name.replace('-', '_')}"
    lines = [f"{function}() {{",
             '    local word="${COMP_LINE:0:COMP_POINT}"; word="${word##* }"',
             f"    local words='{' '.join(words)}'",
             '    if [[ $word == -* ]]; then',
             '        COMPREPLY=($(compgen -W "$words" -- "$word"))',
             '        [[ $word == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")',
             '    else COMPREPLY=($(compgen -f -- "$word")); fi', "}",
             f"complete -F {function} {name}", ""]
    head = ["autoload -U +X bashcompinit && bashcompinit"] if shell == "zsh" else []
    return "\n".join([*head, *lines])


def fish(action: argparse.Action) -> str:
    """An option, with its words where it takes one of some, as ``complete`` of fish takes it."""
    names = [f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}" for option in action.option_strings]
    words = [str(choice) for choice in action.choices or ()]
    return " ".join([*names, *([f"-x -a '{' '.join(words)}'"] if words else [])])
