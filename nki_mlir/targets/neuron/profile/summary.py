# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Show a profile on the terminal: engines with bars, the lines with the most time, and advice."""

from pathlib import PurePath
from typing import TextIO

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nki_mlir.targets.neuron.profile.document import Document
from nki_mlir.targets.neuron.timing.result import duration, with_interval

LINES = 8                       # most source lines that are shown
WIDTH = 24                      # characters of a bar


def show(document: Document, out: TextIO, width: int | None = None) -> None:
    """Write the summary."""
    console = Console(file=out, width=width, highlight=False, soft_wrap=True)
    timing, total = document["timing"], document["timing"]["total_ns"]
    cores = f" on {len(timing['cores'])} cores" if len(timing["cores"]) > 1 else ""
    console.print(f"{timing['kernel']} ({timing['target']}{cores}): {with_interval(total, timing['interval_ns'])}, of "
                  f"which {duration(timing['launch_ns'])} launch; {timing['instructions']} instructions, "
                  f"{timing['hbm_bytes'] / 1e6:.1f} MB to and from HBM", markup=False)
    console.print(document["cause"]["text"], markup=False)
    engines = Table(box=None, pad_edge=False, show_header=False)
    for engine, busy in [*timing["busy_ns"].items(), ("dma", timing["dma_ns"])]:
        stalls = sorted(timing["stall_ns"].get(engine, {}).items(), key=lambda item: -item[1])
        waits = ", ".join(f"{cause} {ns / total:.1%}" for cause, ns in stalls if ns / total >= 0.005)
        engines.add_row(engine, Bar(total, 0, busy, width=WIDTH), f"{busy / total:.1%}", Text(waits))
    console.print(engines)
    console.print("critical path:")
    lines = Table(box=None, pad_edge=False, show_header=False)
    for row in sorted(document["lines"], key=lambda row: -row["path_ns"])[:LINES]:
        if row["path_ns"]:
            text = document["files"].get(row["file"], [])
            source = text[row["line"] - 1].strip() if row["line"] <= len(text) else ""
            lines.add_row(Bar(total, 0, row["path_ns"], width=WIDTH), f"{row['path_ns'] / total:.1%}",
                          Text(f"{PurePath(row['file']).name}:{row['line']}", no_wrap=True),
                          Text(source, overflow="ellipsis", no_wrap=True))
    console.print(lines)
    for number, advice in enumerate(document["advice"], 1):
        console.print(f"{number}. {advice['text']}", markup=False)
    for note in document["notes"]:
        console.print(f"note: {note}", markup=False)
