# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables of the vendor's schema about DMA packets, and about the limit of the tensor engine's speed."""

from collections.abc import Sequence
from math import isclose

from nki_mlir.targets.neuron.profile.document import Document

Row = dict[str, object]
OF_TRANSFER = "queue_idx", "queue_name", "queue_type", "variable", "pcore_idx"
RAMP = "activity_1"             # the schema's name of the limit


def packet_rows(document: Document, transfers: Sequence[Row], ids: dict[int, int]) -> list[Row]:
    """Return a row for each DMA engine of each transfer. Its bytes are the engine's share, as integers that add up."""
    packets, rows = document["packets"], list[Row]()
    if not packets:
        return rows
    indexes: dict[int, int] = {}
    remaining: dict[int, tuple[int, int]] = {}               # by transfer: bytes read and written that no row has
    shares: dict[int, float] = {}
    for k, first_engine, engines, begin, end, share in zip(*(packets[name] for name in (
            "slice", "first", "engines", "begin", "end", "share"))):
        transfer = transfers[ids[k]]
        read, wrote = int(str(transfer["read_bytes"])), int(str(transfer["write_bytes"]))
        for engine in range(first_engine, first_engine + engines):
            shares[k] = shares.get(k, 0.0) + share
            is_last = isclose(shares[k], 1.0)
            had = remaining.get(k, (read, wrote))
            nbytes = had if is_last else (min(had[0], round(read * share)), min(had[1], round(wrote * share)))
            remaining[k] = had[0] - nbytes[0], had[1] - nbytes[1]
            duration = round(end) - round(begin)
            rows.append({"id": len(rows), "packet_idx": indexes.setdefault(k, 0), "packet_aggregation_id": ids[k],
                         "start_ts": round(begin), "end_ts": round(end), "duration_ns": duration, "engine_idx": engine,
                         "read_bytes": nbytes[0], "write_bytes": nbytes[1], "transfer_bytes": max(nbytes),
                         "throughput": max(nbytes) / duration * 1e9 if duration else None, "crc": None,
                         **{name: transfer[name] for name in OF_TRANSFER}})
            indexes[k] += 1
    return rows


def pending_rows(transfers: Sequence[Row]) -> list[Row]:
    """Return how many transfers of each core are under way from each time on at which that changes: from the start of
    the instruction that triggers one to the end of its last packet. Return nothing if triggers are not known."""
    if any(row["trigger"] is None for row in transfers):
        return []
    changes: dict[tuple[int, int], int] = {}
    for row in transfers:
        core = int(str(row["pcore_idx"]))
        for time, change in ((row["trigger"], 1), (row["end_ts"], -1)):
            moment = core, int(str(time))
            changes[moment] = changes.get(moment, 0) + change
    rows, pending = list[Row](), dict[int, int]()
    for (core, time), change in sorted(changes.items()):
        pending[core] = pending.get(core, 0) + change
        rows.append({"timestamp": time, "value": pending[core], "pcore_idx": core})
    return rows


def throttle_tables(document: Document) -> dict[str, list[Row]]:
    """Return the times in which the ramp limits the tensor engine: k of n is the limit."""
    total = document["timing"]["total_ns"]
    spans, sums = list[Row](), list[Row]()
    for limit in document["limited"]:
        denominator = round(1 / limit["speed"])
        spans += [{"timestamp": round(begin), "duration": round(end) - round(begin), "k": 1, "n": denominator,
                   "type": RAMP, "pcore_idx": limit["core"]} for begin, end in zip(limit["begin"], limit["end"])]
        limited = sum(limit["end"]) - sum(limit["begin"])
        sums += [{"nc_idx": limit["core"], "throttle_type": kind, "throttle_active_time_ns": round(limited),
                  "throttle_active_time_percent": limited / total,
                  "max_achievable_util_with_throttling_percent": 1 - (1 - limit["speed"]) * limited / total}
                 for kind in ("all", RAMP)]
    return {"Throttle": spans, "ThrottleSummary": sums}
