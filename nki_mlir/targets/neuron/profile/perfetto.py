# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as a trace in Chrome's JSON form, which ui.perfetto.dev opens.

A process is a core, a thread an engine or a DMA queue; semaphores that were waited for are arrows; SBUF, PSUM, the
bytes to and from HBM and the speed of an engine with a ramp are counters.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import PurePath

from nki_mlir.targets.neuron.profile.document import Document

Event = dict[str, object]


def trace(document: Document) -> bytes:
    """Return the compressed trace."""
    notes = document["notes"]
    text = json.dumps({"displayTimeUnit": "ns", "otherData": {"kernel": document["timing"]["kernel"], "notes": notes},
                       "traceEvents": list(events(document))}, separators=(",", ":"))
    return gzip.compress(text.encode(), 5, mtime=0)


def events(document: Document) -> Iterator[Event]:
    """Yield all events of the trace: names, slices, arrows, counters, notes."""
    tracks = document["tracks"]
    for core in range(len(document["memory"]["cores"])):
        yield {"ph": "M", "name": "process_name", "pid": core, "tid": 0, "args": {"name": f"core {core}"}}
    for number, track in enumerate(tracks):
        names = {"pid": track["core"], "tid": number + 1}
        yield {"ph": "M", "name": "thread_name", **names, "args": {"name": track["name"]}}
        yield {"ph": "M", "name": "thread_sort_index", **names, "args": {"sort_index": number}}
    yield from _groups(document)
    yield from _slices(document)
    yield from _arrows(document)
    yield from _counters(document)
    for note in document["notes"]:
        yield {"ph": "i", "s": "g", "name": note, "pid": 0, "tid": 0, "ts": 0.0}


def _groups(document: Document) -> Iterator[Event]:
    """Yield the operations and kernels of a linked program; they overlap, which these events may."""
    if len(document["groups"]) < 2:
        return
    for number, group in enumerate(document["groups"]):
        for phase, time in (("b", group["begin"]), ("e", group["end"])):
            yield {"ph": phase, "cat": "group", "id": f"group {number}", "name": group["name"], "pid": 0, "tid": 0,
                   "ts": time / 1e3}


def _slices(document: Document) -> Iterator[Event]:
    slices, instructions, lines = document["slices"], document["instructions"], document["lines"]
    names = []
    for name, line in zip(instructions["name"], instructions["line"]):
        row = lines[line] if line >= 0 else None
        names.append(f"{name} {PurePath(row['file']).name}:{row['line']}" if row else name)
    for track, begin, end, number, cause, stalled, count in zip(*(slices[name] for name in (
            "track", "begin", "end", "instruction", "cause", "stalled", "count"))):
        arguments: dict[str, object] = {"instruction": instructions["text"][number]}
        if stalled:
            arguments.update(waited_for=document["causes"][cause], waited_ns=stalled)
        yield {"ph": "X", "name": names[number] if count == 1 else f"{count} instructions, longest {names[number]}",
               "pid": document["tracks"][track]["core"], "tid": track + 1, "ts": begin / 1e3,
               "dur": (end - begin) / 1e3, "args": arguments}


def _arrows(document: Document) -> Iterator[Event]:
    slices, tracks = document["slices"], document["tracks"]
    for number, (source, target) in enumerate(document["edges"]):
        for phase, at, extra in (("s", source, {}), ("f", target, {"bp": "e"})):
            track = slices["track"][at]
            yield {"ph": phase, "id": number, "cat": "semaphore", "name": "semaphore", "pid": tracks[track]["core"],
                   "tid": track + 1, "ts": slices["begin"][at] / 1e3, **extra}


def _counters(document: Document) -> Iterator[Event]:
    for core, memories in enumerate(document["memory"]["cores"]):
        for space, level in memories.items():
            for time, nbytes in zip(level["time"], level["bytes"]):
                yield {"ph": "C", "name": f"{space.upper()} bytes", "pid": core, "ts": time / 1e3,
                       "args": {"bytes": nbytes}}
    for limit in document["limited"]:
        for begin, end in zip(limit["begin"], limit["end"]):
            for time, speed in ((begin, limit["speed"]), (end, 1.0)):
                yield {"ph": "C", "name": f"speed of the {limit['engine']} engine", "pid": limit["core"],
                       "ts": time / 1e3,
                       "args": {"speed": speed}}
    dma = document["dma"]
    for k, rate in enumerate(dma["bytes_per_ns"]):
        yield {"ph": "C", "name": "HBM GB/s", "pid": 0, "ts": k * dma["bin_ns"] / 1e3, "args": {"GB/s": rate}}
