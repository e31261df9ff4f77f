# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Show the debugger as a screen of the terminal: source, tiles, engines, semaphores, queues, and an input line.

The run has a separate thread, which waits at each stop for commands from the screen.
"""

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.syntax import Syntax
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import DataTable, Footer, Input, RichLog, Static, TabbedContent, TabPane

from nki_mlir.capture.source_text import source_of
from nki_mlir.stepping.commands import Commands, headline
from nki_mlir.stepping.debugger import Debugger, Front, Quit
from nki_mlir.stepping.moment import Moment, Table

if TYPE_CHECKING:
    Results = list[tuple[str, np.ndarray]]

AROUND = 12                     # lines of source on either side
VALUES = 6                      # most values in a tile's row
TILES = Table("tiles", ("tile", "shape", "dtype", "memory", "partition, byte", "values"), [])


class DebuggerScreen(App[Any]):
    """The screen of one run. It returns the run's result, or None if the user ended the run."""

    CSS = """
    #where { background: $primary; color: $text; height: auto; padding: 0 1; }
    #source { width: 1fr; border-right: solid $primary; }
    #said { height: 8; border-top: solid $primary; }
    """
    BINDINGS = [Binding("f11", "send('step')", "step", priority=True),
                Binding("f10", "send('next')", "next line", priority=True),
                Binding("f8", "send('continue')", "continue", priority=True),
                Binding("f1", "send('help')", "help", priority=True),
                Binding("ctrl+q", "send('quit')", "end the run", priority=True)]

    def __init__(self, run: "Callable[[Front], Results]") -> None:
        super().__init__()
        self.run_it, self.sent = run, queue.SimpleQueue[str]()
        self.commands = Commands(lambda text: self.call_from_thread(self.say, text))
        self.debugger: Debugger | None = None
        self.failure: BaseException | None = None
        self.stops = 0                      # number of stops of the run
        self.is_stopped = False

    def compose(self) -> ComposeResult:
        yield Static("runs ...", id="where", markup=False)
        with Horizontal():
            with VerticalScroll(id="source"):
                yield Static(id="lines")
            with TabbedContent(id="tables"):
                for name in ("tiles", "engines", "semaphores", "queues"):
                    with TabPane(name, id=f"pane-{name}"):
                        yield DataTable(id=name, cursor_type="row")
        yield RichLog(id="said", wrap=True, markup=False)
        yield Input(placeholder="a command: print tile[0, :4], break 31, watch tile, rows sbuf 0, help", id="command")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#command", Input).focus()
        threading.Thread(target=self.work, daemon=True, name="stepped run").start()

    # -- the run's thread ----------------------------------------------------------------------------------------------
    def work(self) -> None:
        result = None
        try:
            result = self.run_it(self)
        except Quit:
            pass
        except BaseException as error:                  # raised again after the screen has ended
            self.failure = error
        if self.is_running:
            self.call_from_thread(self.exit, result)

    def stopped(self, debugger: Debugger, moment: Moment, reason: str) -> None:
        """Show a stop and wait for a command."""
        self.debugger = debugger
        tiles = [tile_row(tile) for tile in debugger.tiles.values()]
        tables = [Table(TILES.title, TILES.head, tiles), *moment.machine.tables()]
        self.call_from_thread(self.show, moment, reason, tables)
        while not self.commands.perform(self.sent.get(), debugger, moment):
            pass
        self.call_from_thread(self.go_on)

    # -- the screen's thread -------------------------------------------------------------------------------------------
    def show(self, moment: Moment, reason: str, tables: list[Table]) -> None:
        self.stops, self.is_stopped = self.stops + 1, True
        self.query_one("#where", Static).update(headline(moment, reason))
        if moment.at is not None and (lines := source_of(moment.at.file).lines):
            first_line, last_line = max(1, moment.at.line - AROUND), min(len(lines), moment.at.line + AROUND)
            self.query_one("#lines", Static).update(Syntax(
                "".join(lines), "python", line_numbers=True, line_range=(first_line, last_line), theme="ansi_dark",
                highlight_lines={moment.at.line}))
        for table in tables:
            shown = self.query_one(f"#{table.title}", DataTable)
            shown.clear(columns=True)
            shown.add_columns(*table.head)
            shown.add_rows(table.rows)

    def go_on(self) -> None:
        self.is_stopped = False
        self.query_one("#where", Static).update("runs ...")

    def say(self, text: str) -> None:
        self.query_one("#said", RichLog).write(text)

    def action_send(self, command: str) -> None:
        """Perform a command at this stop, or at the next one."""
        if command == "quit" and self.debugger is not None:
            self.debugger.step(1)               # a running kernel ends at its next operation
        self.sent.put(command)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.say(f"> {event.value}")
            self.sent.put(event.value)
        event.input.clear()


def tile_row(tile: Any) -> tuple[str, ...]:
    """Return a tile as a row of the table, with its first values."""
    values = np.asarray(tile.values()).reshape(-1)
    first_values = " ".join(f"{float(v):.4g}" for v in values[:VALUES])
    address = "" if tile.address is None else f"{tile.address[0]}, {tile.address[1]}"
    return (tile.name, "x".join(map(str, tile.shape)), tile.dtype, tile.memory, address,
            first_values + (" ..." if values.size > VALUES else ""))


def run_on_screen(run: "Callable[[Front], Results]") -> "Results | None":
    """Run on the screen. Return the results, or None if the user ended the run."""
    screen = DebuggerScreen(run)
    results: Results | None = screen.run()
    if screen.failure is not None:
        raise screen.failure
    return results
