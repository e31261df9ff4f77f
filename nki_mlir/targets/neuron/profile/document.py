# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as one JSON document, which the page and the summary show. docs/profile.md has its schema.

Tables are columns: lists of one length. Times are ns from the launch. The roofline counts the operations of
instructions by the source loops to which they belong.
"""

import ast
import linecache
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import PurePath
from typing import Any

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.isa.instruction import Control, Instruction
from nki_mlir.dialects.source_locations import KERNEL
from nki_mlir.files import is_known_source, shown
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.targets.neuron.profile.iterations import StreamIterations
from nki_mlir.targets.neuron.profile.largest_cause import SourceLine, largest_cause
from nki_mlir.targets.neuron.profile.occupancy import Occupant, held_of, levels
from nki_mlir.targets.neuron.profile.packets import packets_of
from nki_mlir.targets.neuron.profile.semaphore_updates import streams_of_run, updates_of
from nki_mlir.targets.neuron.profile.slices import QUEUE, Slices, Traffic, form_of, operations_of_product, slices_of
from nki_mlir.targets.neuron.profile.source_names import SourceFiles, SourceNames
from nki_mlir.targets.neuron.timing.machine import TimedMachine
from nki_mlir.targets.neuron.timing.path_shares import LAUNCH
from nki_mlir.targets.neuron.timing.record import critical_path
from nki_mlir.targets.neuron.timing.result import timing_of

VERSION = 1
SLICES = 1_000_000              # most slices: more are merged
BINS = 400                      # bins of the bandwidth over time
HELD = 100_000                  # most values on chip that are shown
LEVELS = 200_000                # most times at which a memory's level is shown
Document = dict[str, Any]


def document_of(run: TimedMachine, slice_limit: int = SLICES, texts: bool = True) -> Document:
    """Return the document of a finished run. ``texts``: whether it has the texts of instructions, which figures do not
    need."""
    timing = timing_of(run)
    slices = slices_of(run, texts)
    launch = timing.launch_ns
    instruction_of = [slices.instruction[s] for s in slices.of_event]
    occupants = held_of(run, instruction_of, launch)
    path = _path(run, slices, launch)
    drawn, index = _slices(slices, slice_limit)
    memory, notes = _memory(run, occupants)
    figures, files, lines = timing.figures(), _files(slices), _lines(slices, path)
    roofs = ceilings(run.machine, len(run.cores))
    return {
        "version": VERSION,
        "timing": figures,
        **({"static_descriptors": True} if run.machine.static_descriptors else {}),
        "files": files,
        "lines": lines,
        "groups": _groups(slices),
        "instructions": _instructions(slices),
        "tracks": [{"core": t.core, "name": t.name, "kind": t.kind} for t in slices.tracks],
        **drawn,
        **_iterations(slices.iterations),
        "packets": packets_of(run, {event: index[s] for event, s in slices.of_transfer.items()})._asdict()
        if index else {},
        "semaphores": [[semaphore.name for semaphore in core.program.semaphores] for core in run.cores],
        "streams": streams_of_run(run),
        "updates": updates_of(run, [index[s] for s in slices.of_event], {
            event: index[s] for event, s in slices.of_transfer.items()})._asdict() if index else {},
        "limited": _limited(run, launch),
        "tensors": [{"core": number, "name": v.name, "kind": v.kind, "index": v.index, "dtype": str(v.dtype),
                     "shape": list(v.shape), "bytes": v.nbytes}
                    for number, core in enumerate(run.cores) for v in core.program.variables],
        "notes": timing.notes + drawn["notes"] + notes,
        "path": path,
        "memory": memory,
        "dma": _bandwidth(slices, timing.total_ns),
        "roofline": {"ceilings": roofs, "points": [vars(p) for p in points(run, slices, timing.total_ns)]},
        "cause": largest_cause(figures, lines, files, roofs["hbm_bytes_per_ns"]),
        "advice": [],
    }


def _instructions(slices: Slices) -> Document:
    """Return executed instructions, each distinct one once; those without a source line have the line -1."""
    rows = slices.instructions
    lines = {line: k for k, line in enumerate(_line_names(slices))}
    return {"name": [i.name for i in rows], "text": [i.text for i in rows], "engine": [i.engine for i in rows],
            "core": [i.core for i in rows], "line": [lines.get(i.line, -1) for i in rows],
            "hbm_bytes": [i.transfer_bytes for i in rows], "variable": [i.variable for i in rows],
            "partitions": [i.partitions for i in rows], "passes": [i.passes for i in rows],
            "law": [i.law for i in rows], "origin": [i.location.origin if i.location else "" for i in rows],
            "traffic": {name: [getattr(i.traffic, name) for i in rows] for name in Traffic._fields}}


def _line_names(slices: Slices) -> list[str]:
    located = {(i.location.file, i.location.line) for i in slices.instructions if i.location is not None}
    return [f"{file}:{line}" for file, line in sorted(located)]


def _files(slices: Slices) -> dict[str, list[str]]:
    """Return source text by file name; files that are missing, or that only the input names, have none."""
    return {name: [line.rstrip("\n") for line in linecache.getlines(name)] if is_known_source(name) else []
            for name in sorted({i.location.file for i in slices.instructions if i.location is not None})}


def _iterations(iterations: StreamIterations) -> Document:
    """Return the iterations of loops, and the loops, with names and lines of the source."""
    loops, names = list[Document](), SourceFiles()
    for at, name in iterations.loops:
        loops.append({"variable": names[at.file].variable(at.line) if at else name, "file": at.file if at else "",
                      "line": at.line if at else 0})
    return {"iterations": {"value": iterations.value, "parent": iterations.parent, "loop": iterations.loop},
            "loops": loops}


def _lines(slices: Slices, path: Document) -> list[SourceLine]:
    """Return the figures of each source line: executions, ns of engines and of transfers, bytes, ns of the critical
    path."""
    by_line: dict[str, SourceLine] = {}
    names = SourceFiles()
    for name in _line_names(slices):
        file, _, line = name.rpartition(":")
        by_line[name] = {"file": file, "line": int(line), "function": names[file].function(int(line)), "executed": 0,
                         "engine_ns": 0.0, "transfer_ns": 0.0, "hbm_bytes": 0, "path_ns": 0.0}
    for track, begin, end, number in zip(slices.track, slices.begin, slices.end, slices.instruction):
        instruction = slices.instructions[number]
        row = by_line.get(instruction.line)
        if row is None:
            continue
        if slices.tracks[track].kind == QUEUE:
            row["transfer_ns"] += end - begin
            row["hbm_bytes"] += instruction.transfer_bytes
        else:
            row["engine_ns"] += end - begin
            row["executed"] += 1
    for begin, end, number in zip(path["begin"], path["end"], path["instruction"]):
        if number >= 0 and (row := by_line.get(slices.instructions[number].line)) is not None:
            row["path_ns"] += end - begin
    return list(by_line.values())


def _groups(slices: Slices) -> list[Document]:
    """Return when instructions ran: of a linked program by operation and kernel, else by file."""
    spans: dict[tuple[str, str, int], list[float]] = {}
    for begin, end, number in zip(slices.begin, slices.end, slices.instruction):
        at = slices.instructions[number].location
        if at is not None:
            span = spans.setdefault((at.origin, at.file, at.line if at.origin else 0), [begin, end, 0.0])
            span[0], span[1], span[2] = min(span[0], begin), max(span[1], end), span[2] + end - begin
    return [{"name": f"{origin} {PurePath(file).name}:{line}" if origin else shown(file), "file": file,
             "kernel": origin.startswith(KERNEL), "begin": b, "end": e, "ns": ns}
            for (origin, file, line), (b, e, ns) in sorted(spans.items(), key=lambda item: item[1][0])]


def _path(run: TimedMachine, slices: Slices, launch: float) -> Document:
    """Return the segments of the critical path in order of time, the launch first; they follow each other without a
    gap."""
    pieces = critical_path(run.record)
    number = [slices.instruction[slices.of_event[p.event]] for p in pieces]
    return {"begin": [0.0, *(launch + p.begin for p in pieces)], "end": [launch, *(launch + p.end for p in pieces)],
            "what": [LAUNCH, *(p.phase for p in pieces)], "instruction": [-1, *number]}


def _limited(run: TimedMachine, launch: float) -> list[Document]:
    """Return the times in which engines had less than full speed, and the ns that their work took longer."""
    return [{"core": run.agents[number].core.number, "engine": run.agents[number].stream.engine.value,
             "speed": state.rate, "begin": [launch + begin for begin, _ in state.limited],
             "end": [launch + end for _, end in state.limited], "lost_ns": state.lost_ns}
            for number, state in run.ramp_states().items()]


def _slices(slices: Slices, limit: int) -> tuple[Document, dict[int, int]]:
    """Return columns by slice, on each track by time, and the new number of each slice. If there are too many, they are
    thinned, without numbers, and ``notes`` says so."""
    order = sorted(range(len(slices)), key=lambda s: (slices.track[s], slices.begin[s]))
    rows = [(slices.track[s], slices.begin[s], slices.end[s], slices.instruction[s], slices.cause[s],
             slices.stalled[s], 1, slices.position[s], slices.iteration[s]) for s in order]
    notes = []
    index = {s: k for k, s in enumerate(order)}
    edges = [(index[a], index[b]) for a, b in slices.edges]
    if len(rows) > limit:
        rows, edges, index = with_merged_neighbors(rows, limit), [], {}
        notes.append(f"{len(order)} slices are too many: neighbors on a track are drawn as one, {len(rows)} are left; "
                     "arrows are left out. Sums are of all.")
    names = "track", "begin", "end", "instruction", "cause", "stalled", "count", "position", "iteration"
    columns = {name: list(column) for name, column in zip(names, zip(*rows))} if rows else {name: [] for name in names}
    return {"slices": columns, "causes": slices.causes, "edges": edges, "notes": notes}, index


Row = tuple[int, float, float, int, int, float, int, int, int]


def with_merged_neighbors(rows: Sequence[Row], limit: int) -> list[Row]:
    """Merge neighbors of a track, under the name of the longest, until at most ``limit`` slices remain."""
    group_size = -(-len(rows) // max(1, limit // 2))         # the last group of a track may be smaller
    merged: list[Row] = []
    at = 0
    while at < len(rows):
        group = [row for row in rows[at:at + group_size] if row[0] == rows[at][0]]
        longest = max(group, key=lambda row: row[2] - row[1])
        merged.append((group[0][0], group[0][1], max(row[2] for row in group), longest[3], *group[0][4:6],
                       sum(row[6] for row in group), *longest[7:]))
        at += len(group)
    return merged


def _memory(run: TimedMachine, occupants: list[Occupant]) -> tuple[Document, list[str]]:
    """Return the content of SBUF and PSUM of each core: levels over time, and values with the instruction that wrote
    them; notes on what is left out."""
    machine, notes = run.machine, list[str]()
    if len(occupants) > HELD:
        notes.append(f"of {len(occupants)} values on chip those {HELD} are shown that take the most bytes for the "
                     f"longest.")
    capacity = {SBUF: machine.sbuf_bytes_per_partition, PSUM: machine.psum_bytes_per_partition}
    cores = []
    for core in range(len(run.cores)):
        memories: Document = {}
        for space in (SBUF, PSUM):
            times, counts = levels(occupants, core, space)
            peak, group_size = max(counts), -(-len(times) // (LEVELS - 1))
            if group_size > 1:
                notes.append(f"core {core} holds other bytes of {space.upper()} at {len(times)} times: of {group_size} "
                             "that follow each other the most is shown.")
                groups = range(0, len(counts) - 1, group_size)
                counts = [*(max(counts[k:k + group_size]) for k in groups), counts[-1]]
                times = [*times[:-1:group_size], times[-1]]
            memories[space] = {"time": times, "bytes": counts, "peak": peak}
        cores.append(memories)
    most = sorted(occupants, key=lambda h: -h.nbytes * (h.end - h.begin))[:HELD]
    most.sort(key=lambda h: h.begin)
    columns: Document = {"core": [h.core for h in most], "space": [h.region.space for h in most]}
    for name in ("p0", "p1", "b0", "b1"):
        columns[name] = [getattr(h.region, name) for h in most]
    for name in ("begin", "end", "instruction"):
        columns[name] = [getattr(h, name) for h in most]
    return {"partitions": machine.partitions, "bytes_per_partition": capacity, "cores": cores, "held": columns}, notes


def _bandwidth(slices: Slices, total: float) -> Document:
    """Return bytes per ns to and from HBM in bins of equal length; the bytes of a transfer are distributed evenly over
    its time."""
    width = total / BINS
    rate = [0.0] * BINS
    for track, begin, end, number in zip(slices.track, slices.begin, slices.end, slices.instruction):
        nbytes = slices.instructions[number].transfer_bytes
        if slices.tracks[track].kind != QUEUE or not nbytes:
            continue
        first_bin, last_bin = min(int(begin / width), BINS - 1), min(int(end / width), BINS - 1)
        for k in range(first_bin, last_bin + 1):
            inside = min(end, (k + 1) * width) - max(begin, k * width)
            share = inside / (end - begin) if end > begin else 1.0 / (last_bin - first_bin + 1)
            rate[k] += nbytes * share / width
    return {"bin_ns": width, "bytes_per_ns": rate}


# -- the roofline ------------------------------------------------------------------------------------------------------
def operations(instruction: Instruction) -> int:
    """Return the multiplications and additions of a product, one operation for each element of other work, none for a
    transfer."""
    op = instruction.op
    if isinstance(op, Control) or instruction.queue is not None:
        return 0
    products = operations_of_product(op)
    return max((prod(t.shape) for _, t in op.operands()), default=0) if products is None else products


@dataclass(frozen=True)
class SourceLoop:
    """A loop of the source, or a complete function: its first and last line."""

    name: str
    file: str
    first: int
    last: int


@dataclass(frozen=True)
class RooflinePoint:
    """A point of the roofline: operations, bytes to and from HBM, and ns in which any of its instructions ran."""

    name: str
    location: str
    operations: int
    hbm_bytes: int
    ns: float


def loops_of(file: str, lines: Iterable[int]) -> list[SourceLoop]:
    """Return the loops of a source file that contain one of the lines; none for a file that is not Python."""
    wanted_lines = set(lines)
    loops = []
    for node in SourceNames(file).loops:
        end = node.end_lineno or node.lineno
        if any(node.lineno <= line <= end for line in wanted_lines):
            name = f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
            loops.append(SourceLoop(name, file, node.lineno, end))
    return sorted(loops, key=lambda loop: (loop.first, -loop.last))


def points(run: TimedMachine, slices: Slices, total: float) -> list[RooflinePoint]:
    """Return the roofline point of the kernel, then those of its loops."""
    computed, moved = Counter[tuple[str, int]](), Counter[tuple[str, int]]()        # by line
    counts: dict[tuple[object, ...], int] = {}          # operations, by form of an instruction
    for (agent, position), times in Counter(zip(run.record.agent, run.record.position)).items():
        stream = run.agents[agent].stream
        instruction = stream.instructions[position]
        at = instruction.location
        line = (at.file, at.line) if at is not None else ("", 0)
        form = form_of(instruction)
        count = counts.get(form)
        if count is None:
            count = counts[form] = operations(instruction)
        computed[line] += times * count
        moved[line] += times * getattr(stream.details.get(position), "hbm_bytes", 0)
    roofline = [RooflinePoint(run.cores[0].program.kernel, "", computed.total(), moved.total(), total)]
    for file in sorted({file for file, _ in computed if file}):
        of_file = [line for line in computed if line[0] == file]
        for loop in loops_of(file, [number for _, number in of_file]):
            inside = [line for line in of_file if loop.first <= line[1] <= loop.last]
            roofline.append(RooflinePoint(loop.name, f"{file}:{loop.first}", sum(computed[line] for line in inside),
                                          sum(moved[line] for line in inside), covered(_spans(slices, loop))))
    return roofline


def _spans(slices: Slices, loop: SourceLoop) -> list[tuple[float, float]]:
    inside = [i.location is not None and i.location.file == loop.file and loop.first <= i.location.line <= loop.last
              for i in slices.instructions]
    return [(b, e) for b, e, i in zip(slices.begin, slices.end, slices.instruction) if inside[i]]


def covered(spans: Sequence[tuple[float, float]]) -> float:
    """Return the ns that at least one of the spans covers."""
    total = until = 0.0
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total


LONG = 1 << 14                  # elements of a partition for which an instruction's fixed cycles are negligible


def ceilings(machine: Machine, cores: int) -> dict[str, float]:
    """Return the operations per ns of each engine that computes, by its fastest law; for the tensor engine in one
    pass."""
    tensor = machine.costs.engines[Engine.TENSOR]
    peak = 2 * machine.partitions * machine.stationary_free_max * machine.clocks[Engine.TENSOR] * cores
    peaks = {"tensor": peak}
    if "product.float32" in tensor.laws:
        peaks["tensor float32"] = peak / tensor.laws["product.float32"].passes
    for engine in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD):
        costs = machine.costs.engines[engine]
        laws = [*costs.laws, *(["elements"] if costs.other is not None else [])]
        least = min(machine.cost(engine, Work(law, 2 * LONG)).busy - machine.cost(engine, Work(law, LONG)).busy
                    for law in laws)
        peaks[engine.value] = machine.partitions * LONG / least * cores
    return {**peaks, "hbm_bytes_per_ns": machine.hbm_bytes_per_ns(cores)}
