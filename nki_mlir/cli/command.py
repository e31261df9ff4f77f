# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options and the error handling that every command has: ``--version``, ``--completion SHELL``, ``--load-plugin
MODULE``.

``--completion`` prints a script that it derives from the command's parser. Plugins load before the command parses
its options, because they add values of options.

A command prints errors as ``FILE:LINE:COL: error: ...`` on standard error and ends with status 1, or 2 for an error
of the command line. A mistake in the user's Python is such a line as well, with the user's source location. An
exception of the toolchain itself keeps its traceback: it is a defect.
"""

import argparse
import atexit
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from typing import Any, NoReturn

from nki_mlir import extensions
from nki_mlir.alone import skip_last_collection
from nki_mlir.cli.python_state import with_python_restored
from nki_mlir.diagnostics import Location, NkiMlirError, text_of
from nki_mlir.files import shown
from nki_mlir.input_limits import limited_time
from nki_mlir.progress import ProgressLine, is_read, show_progress
from nki_mlir.version import __version__

LEVELS = 0, 1, 3                # values of -O: how long to search for a fast order of instructions

SHELLS = ("bash", "zsh", "fish")


CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)$")      # argparse's message


class CommandLineError(NkiMlirError):
    """An error in the command line, which ends a command with status 2."""


class _Print(argparse.Action):
    """The action of ``--completion``: print the script and end the command."""

    def __call__(self, parser: argparse.ArgumentParser, options: argparse.Namespace,
                 value: str | Sequence[object] | None,
                 option_string: str | None = None) -> None:
        parser._print_message(script(parser, str(value)), sys.stdout)
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests the nearest option for a misspelled one. It does not accept abbreviated options."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False} | settings)

    def error(self, message: str) -> NoReturn:
        kind, _, words = message.partition("unrecognized arguments: ")
        if words and not kind:
            for word in words.split():
                option = word.partition("=")[0]
                if option.startswith("-") and (similar := get_close_matches(option, self._option_string_actions, 1)):
                    message += f"; did you mean {similar[0]}?"
        if choice := CHOICE.search(message):
            similar = get_close_matches(choice[1], re.findall(r"'?([\w.-]+)'?", choice[2]), 1)
            message += f"; did you mean {similar[0]}?" if similar else ""
        super().error(message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help, version or script. End the command with status 1 where the output is full or closed, which
        argparse ignores."""
        try:
            if file is not None:
                file.write(message)
                file.flush()
        except OSError as error:
            drop_output()
            sys.exit(1 if isinstance(error, BrokenPipeError) else fail(OutputFailed(reason=error.strerror)))


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add ``--version`` and ``--completion`` to a command's options."""
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--completion", choices=SHELLS, action=_Print, default=argparse.SUPPRESS,
                        help=f'print a script for completion in a shell: eval "$({parser.prog} --completion bash)"')


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script for a shell. Options with a fixed set of values complete them after ``=``."""
    words, name = [], parser.prog
    if shell == "fish":
        return "".join(f"complete -c {name} {fish_completion(action)}\n" for action in parser._actions
                       if action.option_strings)
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


def fish_completion(action: argparse.Action) -> str:
    """Return an option's arguments to ``complete`` of fish, with its values where it has a fixed set."""
    names = [f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}" for option in action.option_strings]
    words = [str(choice) for choice in action.choices or ()]
    return " ".join([*names, *([f"-x -a '{' '.join(words)}'"] if words else [])])


# -- plugins -----------------------------------------------------------------------------------------------------------
LOAD_PLUGIN = "--load-plugin"


def add_plugins(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add ``--load-plugin`` to a command's options."""
    parser.add_argument(LOAD_PLUGIN, action="append", default=[], metavar="MODULE",
                        help="load a plugin that is not installed: a module of the path or of this directory; may be "
                             "repeated")


def load_plugins(arguments: Sequence[str]) -> None:
    """Load the plugins that the arguments name. A plugin that does not load ends the command with status 1."""
    named = [after for text, after in zip(arguments, [*arguments[1:], ""]) if text == LOAD_PLUGIN]
    named += [text.partition("=")[2] for text in arguments if text.startswith(f"{LOAD_PLUGIN}=")]
    for module in named:
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            if any(extension.group == "passes" for extension in extensions.add(module)):
                from nki_mlir.passes.pass_manager import check_plugin_files  # start-up: loads MLIR
                check_plugin_files()
        except NkiMlirError as error:
            print(error, file=sys.stderr)
            sys.exit(1)


def targets_of_plugins() -> str:
    """Return a text for the help of ``--target`` that lists the targets which plugins add."""
    names = extensions.of("targets")
    return f"; of plugins: {', '.join(names)}" if names else ""


# -- the checker of streams --------------------------------------------------------------------------------------------
def add_check(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-check``, which skips the checker of streams."""
    parser.add_argument("--no-check", dest="check_streams", action="store_false",
                        help="accept instruction streams from a file without the proof that their waits order all "
                             "accesses")


# -- exit status of a command ------------------------------------------------------------------------------------------
class KernelRaised(NkiMlirError):
    code = "NKI-KERNEL-RAISED"
    message = "{kind}: {text}"
    fix = "{instead}"


class DirectoryRemoved(NkiMlirError):
    code = "NKI-DIRECTORY"
    message = "the current directory no longer exists, and a relative file name starts from it"
    fix = "change to another directory"


class OutputFailed(NkiMlirError):
    code = "NKI-OUTPUT"
    message = "the output cannot be written: {reason}"
    fix = "free some space, or write to another file"


class HostLimit(NkiMlirError):
    code = "NKI-HOST-LIMIT"
    message = "a limit of the process is reached: {reason}"
    fix = "raise the limit, for example that of open files with ulimit -n, or end other programs"


class HostMemory(NkiMlirError):
    code = "NKI-MEMORY"
    message = "the machine has too little memory{what}"
    fix = "give smaller tensors, or raise the limit of the process (ulimit -v)"


def command_line(arguments: Sequence[str] | None) -> list[str]:
    """Return the arguments of a command: ``arguments``, or the process's arguments, if the process runs only this
    command."""
    if arguments is not None:
        return list(arguments)
    skip_last_collection()
    atexit.register(drop_captures)
    return sys.argv[1:]


def words_of_program(words: list[str]) -> list[str]:
    """Return the program to start and its arguments, without the ``--`` before them, which argparse leaves."""
    return words[1:] if words[:1] == ["--"] else words


def drop_captures() -> None:
    """Drop the captures of kernels. Python's garbage collections at the end of a process that ran foreign code would
    otherwise traverse all of their objects."""
    cache = sys.modules.get("nki_mlir.language.call_cache")
    if cache is not None:
        cache.drop_captures()


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)       # or closed
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)            # open files, processes, memory


def drop_output() -> None:
    """Redirect standard output to nothing: Python flushes it once more as it exits, which would fail again."""
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)
    except (OSError, ValueError):               # standard output is not a file of the system
        pass


def exit_status(command: Callable[[], int], reads_data: bool = False) -> int:
    """Run a command, print the error that ends it, and return the exit status (130 after Ctrl-C). The time is limited
    if the command ``reads_data`` from files."""
    show_progress(ProgressLine(restarts=False) if is_read() else None)
    try:
        with limited_time() if reads_data else nullcontext():
            status = with_python_restored(command)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except NkiMlirError as error:
        return fail(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()
        return 1
    except MemoryError as error:
        return fail_of_memory(error)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.filename is None and not has_directory():
            return fail(DirectoryRemoved())
        if error.errno in FULL and raised_at(error) is None:
            drop_output()
            return fail(OutputFailed(reason=error.strerror))
        if error.errno in EXHAUSTED and raised_at(error) is None:
            return fail(HostLimit(reason=error.strerror))
        return fail_of_kernel(error)
    except BaseException as error:                      # a kernel may raise an exception of this class
        return fail_of_kernel(error)
    finally:
        show_progress(None)


def fail_of_kernel(error: BaseException) -> int:
    """Print the exception that a kernel raised at the kernel's line, and return the exit status. Raise an exception of
    the toolchain again."""
    at = raised_at(error)
    if at is None and not isinstance(error, Warning):
        raise error
    from nki_mlir.language.python_errors import fix_of  # start-up: imported on first use
    raised = KernelRaised(kind=type(error).__name__, text=text_of(error), instead=fix_of(error))
    return fail(raised.located(at).with_traceback(error.__traceback__))


def has_directory() -> bool:
    """Return whether the current directory exists: another program may have removed it."""
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def fail(error: NkiMlirError) -> int:
    """Print an error as commands do and return the exit status."""
    if error.at is not None and error.at.file in ("<unknown>", sys.argv[0], os.path.abspath(sys.argv[0])):
        error.at = None                     # the command itself made the call, not a line of the user
    if "signature" in error.values:         # the arguments of the call that does not fit are options here
        error.values["instead"] += "; arguments are options, for example --arg 128x512xf32 --arg count=2"
    elif error.values.keys() >= {"attribute", "instead"}:               # the use of the constant
        error.values["instead"] = "a tensor, for example --arg 128x512xf32"
    callers = called_by(error)              # compares locations with the absolute paths of the traceback
    if error.at is not None:
        error.at = in_directory(error.at)
    print("\n".join([str(error), *callers]), file=sys.stderr)
    return 2 if isinstance(error, CommandLineError) else 1


def in_directory(at: Location) -> Location:
    """Return the location with a relative path if its file lies below the current directory."""
    return at._replace(file=shown(at.file)) if os.path.isabs(at.file) else at


CALLERS = 4                             # calls that an error shows; a recursive function may have a thousand


def called_by(error: NkiMlirError) -> list[str]:
    """Return a line with the functions that called the one in which an error was raised; none if the kernel itself
    raised it."""
    if error.at is None or error.__traceback__ is None:
        return []
    from nki_mlir.capture import locations  # start-up: imported on first use
    callers = [f"{name} ({in_directory(at)})" for name, at in locations.callers(error.__traceback__, error.at)]
    more = [f"{len(callers) - CALLERS} more"] if len(callers) > CALLERS else []
    return [f"  called by: {', '.join(callers[:CALLERS] + more)}"] if callers else []


def fail_of_memory(error: MemoryError) -> int:
    """Report as an error that memory is short, and return the exit status."""
    return fail(HostMemory(what=f": {error}" if str(error) else ""))


def is_kernel(source: str) -> bool:
    """Return whether the argument names a function of a Python file."""
    return ".py:" in source or source.endswith(".py")


def raised_at(error: BaseException) -> Location | None:
    """Return the user's line that raised an exception, directly or in a library, or for which the toolchain warned, if
    a filter makes warnings errors. Return None where the toolchain raised it."""
    from nki_mlir.capture import locations  # start-up: imported on first use
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    user_files = [file for file in files if locations.is_toolchain(file) or not locations.is_passed[file]]
    of_toolchain = bool(user_files) and locations.is_toolchain(user_files[-1]) and not isinstance(error, Warning)
    return None if of_toolchain else locations.raised_at(error.__traceback__)
