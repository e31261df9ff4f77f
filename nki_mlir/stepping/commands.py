# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read and perform the debugger's commands: from standard input, a script, or the input line of the screen."""

import linecache
from collections.abc import Callable, Iterator
from typing import TextIO

import numpy as np

from nki_mlir.diagnostics import Location, line_prefix
from nki_mlir.files import shown
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.stepping.debugger import NOT_FINITE, Breakpoint, Debugger, Quit
from nki_mlir.stepping.moment import Moment, Table

HELP = """step [N]              N operations (s)
next                  to another source line (n)
continue              to the next breakpoint or watched change (c)
print EXPRESSION      of NumPy, with tiles as arrays: print tile[0, :4].max() (p)
tiles                 every tile that is known (t)
where                 the operation, and its source (w)
break [FILE:]LINE     stop at a line (b); clear removes all stops
watch NAME            stop where a tile changes
break-on nan|inf      stop where one is written
engines, semaphores, queues       of the simulator (e)
rows MEMORY PARTITION [BYTE [COUNT]]   bytes of sbuf or psum, of the simulator
quit                  end the run (q)
"""
SHORT = {"s": "step", "n": "next", "c": "continue", "p": "print", "t": "tiles", "w": "where", "b": "break",
         "e": "engines", "q": "quit", "h": "help", "?": "help"}
AROUND = 2                      # lines of source that are shown on either side


class CommandError(Exception):
    """A command that cannot be performed; the text says why."""


def headline(moment: Moment, reason: str) -> str:
    """Return one line that says where a run has stopped, with a relative path below the current directory."""
    where = line_prefix(moment.at and moment.at._replace(file=shown(moment.at.file)))
    return f"{where}{moment.text}  [{reason}]"


def source_lines(at: Location | None, around: int = AROUND) -> list[str]:
    """Return the source lines around a location, with a mark at its line."""
    if at is None:
        return []
    numbers = range(max(1, at.line - around), at.line + around + 1)
    return [f"{'>' if n == at.line else ' '} {n:4} {line.rstrip()}" for n in numbers
            if (line := linecache.getline(at.file, n))]


def table_lines(table: Table) -> Iterator[str]:
    """Format a table; each column is as wide as its longest cell."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(table.head))]
    yield from (("  ".join(cell.ljust(width) for cell, width in zip(row, widths))).rstrip() for row in rows)


class Commands:
    """Performs commands one after the other; ``say`` shows their text."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def perform(self, line: str, debugger: Debugger, moment: Moment) -> bool:
        """Perform a command, and show its errors. Return whether the run continues."""
        word, _, argument = line.strip().partition(" ")
        word, argument = SHORT.get(word, word), argument.strip()
        try:
            return self._perform(word, argument, debugger, moment)
        except CommandError as error:
            self.say(f"error: {error}")
        return False

    def _perform(self, word: str, argument: str, debugger: Debugger, moment: Moment) -> bool:
        match word:
            case "step":
                debugger.step(positive(argument or "1"))
                return True
            case "next":
                debugger.next_line(moment)
                return True
            case "continue":
                return True
            case "quit":
                raise Quit("the run ended at a stop")
            case "print":
                self.say(str(evaluated(argument, debugger.names(moment))))
            case "tiles":
                self.say("\n".join(str(tile) for tile in debugger.tiles.values()) or "no tiles yet")
            case "where":
                self.say("\n".join([headline(moment, "here"), *source_lines(moment.at)]))
            case "break":
                debugger.stops.lines.append(source_line(argument, moment.at))
            case "watch":
                debugger.stops.watched.append(argument)
            case "break-on":
                debugger.stops.values.append(kind_of_value(argument))
            case "clear":
                debugger.stops.lines.clear()
                debugger.stops.watched.clear()
                debugger.stops.values.clear()
            case "engines" | "semaphores" | "queues":
                tables = [t for t in moment.machine.tables() if t.title == word]
                if not tables:
                    raise CommandError(f"{moment.executor} has no {word}: run with --on=isa")
                self.say("\n".join(table_lines(tables[0])))
            case "rows":
                self.say(row_text(argument, moment))
            case "help":
                self.say(HELP.rstrip())
            case "":
                pass
            case _:
                raise CommandError(f"there is no command '{word}'; help lists them")
        return False


def positive(text: str) -> int:
    if not text.isdecimal() or len(text) > 12 or not int(text):
        raise CommandError(f"'{text}' is not a number of operations")
    return int(text)


def source_line(text: str, at: Location | None = None) -> Breakpoint:
    """Parse ``FILE:LINE``, or a line number in the file that the run is in."""
    file, _, line = text.rpartition(":")
    if not line.isdecimal() or len(line) > 12 or not (file or at):
        raise CommandError(f"'{text}' is not a FILE:LINE")
    return Breakpoint(file or (at.file if at else ""), int(line))


def kind_of_value(text: str) -> str:
    if text not in NOT_FINITE:
        raise CommandError(f"'{text}' is none of {', '.join(NOT_FINITE)}")
    return text


def evaluated(text: str, names: dict[str, object]) -> object:
    """Evaluate an expression of NumPy."""
    try:
        return eval(text, {"np": np, **names})          # the user of the debugger types the text
    except Exception as error:
        raise CommandError(f"{type(error).__name__}: {error}") from None


def row_text(text: str, moment: Moment) -> str:
    """Format the bytes of a partition, sixteen on each line."""
    memory, *numbers = text.split() or [""]
    if not 1 <= len(numbers) <= 3 or not all(n.isdecimal() and len(n) < 12 for n in numbers):
        raise CommandError("rows MEMORY PARTITION [BYTE [COUNT]], for example rows sbuf 0 4096 64")
    partition, start, count = (*map(int, numbers), *(0, 64)[len(numbers) - 1:])
    content = moment.machine.row(memory, partition, start, count)
    if content is None:
        raise CommandError(f"{moment.executor} has no bytes {start} to {start + count} of partition {partition} of "
                           f"'{memory}'")
    return "\n".join(f"{memory} {partition} {start + k:6}: {content[k:k + 16].tobytes().hex(' ', 4)}"
                     for k in range(0, len(content), 16))


class TextFront:
    """Reads commands from a file. After its end the run continues, and prints each stop.

    ``echo``: print the commands that it reads, like a terminal that shows what a person types.
    """

    def __init__(self, script: TextIO, out: TextIO, echo: bool) -> None:
        self.script, self.out, self.echo = script, out, echo
        self.commands = Commands(lambda text: print(text, file=out, flush=True))
        self.ended = False

    def stopped(self, debugger: Debugger, moment: Moment, reason: str) -> None:
        print(headline(moment, reason), file=self.out)
        is_first = True
        while not self.ended:
            if not self.echo:
                self.prompt(moment, is_first)
            line = self.script.readline(TEXT_BYTES.value() + 1)
            TEXT_BYTES.check(len(line), "a command", "<script>")
            if not line:
                self.ended = True
                if not self.echo:
                    print(file=self.out)
                break
            if self.echo:
                self.prompt(moment, is_first)
                print(line.rstrip(), file=self.out)
            is_first = False
            if self.commands.perform(line, debugger, moment):
                return
        debugger.resume()

    def prompt(self, moment: Moment, is_first: bool) -> None:
        """Print the source of the stop before its first command, and ask for a command."""
        if is_first:
            print(*source_lines(moment.at, 0), sep="\n", file=self.out)
        print("(step) ", end="", file=self.out, flush=True)
