# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as the tables of the vendor's documented schema (7.4.0), one Parquet file each.

Columns without a value in a profile are null, never zero; ``Warning`` lists the simplifications of the model. Times
are integers, ns from the launch.
"""

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path, PurePath

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.source_locations import KERNEL
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.neuron.profile import write_profile_files
from nki_mlir.targets.neuron.profile.document import Document, covered
from nki_mlir.targets.neuron.profile.slices import ENGINE
from nki_mlir.targets.neuron.profile.vendor_meetings import barrier_rows, collective_rows
from nki_mlir.targets.neuron.profile.vendor_memory import hbm_rows, tensor_rows, usage_tables, variable_names
from nki_mlir.targets.neuron.profile.vendor_operands import (
    activation_function,
    operands_text,
    pattern_columns,
    queue_number,
)
from nki_mlir.targets.neuron.profile.vendor_packets import packet_rows, pending_rows, throttle_tables
from nki_mlir.targets.neuron.profile.vendor_schema import schema_rows, type_of
from nki_mlir.targets.neuron.profile.vendor_streams import VendorStreams, update_rows
from nki_mlir.targets.neuron.profile.vendor_summary import queue_type, vendor_summary
from nki_mlir.version import __version__

SCHEMA = "7.4.0"
NAMES = {"tensor": "Tensor", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd", "sync": "Sync"}
LEVELS = ("penguin_id", "raw_penguin_id", "raw_hlo_id", "hlo_attrs", "raw_framework_id", "stack_frame_ids",
          "instruction_chain", "tensor_elements", "tensor_elements_transpose")             # of model graphs, or unclear
TRIGGER = "dma_trigger_start_ts", "dma_trigger_end_ts", "dma_wait_time_ns"              # of instructions that trigger
NOT_IN_SUMMARY = ("source", "interval", "nd_idx", "nc_idx", "throttle_active_time", "profiler_version",
                  "runtime_version")
OUTSIDE = {"input": "[[INPUT]]", "output": "[OUTPUT]"}          # where a transfer goes, as readers look for it
SPILL = "[VIRTUAL]"
QUEUES = "input", "output", "data"             # types of queues; bytes of the last one are those of weights
ARROW = {"int64": "int64", "float64": "float64", "string": "string", "bool": "bool_"}
MODES = {2: "2x", 4: "4x"}                      # elements of a partition that an engine processes in a cycle

Row = dict[str, object]
Tables = dict[str, list[Row]]


class NoParquet(NkiMlirError):
    code = "NKI-PROFILE-PARQUET"
    message = "tables of the vendor's schema need pyarrow, which is not installed"
    fix = "pip install 'nki_mlir[profile]'"


def write_tables(document: Document, folder: Path, name: str = "") -> list[Path]:
    """Write the tables into ``profiles/global/NAME@latest`` of a folder, under the kernel's name where there is none.
    Raises ``NoParquet`` without pyarrow."""
    return write_into(document, folder / "profiles" / "global" / f"{name or document['timing']['kernel']}@latest")


def write_into(document: Document, target: Path) -> list[Path]:
    """Write the tables into a folder. Raises as above."""
    if importlib.util.find_spec("pyarrow") is None:
        raise NoParquet
    tables = vendor_tables(document)
    # The document has a table only where it has rows.
    files = {f"{name}.parquet": parquet_bytes(rows) for name, rows in tables.items() if rows}
    return write_profile_files(files, target)


def parquet_bytes(rows: Sequence[Row]) -> bytes:
    """Return a table's file. Columns have their types also where they have no value."""
    import pyarrow.parquet  # start-up: an extra, which may not be installed
    kinds = {field: getattr(pyarrow, ARROW[type_of(field, rows)])() for field in rows[0]}
    columns = {field: pyarrow.array([row[field] for row in rows], kind) for field, kind in kinds.items()}
    stream = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), stream)
    return bytes(stream.getvalue())


def vendor_tables(document: Document) -> Tables:
    """Return the rows of each table."""
    streams = VendorStreams(document)
    instructions, ids = _instructions(document, streams)
    transfers, transfer_ids = _transfers(document, streams)
    flows = _flows(document, ids, transfer_ids)
    for row, flow in zip(transfers, flows):
        trigger = instructions[int(str(flow["in_id"]))]
        row |= {"trigger": trigger["start_ts"], "completion": trigger["end_ts"]}
        trigger |= zip(TRIGGER, (trigger["start_ts"], trigger["end_ts"], flow["gap_time"]))
    summary = {name: value for name, value in vendor_summary(document).items()
               if name not in NOT_IN_SUMMARY and not name.startswith("throttle_")}
    tables = {"Summary": [summary], "Metadata": [_metadata(document)], "Instruction": instructions,
              "ActiveTime": _active(document), "DmaPacketAggregated": transfers,
              "DmaPacket": packet_rows(document, transfers, transfer_ids), "PendingDma": pending_rows(transfers),
              "Flow": flows, "SemaphoreUpdate": update_rows(document), **streams.source_tables(),
              "TensorInfo": tensor_rows(document), **usage_tables(document), **throttle_tables(document),
              "OpcodeSummary": _opcodes(instructions, document["timing"]["total_ns"]), "Warning": _warnings(document),
              "DmaQueuesInfo": _queues(transfers), "ExecutionInfo": [_execution(document)],
              "CcOp": collective_rows(document, transfers, transfer_ids), "CoreBarriers": barrier_rows(document),
              "HbmUsageSummaryByType": hbm_rows(document), "NeffHeader": [_header(document)]}
    return tables | {"SchemaFields": schema_rows(tables)}


def _slices(document: Document, on_engines: bool
            ) -> Iterator[tuple[int, tuple[int, float, float, int], dict[str, int]]]:
    """Yield the executions on engines, or the transfers: the number of the slice, its track, begin, end and
    instruction, and the bytes that the instruction moves."""
    slices, traffic = document["slices"], document["instructions"]["traffic"]
    for k, execution in enumerate(zip(*(slices[name] for name in ("track", "begin", "end", "instruction")))):
        if (document["tracks"][execution[0]]["kind"] == ENGINE) == on_engines:
            yield k, execution, {name: column[execution[3]] for name, column in traffic.items()}


def _instructions(document: Document, streams: VendorStreams) -> tuple[list[Row], dict[int, int]]:
    """Return a row for each execution, and its id by the number of its slice."""
    slices, instructions, tracks, lines = (document[key] for key in ("slices", "instructions", "tracks", "lines"))
    machine = machine_named(document["timing"]["target"])
    rows, ids = list[Row](), {}
    for k, (track, begin, end, number), moved in _slices(document, on_engines=True):
        ids[k] = len(rows)
        name, engine, passes = instructions["name"][number], tracks[track]["name"], instructions["passes"][number]
        text = instructions["text"][number]
        line = lines[instructions["line"][number]] if instructions["line"][number] >= 0 else None
        source = f"{line['file']}:{line['line']}" if line else None
        matmul = engine == "tensor" and moved["product"] + moved["transpose"]
        rows.append({
            "id": ids[k], "start_ts": round(begin), "end_ts": round(end), "duration_ns": round(end) - round(begin),
            "engine": NAMES[engine], "timeline_track": "TensorMatrix" if matmul else NAMES[engine],
            "pcore_idx": tracks[track]["core"], "opcode": name,
            "operands": streams.with_semaphores(k, operands_text(text)),
            "compiler_opcode": name, "compiler_operands": text.partition(" ")[2],
            "pc": streams.position(k), "compiler_pc": streams.position(k), "bir_id": str(number),
            "raw_bir_id": number, "bir_instruction_name": f"I-{number}", "kernel_instruction_name": streams.name(k),
            **dict.fromkeys(LEVELS), **_origin(instructions["origin"][number]),
            "nki_source_location": f"[{PurePath(line['file']).name}:{line['line']}]" if line else None,
            "bir_debug_info_source_location": source, "evt_wait_time_ns": round(slices["stalled"][k]),
            "hbm_read_bytes": moved["hbm_read"] or None, "hbm_write_bytes": moved["hbm_written"] or None,
            "sbuf_read_bytes": moved["sbuf_read"], "sbuf_write_bytes": moved["sbuf_written"],
            "psum_read_bytes": moved["psum_read"], "psum_write_bytes": moved["psum_written"],
            "psum_read_sbuf_write_bytes": moved["psum_read"] if moved["sbuf_written"] else 0,
            "spill_save_bytes": moved["spill_saved"], "spill_reload_bytes": moved["spill_reloaded"],
            **_queue_bytes(document, number), **dict.fromkeys(TRIGGER),
            "performance_mode": MODES.get(round(1 / machine.costs.engines[Engine(engine)].law(law).per_element))
            if engine in ("vector", "scalar") and (law := instructions["law"][number]) else None,
            "scalar_activation_fn": activation_function(text), "crc_in": None, "crc_out": None,
            "tensor_instruction_type": ("TRANSPOSE" if moved["transpose"] else "REGULAR") if matmul else None,
            "raw_flops": moved["product"] + moved["transpose"] if matmul else None,
            "flops_transpose": moved["transpose"] if matmul else None,
            "adjusted_flops": round(passes * (moved["product"] + moved["transpose"])) if matmul else None,
            "adjusted_flops_transpose": round(passes * moved["transpose"]) if matmul else None})
    return rows, ids


def _origin(origin: str) -> Row:
    """Return the operation of the graph, and the kernel, that an instruction of a linked program belongs to."""
    kernel = origin.removeprefix(KERNEL) if origin.startswith(KERNEL) else None
    return {"hlo_name": origin if origin and kernel is None else None, "layer": kernel}


def _queue_bytes(document: Document, number: int) -> Row:
    """Return the bytes that a transfer moves through each type of queue; null for other instructions."""
    nbytes = document["instructions"]["hbm_bytes"][number]
    kind = queue_type(document, number) if nbytes else ""
    return {f"{field}_queue_bytes": nbytes if kind == queue else 0 if nbytes else None
            for field, queue in zip(("input", "output", "weight"), QUEUES)}


def _transfers(document: Document, streams: VendorStreams) -> tuple[list[Row], dict[int, int]]:
    instructions, tracks = (document[key] for key in ("instructions", "tracks"))
    rows, ids, names = list[Row](), {}, variable_names(document)
    for k, (track, begin, end, number), moved in _slices(document, on_engines=False):
        ids[k] = len(rows)
        read, wrote = (sum(moved[f"{space}_{way}"] for space in ("hbm", "sbuf", "psum")) for way in ("read", "written"))
        nbytes = max(read, wrote)
        loads, variable = moved["hbm_read"] > 0, instructions["variable"][number]
        outside = SPILL if moved["spill_saved"] + moved["spill_reloaded"] else OUTSIDE.get(
            names.get(variable, "").rstrip("0123456789"))
        partitions = instructions["partitions"][number] or None
        partition_range = f"0-{partitions - 1}" if partitions else None
        wrote_chip, read_chip = ((partition_range, partitions), (None, None))[::1 if loads else -1]
        rows.append({
            "id": ids[k], "block_id": ids[k], "pcore_idx": tracks[track]["core"], "start_ts": round(begin),
            "end_ts": round(end), "duration_ns": round(end) - round(begin), "read_bytes": read, "write_bytes": wrote,
            "transfer_bytes": nbytes, "throughput": nbytes / (end - begin) * 1e9 if end > begin else None,
            "queue_idx": queue_number(instructions["text"][number]),
            "queue_name": tracks[track]["name"].partition(" (")[0],
            "queue_type": queue_type(document, number), "semaphore_id": streams.updated(k),
            "op": "read" if loads else "write",
            "variable": names.get(variable, variable) or None,
            "source": outside if loads else "[SB]", "dest": "[SB]" if loads else outside,
            "read_sbuf_partitions": read_chip[0], "read_num_sbuf_partitions": read_chip[1],
            "write_sbuf_partitions": wrote_chip[0], "write_num_sbuf_partitions": wrote_chip[1],
            **pattern_columns(instructions["text"][number]), "trigger": None, "completion": None})
    return rows, ids


def _flows(document: Document, ids: dict[int, int], transfers: dict[int, int]) -> list[Row]:
    """Return a row for each transfer with the instruction that triggers it, then a row for each wait with the
    instruction or transfer that signals it; no rows if a slice of the document stands for several instructions."""
    slices = document["slices"]
    if max(slices["count"], default=1) > 1:
        return []
    triggers: dict[int, list[int]] = defaultdict(list)
    for k in sorted(ids, key=slices["begin"].__getitem__, reverse=True):
        triggers[slices["instruction"][k]].append(k)
    rows: dict[int, Row] = {}
    for k in sorted(transfers, key=slices["begin"].__getitem__):        # those of one instruction are in order
        source = triggers[slices["instruction"][k]].pop()
        rows[transfers[k]] = {"in_id": ids[source], "out_id": transfers[k], "in_table": "Instruction",
                              "out_table": "DmaPacketAggregated", "dependency_type": "DGE_TRIGGER",
                              "gap_time": round(slices["begin"][k] - slices["end"][source])}
    waits = []
    for source, target in document["edges"]:
        moved = source in transfers
        waits.append({"in_id": transfers[source] if moved else ids[source], "out_id": ids[target],
                      "in_table": "DmaPacketAggregated" if moved else "Instruction", "out_table": "Instruction",
                      "dependency_type": None, "gap_time": round(slices["begin"][target] - slices["end"][source])})
    return [rows[k] for k in range(len(rows))] + waits


def _spans(document: Document, track: int) -> list[tuple[int, int]]:
    """Return the intervals in which a track is active; adjacent ones are merged."""
    slices, merged = document["slices"], list[tuple[int, int]]()
    for where, begin, end in zip(slices["track"], slices["begin"], slices["end"]):
        if where == track:
            if merged and round(begin) <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(merged[-1][1], round(end))
            else:
                merged.append((round(begin), round(end)))
    return merged


def _active(document: Document) -> list[Row]:
    return [{"start_ts": begin, "end_ts": end, "engine": track["name"], "pcore_idx": track["core"],
             "duration_ns": end - begin}
            for number, track in enumerate(document["tracks"]) if track["kind"] == ENGINE
            for begin, end in _spans(document, number)]


def _opcodes(instructions: Sequence[Row], total: float) -> list[Row]:
    spans: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in instructions:
        begin, end = float(str(row["start_ts"])), float(str(row["end_ts"]))
        spans[str(row["engine"]).lower(), str(row["opcode"])].append((begin, end))
    return [{"engine": engine, "opcode": opcode, "instruction_count": len(intervals),
             "instruction_time_ns": round(sum(end - begin for begin, end in intervals)),
             "active_time_ns": round(covered(intervals)), "active_time_percent": covered(intervals) / total}
            for (engine, opcode), intervals in sorted(spans.items())]


def _queues(transfers: Sequence[Row]) -> list[Row]:
    """Return a row for each queue that moves data. Which ports and channels of the device it uses is not known."""
    queues = sorted({tuple(row[name] for name in ("pcore_idx", "queue_idx", "queue_name", "queue_type"))
                     for row in transfers}, key=str)
    return [{"name": name, "type": kind, "idx": number, "engine_idx": None, "axi_port": None, "dram_channel": None,
             "pcore_idx": core} for core, number, name, kind in queues]


def _execution(document: Document) -> Row:
    return {"execution_index": 0, "neff_name": None, "execution_start_ts": 0,
            "execution_end_ts": round(document["timing"]["total_ns"]), "num_subgraphs": None, "row_count": None}


def _header(document: Document) -> Row:
    """Return the fields of a header of the vendor's file that are known without such a file."""
    cores = len(document["timing"]["cores"])
    return {"network_name": document["timing"]["kernel"], **dict.fromkeys(
        ("uuid", "hash", "enabled_features", "header_size", "data_size", "major_version", "minor_version",
         "package_version", "build_version", "cc_participant_count")),
        "neuroncore_count": 1, "logical_neuroncore_count": 1, "pcore_count_per_lnc": cores}


def _metadata(document: Document) -> Row:
    timing = document["timing"]
    machine = machine_named(timing["target"])
    end, epoch = round(timing["total_ns"]), datetime.fromtimestamp(0, timezone.utc).isoformat()
    clocks = {f"{engine.value}_engine_clock_freq": machine.clocks[engine]
              for engine in (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)}
    lanes = {f"{engine.value}_engine_num_channels": machine.partitions
             for engine in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)}
    return {"profile_schema_version": SCHEMA, "ntff_version": 1, "num_physical_cores": len(timing["cores"]),
            "vnc_enabled": len(timing["cores"]) > 1, "first_hw_timestamp": 0, "last_hw_timestamp": end,
            "first_ts": epoch, "last_ts": epoch,
            "dma_ddr_bandwidth": float(machine.costs.dma.bytes_per_ns) * machine.dma_engines * 1e9,
            "num_dma_engines_per_neuroncore": machine.dma_engines,
            "hbm_ddr_bandwidth": float(machine.costs.dma.hbm_stack_bytes_per_ns) * 1e9,
            "neuroncore_clock_freq": machine.clocks[Engine.SYNC], "ticks_per_nanosec": 1,
            "tensor_engine_num_rows": machine.partitions, "tensor_engine_num_cols": machine.stationary_free_max,
            **clocks, **lanes, "is_simulation": True, "instance_type": None, "runtime_version": None,
            "collectives_version": None, "driver_version": None, "explorer_version": None,
            "compiler_version": f"nki_mlir {__version__}", "neuroncore_idx": 0, "neuron_device_idx": 0,
            "profile_name": timing["kernel"], "ultraserver_id": None, "s3_bucket_path": None}


def _warnings(document: Document) -> list[Row]:
    tensor = machine_named(document["timing"]["target"]).costs.engines[Engine.TENSOR]
    warnings = ["simulated by the timed model of nki_mlir, not measured on a device",
                "the launch is a constant, before the first instruction",
                "of throttling the ramp of the tensor engine is modeled, not limits of power and heat"
                if tensor.ramp is not None else "no throttling is modeled",
                *([] if document["packets"] else
                  ["slices are thinned: there is no table DmaPacket, Flow, PendingDma or SemaphoreUpdate"]),
                *document["notes"]]
    return [{"message": text, "category": "Simulation"} for text in warnings]
