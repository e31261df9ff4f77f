# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The debugger's screen, driven by the library's own pilot."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from nki_mlir.stepping.debugger import Debugger, Stops
from nki_mlir.stepping.run import step_kernel

from .kernels import bound_to, current_logs

textual = pytest.importorskip("textual")

from textual.widgets import DataTable, RichLog, Static  # noqa: E402  where it is installed

from nki_mlir.stepping.screen import DebuggerScreen  # noqa: E402

ROUNDS = 6000                   # of 10 ms: how long a busy machine may take for a stop


def screen_of(on: str, stops: Stops, step: bool = False) -> DebuggerScreen:
    return DebuggerScreen(lambda front: step_kernel(current_logs, bound_to(current_logs), on,
                                                    Debugger(front, stops, step)))


async def until(pilot, holds: Callable[[], bool]) -> None:
    for _ in range(ROUNDS):
        if holds():
            return
        await pilot.pause(0.01)
    raise AssertionError("the screen did not get there")


def test_screen__shows_a_stop_and_takes_commands() -> None:
    async def drive() -> None:
        screen = screen_of("eager", Stops(watched=["shifted"]))
        async with screen.run_test(size=(160, 48)) as pilot:
            await until(pilot, lambda: screen.is_stopped)
            assert "shifted changes in 7 elements" in str(screen.query_one("#where", Static).render())
            tiles = screen.query_one("#tiles", DataTable)
            rows = [tiles.get_row_at(n) for n in range(tiles.row_count)]
            assert ["shifted", "2x4", "float32", "sbuf", "", "-3 -2 -1 0 1 2 ..."] in [list(r) for r in rows]
            await pilot.press(*"print shifted[1, 3]", "enter")
            said = screen.query_one("#said", RichLog)
            await until(pilot, lambda: any("4.0" in str(line.text) for line in said.lines))
            await pilot.press("f8")
            await until(pilot, lambda: not screen.is_running)
        (_, result), = screen.return_value
        assert np.isnan(result[0, 0]) and result[1, 0] == 0
    asyncio.run(drive())


def test_screen__steps_through_streams() -> None:
    async def drive() -> None:
        screen = screen_of("isa", Stops(), step=True)
        async with screen.run_test(size=(160, 48)) as pilot:
            for stop in range(1, 4):
                await until(pilot, lambda stop=stop: screen.is_stopped and screen.stops == stop)
                engines, semaphores = screen.query_one("#engines", DataTable), screen.query_one("#semaphores", DataTable)
                assert [engines.get_row_at(n)[0] for n in range(engines.row_count)] == ["act", "dve", "sp"]
                assert semaphores.row_count >= 3
                await pilot.press("f11")
            await until(pilot, lambda: screen.is_stopped and screen.stops == 4)
            await pilot.press("ctrl+q")
            await until(pilot, lambda: not screen.is_running)
        assert screen.return_value is None and screen.failure is None
    asyncio.run(drive())
