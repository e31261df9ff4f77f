# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as the flat map of figures that the vendor's profiler prints, under its names and in its units.

Times are seconds, fractions 0 to 1, bytes and counts integers. A figure that the profile does not have is None, never
zero. ``source`` says that the times are the model's, not a device's.
"""

from typing import Any

from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets.neuron.profile.document import Document
from nki_mlir.targets.neuron.profile.slices import ENGINE

SOURCE = "model"
VENDOR_ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
FLOPS_OF_A_PE = 2
UNKNOWN = ("adjusted_hardware_flops", "adjusted_transpose_flops", "mfu_hlo_estimated_percent", "throttle_active_time")


def vendor_summary(document: Document) -> dict[str, Any]:
    """Field -> value. Times include the launch, as ``total_time`` of a device does."""
    timing = document["timing"]
    machine, total = machine_named(timing["target"]), timing["total_ns"]
    runs = executions(document)
    sums = {name: sum(map(int.__mul__, runs, column)) for name, column in document["instructions"]["traffic"].items()}
    moved, flops = sums["hbm_read"] + sums["hbm_written"], sums["product"] + sums["transpose"]
    active = total - timing["launch_ns"]
    peak = machine.partitions ** 2 * FLOPS_OF_A_PE * machine.clocks[Engine.TENSOR] * len(timing["cores"])
    ridge = peak / machine.costs.dma.hbm_bytes_per_ns
    intensity = sums["product"] / moved if moved else None
    summary: dict[str, Any] = {
        "source": SOURCE, "total_time": total / 1e9, "total_exec_time": active / 1e9,
        "total_active_time": active / 1e9, "total_active_time_percent": active / total}
    for engine in VENDOR_ENGINES:
        busy = timing["busy_ns"].get(engine, 0.0)               # an engine without instructions is never busy
        summary |= {f"{engine}_engine_active_time": busy / 1e9, f"{engine}_engine_active_time_percent": busy / total,
                    f"{engine}_engine_instruction_count": timing["instructions_per_engine"].get(engine, 0)}
    transfers = sum(count for count, nbytes in zip(runs, document["instructions"]["hbm_bytes"]) if nbytes)
    return summary | {
        "matmul_instruction_count": _named(document, runs, "MATMUL"),
        "activate_instruction_count": _named(document, runs, "ACTIVATE"),
        "dma_active_time": timing["dma_ns"] / 1e9, "dma_active_time_percent": timing["dma_ns"] / total,
        "dma_transfer_count": transfers, "dma_transfer_total_bytes": timing["hbm_bytes"],
        "dma_transfer_average_bytes": timing["hbm_bytes"] / transfers if transfers else None,
        "hbm_read_bytes": sums["hbm_read"], "hbm_write_bytes": sums["hbm_written"],
        "sbuf_read_bytes": sums["sbuf_read"], "sbuf_write_bytes": sums["sbuf_written"],
        "psum_read_bytes": sums["psum_read"], "psum_write_bytes": sums["psum_written"],
        "spill_save_bytes": sums["spill_saved"], "spill_reload_bytes": sums["spill_reloaded"],
        "hardware_flops": flops, "transpose_flops": sums["transpose"],
        "mm_arithmetic_intensity": intensity, "peak_flops_bandwidth_ratio": ridge,
        "hfu_estimated_percent": flops / (peak * total),
        "mfu_estimated_percent": sums["product"] / (peak * total),
        "mfu_inst_estimated_percent": sums["product"] / (peak * total),
        "mfu_max_achievable_estimated_percent": None if intensity is None else intensity / ridge,
        "mbu_estimated_percent": moved / total / machine.costs.dma.hbm_bytes_per_ns,
        **dict.fromkeys(UNKNOWN), "nd_idx": 0, "nc_idx": 0}


def executions(document: Document) -> list[int]:
    """How often each instruction of the profile ran."""
    counts = [0] * len(document["instructions"]["name"])
    slices, on_engine = document["slices"], [track["kind"] == ENGINE for track in document["tracks"]]
    for track, number, count in zip(slices["track"], slices["instruction"], slices["count"]):
        if on_engine[track]:
            counts[number] += count
    return counts


def _named(document: Document, runs: list[int], mnemonic: str) -> int:
    """How often the instructions ran whose mnemonic is or begins with this one."""
    return sum(count for count, name in zip(runs, document["instructions"]["name"]) if name.startswith(mnemonic))
