# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A profile as the JSON form of the vendor's profiler: instructions and transfers as lists of records, in ns.

The content is that of the tables, under the names of this form. Fields without a value are null.
"""

from typing import Any

from nki_mlir.targets.neuron.profile.document import Document
from nki_mlir.targets.neuron.profile.vendor_tables import Row, vendor_tables

SAME = ("opcode", "operands", "compiler_opcode", "compiler_operands", "hlo_name", "layer", "hbm_read_bytes",
        "hbm_write_bytes", "sbuf_read_bytes", "sbuf_write_bytes", "psum_read_bytes", "psum_write_bytes", "raw_flops",
        "tensor_instruction_type")
LOCATIONS = "nki_source_location", "bir_debug_info_source_location"        # fields of text, empty if there is none


def vendor_json(document: Document, summary: dict[str, Any]) -> dict[str, Any]:
    """Return the complete form without the summary."""
    tables = vendor_tables(document)
    timing, metadata = document["timing"], tables["Metadata"][0]
    return {"summary": [summary], "instruction": [instruction_record(row) for row in tables["Instruction"]],
            "dma": [transfer_record(row) for row in tables["DmaPacketAggregated"]],
            "metadata": {"kernel": timing["kernel"], "source": summary["source"], **metadata},
            "model_info": [{"name": timing["kernel"], "target": timing["target"], "cores": len(timing["cores"])}],
            "instruction_usage": tables["OpcodeSummary"], "warning": tables["Warning"], "cc_stream": [],
            "layer_summary": [], "stack_frame_function_name": {}}


def instruction_record(row: Row) -> Row:
    """Return the record of one execution of an instruction."""
    return {"timestamp": row["start_ts"], "duration": row["duration_ns"], "label": row["opcode"],
            "evt_wait_time": row["evt_wait_time_ns"], "subgroup": str(row["engine"]).lower(),
            "subgraph": row["pcore_idx"], "hlo_attrs": None, "stack_frame_ids": None,
            **dict.fromkeys(LOCATIONS, row["bir_debug_info_source_location"] or ""), **{n: row[n] for n in SAME}}


def transfer_record(row: Row) -> Row:
    """Return the record of one transfer."""
    return {"timestamp": row["start_ts"], "duration": row["duration_ns"], "semaphore_id": row["semaphore_id"],
            "queue": row["queue_name"], "op": row["op"], "transfer_bytes": row["transfer_bytes"]}
