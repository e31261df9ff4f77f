# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of the vendor's schema about tensors, about the occupancy of memories over time, and about HBM traffic."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.profile.document import Document
from nki_mlir.targets.neuron.profile.slices import ENGINE

Row = dict[str, object]
TYPES = {"input": "IN", "output": "OUT", "constant": "WEIGHT"}
QUARTERS = 0, 32, 64, 96        # partitions of SBUF that the schema has a column for


def variable_names(document: Document) -> dict[str, str]:
    """Return the schema's name of each tensor of the kernel: ``input0``, ``output0`` and so on."""
    return {tensor["name"]: f"{tensor['kind']}{tensor['index']}" for tensor in document["tensors"]
            if tensor["kind"] in TYPES}


def tensor_rows(document: Document) -> list[Row]:
    """Return a row for each argument and result of a kernel, with the loads from it."""
    instructions, slices, tracks = document["instructions"], document["slices"], document["tracks"]
    loads, nbytes = Counter[str](), Counter[str]()
    for track, number, count in zip(slices["track"], slices["instruction"], slices["count"]):
        if tracks[track]["kind"] != ENGINE and instructions["traffic"]["hbm_read"][number]:
            loads[instructions["variable"][number]] += count
            nbytes[instructions["variable"][number]] += count * instructions["traffic"]["hbm_read"][number]
    names, rows = variable_names(document), list[Row]()
    for tensor in document["tensors"]:
        name = tensor["name"]
        if tensor["core"] or name not in names:         # the cores of a launch share the channels
            continue
        rows.append({
            "variable_name": names[name], "type": TYPES[tensor["kind"]], "format": tensor["dtype"],
            "shape": str(tensor["shape"]), "size": tensor["bytes"], "node": None,
            "load_to_sbuf_avg_size_bytes": nbytes[name] / loads[name] if loads[name] else None,
            "load_to_sbuf_total_size_bytes": nbytes[name], "load_to_sbuf_dma_count": loads[name],
            "load_to_sbuf_repeat_factor": nbytes[name] / tensor["bytes"] if tensor["bytes"] else None})
    return rows


def hbm_rows(document: Document) -> list[Row]:
    """Return the bytes of each core's tensors in HBM by type; tensors that the cores of a launch share count once."""
    sizes = Counter[tuple[int, str]]()
    for tensor in document["tensors"]:
        if not tensor["core"] or tensor["kind"] not in TYPES:
            sizes[tensor["core"], tensor["kind"]] += tensor["bytes"]
    return [{"neuron_device_idx": 0, "neuroncore_idx": core, "usage_type": kind, "usage_bytes": nbytes}
            for (core, kind), nbytes in sizes.items()]


def usage_tables(document: Document) -> dict[str, list[Row]]:
    """Return the occupancy of memories at each time at which it changes, and the bytes per second to and from HBM."""
    machine = machine_named(document["timing"]["target"])
    lanes, room = document["memory"]["partitions"], document["memory"]["bytes_per_partition"]
    bank = machine.psum_bank_bytes
    banks = [(0, lanes, k * bank, (k + 1) * bank) for k in range(machine.psum_banks)]
    quarters = [(p, p + 1, 0, room[SBUF]) for p in QUARTERS]
    tables: dict[str, list[Row]] = {"PsumUsage": [], "SbufUsage": [], "SbufAllocation": _allocations(document)}
    for core in range(len(document["memory"]["cores"])):
        for time, share, parts in _levels(document, core, PSUM, (0, lanes, 0, room[PSUM]), banks):
            tables["PsumUsage"].append({"timestamp": round(time), "avg_util_percent": share, "pcore_idx": core,
                                        **{f"bank_{k}_util_percent": part for k, part in enumerate(parts)}})
        for time, share, parts in _levels(document, core, SBUF, (0, lanes, 0, room[SBUF]), quarters):
            tables["SbufUsage"].append({"timestamp": round(time), "avg_util_percent": share, "pcore_idx": core,
                                        **{f"partition_{p}_util_percent": part for p, part in zip(QUARTERS, parts)}})
    return tables | _bandwidth(document)


Box = tuple[int, int, int, int]                         # first and end of partitions, first and end of bytes


def _levels(document: Document, core: int, space: str, full_box: Box, parts: Sequence[Box]
            ) -> Iterator[tuple[float, float, list[float]]]:
    """Yield each time at which the occupancy of a memory changes, with the share in use of the memory and of its
    parts."""
    occupants = document["memory"]["held"]
    changes: dict[float, list[tuple[int, Box]]] = {}
    for occupant_core, memory, begin, end, *box in zip(*(occupants[name] for name in (
            "core", "space", "begin", "end", "p0", "p1", "b0", "b1"))):
        if occupant_core == core and memory == space:
            changes.setdefault(begin, []).append((1, (box[0], box[1], box[2], box[3])))
            changes.setdefault(end, []).append((-1, (box[0], box[1], box[2], box[3])))
    areas = [_common(part, part) for part in (full_box, *parts)]
    counts = [0] * len(areas)
    for time in sorted(changes):
        for sign, region in changes[time]:
            for k, part in enumerate((full_box, *parts)):
                counts[k] += sign * _common(region, part)
        shares = [min(1.0, count / area) for count, area in zip(counts, areas)]
        yield time, shares[0], shares[1:]


def _common(a: Box, b: Box) -> int:
    """Return the bytes that two boxes share."""
    return max(0, min(a[1], b[1]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[2], b[2]))


def _allocations(document: Document) -> list[Row]:
    """Return a row for each value in SBUF and each partition of the schema that it occupies."""
    occupants, instructions, rows = document["memory"]["held"], document["instructions"], list[Row]()
    for space, begin, end, p0, p1, b0, b1, number, core in zip(*(occupants[name] for name in (
            "space", "begin", "end", "p0", "p1", "b0", "b1", "instruction", "core"))):
        loaded = bool(instructions["hbm_bytes"][number])
        rows += [{"start_ts": round(begin), "end_ts": round(end), "start_address": b0, "end_address": b1,
                  "partition": p, "op_source_type": "dma" if loaded else "instruction",
                  "opcode": instructions["name"][number],
                  "operands": instructions["text"][number].partition(" ")[2], "queue_name": None, "block_id": None,
                  "tensor_name": instructions["variable"][number] or None, "hlo_name": None, "pcore_idx": core}
                 for p in QUARTERS if space == SBUF and p0 <= p < p1]
    return rows


def _bandwidth(document: Document) -> dict[str, list[Row]]:
    """Return bytes per second in bins; all transfers go to or from HBM."""
    dma, moved, rows = document["dma"], 0.0, list[Row]()
    for k, rate in enumerate(dma["bytes_per_ns"]):
        moved += rate * dma["bin_ns"]
        rows.append({"timestamp": round(k * dma["bin_ns"]), "current_throughput": rate * 1e9,
                     "total_transfer_bytes": round(moved), "pcore_idx": None})
    return {"DmaUsage": rows, "HbmUsage": [dict(row) for row in rows]}
