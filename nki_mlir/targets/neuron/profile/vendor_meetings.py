# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of the vendor's schema about what several cores do together: collectives of ranks, barriers of a launch."""

from collections.abc import Mapping, Sequence
from math import prod

from nki_mlir.dialects.nisa.collectives import Collective
from nki_mlir.dialects.nisa.meeting import CoreBarrierOp
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.scalar.dtypes import BY_ASM
from nki_mlir.targets.neuron.profile.document import Document, covered
from nki_mlir.targets.neuron.profile.slices import ENGINE
from nki_mlir.targets.neuron.profile.vendor_operands import patterns_of
from nki_mlir.targets.neuron.timing.result import CORES

Row = dict[str, object]


def collective_names() -> set[str]:
    """Return the mnemonics of collectives."""
    return {op.mnemonic for op in REGISTRY.values() if issubclass(op, Collective) and op.mnemonic}


def collective_rows(document: Document, transfers: Sequence[Row], ids: Mapping[int, int]) -> list[Row]:
    """Return a row for each collective, which is a transfer (``transfers``, by the numbers of slices ``ids``)."""
    names, rows = collective_names(), list[Row]()
    instructions, slices = document["instructions"], document["slices"]
    for k, number in sorted(ids.items(), key=lambda item: item[1]):
        instruction = slices["instruction"][k]
        name, text = instructions["name"][instruction], instructions["text"][instruction]
        if name not in names:
            continue
        row, patterns = transfers[number], patterns_of(text)
        src, dst = patterns.get("src"), patterns.get("dst")
        sizes = [prod(p.shape) * BY_ASM[p.dtype].itemsize if p else None for p in (src, dst)]
        trigger, start = row["trigger"], int(str(row["start_ts"]))
        rows.append({
            "start_ts": start, "end_ts": row["end_ts"], "duration_ns": row["duration_ns"],
            "operation": name.removeprefix("CC_"), "algorithm": None, "num_elements": prod(src.shape) if src else None,
            "dtype": src.dtype if src else None, "op_id": len(rows), "stream_id": None, "stream_index": None,
            "trigger_engine": instructions["engine"][instruction], "input_size": sizes[0], "output_size": sizes[1],
            "algorithm_bandwidth": None, "bus_bandwidth": None, "trigger_start_ts": trigger,
            "cc_trigger_start_delay": start - int(str(trigger)) if trigger is not None else None,
            "replica_group_id": None, "replica_group": text.partition('groups="')[2].partition('"')[0] or None,
            "pcore_idx": row["pcore_idx"]})
    return rows


def barrier_rows(document: Document) -> list[Row]:
    """Return a row for each engine at each barrier of a launch's cores, from its arrival until it continues."""
    instructions, slices, tracks = document["instructions"], document["slices"], document["tracks"]
    waits_for_cores = document["causes"].index(CORES) if CORES in document["causes"] else -1
    rows = list[Row]()
    for track, begin, end, number, cause, stalled, position, count in zip(*(slices[name] for name in (
            "track", "begin", "end", "instruction", "cause", "stalled", "position", "count"))):
        if tracks[track]["kind"] != ENGINE or instructions["name"][number] != CoreBarrierOp.mnemonic or count > 1:
            continue
        start = round(begin - stalled if cause == waits_for_cores else begin)
        rows.append({"start_ts": start, "end_ts": round(end), "duration_ns": round(end) - start,
                     "engine_name": tracks[track]["name"], "id": len(rows), "semaphore": None,
                     "compiler_pc": position, "compiler_opcode": CoreBarrierOp.mnemonic,
                     "compiler_operands": instructions["text"][number].partition(" ")[2],
                     "pcore_idx": tracks[track]["core"]})
    return rows


def collective_figures(document: Document) -> Row:
    """Return the summary's figures of collectives: the sum of their times, the time in which any runs, their number."""
    names, slices, instructions = collective_names(), document["slices"], document["instructions"]
    spans = [(begin, end) for track, begin, end, number in zip(*(slices[name] for name in (
        "track", "begin", "end", "instruction"))) if document["tracks"][track]["kind"] != ENGINE
        and instructions["name"][number] in names]
    active, total = covered(spans), document["timing"]["total_ns"]
    return {"cc_op_time": sum(end - begin for begin, end in spans) / 1e9, "cc_op_active_time": active / 1e9,
            "cc_op_active_time_percent": active / total, "cc_op_count": len(spans)}
