# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as the flat map of figures that the vendor's profiler prints, under its names and in its units.

Times are seconds, fractions 0 to 1, bytes and counts integers. A figure that the profile does not have is None, never
zero. ``source`` says that the times are the model's, not a device's, ``interval`` where 80 of 100 devices' times are
expected. ``neuroncore_cycle_count`` counts the clock of the engines that compute, which is not the tensor engine's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.neuron.profile.document import Document, covered
from nki_mlir.targets.neuron.profile.slices import ENGINE
from nki_mlir.targets.neuron.profile.vendor_meetings import collective_figures
from nki_mlir.version import __version__

SOURCE = "model"
TOOL = f"nki_mlir {__version__}"
VENDOR_ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
FLOPS_OF_A_PE = 2
# These are for a graph, a NEFF and the runtime's trace.
UNKNOWN = ("model_flops", "throttle_active_time", "mfu_hlo_estimated_percent",
           "mfu_hlo_max_achievable_estimated_percent", "total_row_count", "cc_cores_instruction_time",
           "cc_cores_instruction_active_time", "cc_cores_instruction_active_time_percent",
           "cc_cores_instruction_count")
INPUTS = "input", "constant"                    # tensors that a caller passes to a kernel
DGE = "static", "software_dynamic", "hardware_dynamic"      # writers of descriptors
FIGURES_OF_A_WRITER = ("active_time", "active_time_percent", "packet_count", "packet_percent", "size", "size_percent")
FIGURES_OF_PACKETS = ("dma_packet_time", "dynamic_dma_active_time_percent", "dynamic_dma_packet_percent",
                      "dynamic_dma_size_percent")


def vendor_summary(document: Document) -> dict[str, Any]:
    """Return the figures by field name. Times include the launch, as ``total_time`` of a device does."""
    runs, sizes = executions(document), _sizes_of_tensors(document)
    return {"source": SOURCE} | _times(document) | _engines(document) | _transfers(
        document, runs) | collective_figures(document) | _instructions(document, runs) | _traffic(document, runs) | {
        "inputs_and_weights_size_bytes": sizes["in"], "inputs_outputs_weights_size_bytes": sizes["all"],
        "weight_size_bytes": sizes["weights"], **_rates(document, runs, sizes["in"]),
        **_throttling(document), **dict.fromkeys(UNKNOWN), "nd_idx": 0, "nc_idx": 0,
        "profiler_version": TOOL, "runtime_version": TOOL}


def _sizes_of_tensors(document: Document) -> dict[str, int]:
    """Return the bytes of the kernel's tensors: of those that it is passed, of all, and of weights."""
    return {group: sum(tensor["bytes"] for tensor in document["tensors"]
                       if tensor["core"] == 0 and tensor["kind"] in kinds)
            for group, kinds in (("in", INPUTS), ("all", (*INPUTS, "output")), ("weights", ("constant",)))}


def _times(document: Document) -> dict[str, Any]:
    """Return the summary's fields about time: the kernel's interval and total time, the counts of its trace, and the
    time in which at least one engine or queue works."""
    timing, slices = document["timing"], document["slices"]
    total, active = timing["total_ns"], covered(rounded(zip(slices["begin"], slices["end"])))
    return {"interval": [ns / 1e9 for ns in timing["interval_ns"]], "total_time": total / 1e9,
            "total_exec_time": (total - timing["launch_ns"]) / 1e9, **_rows_of_trace(document),
            "total_active_time": active / 1e9, "total_active_time_percent": active / total,
            "neuroncore_cycle_count": round(total * machine_named(timing["target"]).clocks[Engine.SYNC])}


def _instructions(document: Document, runs: list[int]) -> dict[str, Any]:
    """Return how often the instructions ran that the vendor counts by name, and how long those of the scalar engine
    took."""
    slices, tracks, names = document["slices"], document["tracks"], document["instructions"]["name"]
    return {"matmul_instruction_count": _named(document, runs, "MATMUL"),
            "activate_instruction_count": _named(document, runs, "ACTIVATE"),
            "activate_instruction_time": sum(
                e - b for t, b, e, n in zip(slices["track"], slices["begin"], slices["end"], slices["instruction"])
                if tracks[t]["kind"] == ENGINE and names[n].startswith("ACTIVATE")) / 1e9}


def _total(document: Document, runs: list[int], column: str) -> int:
    """Return the sum of a column of the instructions' traffic over all executions."""
    return sum(map(int.__mul__, runs, document["instructions"]["traffic"][column]))


def _traffic(document: Document, runs: list[int]) -> dict[str, Any]:
    """Return the bytes that cross the ports of each memory, the moves from PSUM to SBUF among them, and spills."""
    traffic = document["instructions"]["traffic"]
    evictions = [read and wrote for read, wrote in zip(traffic["psum_read"], traffic["sbuf_written"])]
    ports = {f"{space}_{direction}_bytes": _total(document, runs, f"{space}_{column}")
             for space in ("hbm", "sbuf", "psum") for direction, column in (("read", "read"), ("write", "written"))}
    return ports | {
        "psum_read_sbuf_write_count": sum(n for n, moves in zip(runs, evictions) if moves),
        "psum_read_sbuf_write_bytes": sum(n * read for n, read, moves in zip(runs, traffic["psum_read"], evictions)
                                          if moves),
        "spill_save_bytes": _total(document, runs, "spill_saved"),
        "spill_reload_bytes": _total(document, runs, "spill_reloaded")}


def _rates(document: Document, runs: list[int], input_bytes: int) -> dict[str, Any]:
    """Return the operations of the tensor engine, and the shares of its peak and of the memory's bandwidth that the
    kernel reaches and could reach."""
    timing, instructions = document["timing"], document["instructions"]
    machine, total = machine_named(timing["target"]), timing["total_ns"]
    product, transpose = (_total(document, runs, name) for name in ("product", "transpose"))
    adjusted = {name: sum(map(prod, zip(runs, instructions["traffic"][name], instructions["passes"])))
                for name in ("product", "transpose")}
    moved = _total(document, runs, "hbm_read") + _total(document, runs, "hbm_written")
    peak = machine.partitions ** 2 * FLOPS_OF_A_PE * machine.clocks[Engine.TENSOR] * len(timing["cores"])
    stack = machine.costs.dma.hbm_stack_bytes_per_ns
    ridge = peak / machine.costs.dma.hbm_bytes_per_ns
    intensity = product / moved if moved else None
    achievable = None if intensity is None else intensity / ridge
    utilization = adjusted["product"] / (peak * total)
    return {"hardware_flops": product + transpose, "transpose_flops": transpose,
            "adjusted_hardware_flops": round(sum(adjusted.values())),
            "adjusted_transpose_flops": round(adjusted["transpose"]),
            "mm_arithmetic_intensity": intensity, "peak_flops_bandwidth_ratio": ridge,
            "hfu_estimated_percent": sum(adjusted.values()) / (peak * total),
            "mfu_estimated_percent": utilization, "mfu_inst_estimated_percent": utilization,
            "mfu_max_achievable_estimated_percent": achievable,
            "mfu_inst_max_achievable_estimated_percent": achievable,
            "mbu_estimated_percent": moved / total / stack,
            "mbu_min_read_util_percent": input_bytes / total / stack}


def _engines(document: Document) -> dict[str, Any]:
    """Return the figures of each engine, of all cores together, as counts and bytes are."""
    timing, slices, tracks = document["timing"], document["slices"], document["tracks"]
    figures: dict[str, Any] = {}
    for engine in VENDOR_ENGINES:
        spans = [rounded((b, e) for t, b, e in zip(slices["track"], slices["begin"], slices["end"])
                         if tracks[t] == {"core": core, "name": engine, "kind": ENGINE})
                 for core in range(len(timing["cores"]))]
        busy = sum(map(covered, spans))
        figures |= {f"{engine}_engine_active_time": busy / 1e9,
                    f"{engine}_engine_active_time_percent": busy / timing["total_ns"] / len(spans),
                    f"{engine}_engine_instruction_time": sum(e - b for of_core in spans for b, e in of_core) / 1e9,
                    f"{engine}_engine_instruction_count": timing["instructions_per_engine"].get(engine, 0)}
    return figures


def rounded(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return intervals in whole ns, as the tables have them, so that sums of both are equal."""
    return [(float(round(begin)), float(round(end))) for begin, end in spans]


def queue_type(document: Document, instruction: int) -> str:
    """Return the writer of a transfer's descriptors, then their purpose. The writer is the GpSimd engine, the generator
    of the engine that triggers the transfer or, without a generator, the compiler."""
    if not document.get("static_descriptors"):
        if document["instructions"]["engine"][instruction] == Engine.GPSIMD.value:
            return "software_dynamic"
        if machine_named(document["timing"]["target"]).generates_descriptors:
            return "hardware_dynamic"
    kinds = {tensor["name"]: tensor["kind"] for tensor in document["tensors"]}
    kind = kinds.get(document["instructions"]["variable"][instruction], "")
    return kind if kind in ("input", "output") else "data"


def _transfers(document: Document, runs: list[int]) -> dict[str, Any]:
    """Return the figures of transfers: of all, by queue, and by writer of their descriptors. Figures of packets are
    None if there are none, because slices are thinned."""
    timing, instructions, slices = document["timing"], document["instructions"], document["slices"]
    count = sum(n for n, nbytes in zip(runs, instructions["hbm_bytes"]) if nbytes)
    types = [queue_type(document, n) if nbytes else "" for n, nbytes in enumerate(instructions["hbm_bytes"])]
    on_queue = [track["kind"] != ENGINE for track in document["tracks"]]
    moving = rounded((b, e) for t, b, e in zip(slices["track"], slices["begin"], slices["end"]) if on_queue[t])
    figures: dict[str, Any] = {
        "dma_transfer_time": sum(e - b for b, e in moving) / 1e9,
        "dma_transfer_count": count, "dma_transfer_total_bytes": timing["hbm_bytes"],
        "dma_transfer_average_bytes": timing["hbm_bytes"] / count if count else None,
        "dma_queue_count": len({(track["core"], track["name"].partition(" (")[0])
                                for track, is_queue in zip(document["tracks"], on_queue) if is_queue})}
    for field, queue in (("input", "input"), ("output", "output"), ("weight", "data")):
        figures[f"{field}_queue_bytes"] = sum(
            n * nbytes for n, nbytes, its_queue in zip(runs, instructions["hbm_bytes"], types) if its_queue == queue)
    packets = packets_by_writer(document, types)
    active = covered([span for spans in packets.spans.values() for span in spans]) if packets else covered(moving)
    clock = machine_named(timing["target"]).clocks[Engine.SYNC]
    return figures | {
        "dma_active_time": active / 1e9, "dma_active_time_percent": active / timing["total_ns"],
        "dma_active_cycles": round(active * clock)} | _packets(packets, timing["total_ns"])


@dataclass
class PacketsByWriter:
    """The packets of a run, by the writer of their descriptors: intervals, how many there are, and their bytes."""

    spans: dict[str, list[tuple[float, float]]]
    counts: dict[str, int]
    sizes: dict[str, float]
    time: float             # of all packets, one after the other


def packets_by_writer(document: Document, types: list[str]) -> PacketsByWriter | None:
    """Sort the packets by the types of their queues; return None for a profile without packets."""
    packets, instructions = document["packets"], document["instructions"]
    if not packets:
        return None
    spans = rounded(zip(packets["begin"], packets["end"]))
    by_writer = PacketsByWriter({writer: [] for writer in DGE}, dict.fromkeys(DGE, 0), dict.fromkeys(DGE, 0.0),
                                sum(n * (end - begin) for n, (begin, end) in zip(packets["engines"], spans)))
    for k, engines, span, share in zip(packets["slice"], packets["engines"], spans, packets["share"]):
        number = document["slices"]["instruction"][k]
        writer = types[number] if types[number] in DGE else DGE[0]
        by_writer.spans[writer].append(span)
        by_writer.counts[writer] += engines
        by_writer.sizes[writer] += engines * share * instructions["hbm_bytes"][number]
    return by_writer


def _packets(packets: PacketsByWriter | None, total: float) -> dict[str, Any]:
    """Return the figures of packets: of each writer of descriptors, and of those that write them while the kernel
    runs."""
    if packets is None:
        names = (f"{writer}_dma_{figure}" for writer in DGE for figure in FIGURES_OF_A_WRITER)
        return dict.fromkeys((*names, *FIGURES_OF_PACKETS))
    count, nbytes = sum(packets.counts.values()), sum(packets.sizes.values())
    figures: dict[str, Any] = {}
    for writer in DGE:
        active = covered(packets.spans[writer])
        values = (active and active / 1e9, active and active / total, packets.counts[writer],
                  packets.counts[writer] / count if count else None, round(packets.sizes[writer]),
                  packets.sizes[writer] / nbytes if nbytes else None)
        figures |= {f"{writer}_dma_{figure}": value for figure, value in zip(FIGURES_OF_A_WRITER, values)}
    written_at_compilation, *dynamic_writers = DGE
    dynamic = covered([span for writer in dynamic_writers for span in packets.spans[writer]])
    return figures | dict(zip(FIGURES_OF_PACKETS, (
        packets.time / 1e9, dynamic and dynamic / total,
        1 - packets.counts[written_at_compilation] / count if count else None,
        1 - packets.sizes[written_at_compilation] / nbytes if nbytes else None)))


def _rows_of_trace(document: Document) -> dict[str, Any]:
    """Return the number of updates of semaphores, and of all entries of a trace: instructions, updates and packets.
    Both are None if a slice of the document stands for several instructions."""
    updates, packets = document["updates"], document["packets"]
    if max(document["slices"]["count"], default=1) > 1:
        return {"event_count": None, "trace_count": None}
    events = len(updates["time"]) if updates else 0
    return {"event_count": events, "trace_count": document["timing"]["instructions"] + events + sum(
        packets["engines"] if packets else ())}


def _throttling(document: Document) -> dict[str, Any]:
    """Return the time in which the tensor engine of each core had less than full speed; nothing for machines without a
    ramp."""
    total, figures = document["timing"]["total_ns"], dict[str, Any]()
    for limit in document["limited"]:
        core, limited = limit["core"], sum(limit["end"]) - sum(limit["begin"])
        mean = 1 - (1 - limit["speed"]) * limited / total
        figures |= {f"throttle_active_nc{core}_time_ns": round(limited),
                    f"throttle_avg_util_limit_nc{core}_percent": mean,
                    f"throttle_activity_1_active_time_nc{core}_percent": limited / total,
                    f"throttle_activity_1_avg_util_limit_nc{core}_percent": mean}
    return figures


def executions(document: Document) -> list[int]:
    """Return how often each instruction of the profile ran."""
    counts = [0] * len(document["instructions"]["name"])
    slices, on_engine = document["slices"], [track["kind"] == ENGINE for track in document["tracks"]]
    for track, number, count in zip(slices["track"], slices["instruction"], slices["count"]):
        if on_engine[track]:
            counts[number] += count
    return counts


def _named(document: Document, runs: list[int], mnemonic: str) -> int:
    """Return how often the instructions ran whose mnemonic equals this one or begins with it."""
    return sum(count for count, name in zip(runs, document["instructions"]["name"]) if name.startswith(mnemonic))
