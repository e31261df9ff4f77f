# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The columns of the vendor's tables: their types, also of columns without a value, their units and examples."""

from collections.abc import Mapping, Sequence

Row = dict[str, object]
INTEGERS = ("id", "_ts", "_ns", "_bytes", "_idx", "_count", "_depth", "_size", "_number", "_value", "_elements", "idx",
            "pc", "row_count", "num_subgraphs", "timestamp", "_flops", "_index", "_transpose", "update_mode", "crc",
            "crc_in", "crc_out")
FLOATS = "_percent", "_time", "throughput", "_bandwidth", "_freq", "_factor"
TEXTS = "hlo_name", "bir_id", "stack_frame_ids", "semaphore_id", "dram_channel", "axi_port"
TYPES = {int: "int64", float: "float64", str: "string", bool: "bool"}
UNITS = {"_ts": "ns", "_ns": "ns", "timestamp": "ns", "_bytes": "bytes", "_size": "bytes", "size": "bytes",
         "_percent": "fraction", "_time": "s", "throughput": "bytes/s", "_bandwidth": "bytes/s", "_freq": "GHz"}
TABLES = {
    "Summary": "figures of the run", "Metadata": "the machine and the profile",
    "Instruction": "executions of instructions", "ActiveTime": "times in which an engine is active",
    "DmaPacketAggregated": "transfers", "DmaPacket": "parts of transfers by DMA engine",
    "PendingDma": "transfers under way from a time on", "Flow": "triggers of transfers, causes of waits",
    "SemaphoreUpdate": "changes of semaphores", "KernelInstructions": "instructions by line and iteration",
    "KernelStackFrames": "lines with their functions", "KernelIterationVariables": "iterations of loops",
    "TensorInfo": "arguments and results", "PsumUsage": "share of PSUM in use from a time on",
    "SbufUsage": "share of SBUF in use from a time on", "SbufAllocation": "values in SBUF",
    "DmaUsage": "bytes a second of transfers", "HbmUsage": "bytes a second of HBM",
    "Throttle": "times in which an engine is limited", "ThrottleSummary": "sums of these times",
    "OpcodeSummary": "instructions by engine and opcode", "Warning": "what the profile does not show",
    "DmaQueuesInfo": "queues that move data", "ExecutionInfo": "executions of the kernel",
    "CcOp": "collectives of ranks", "CoreBarriers": "engines at barriers of a launch's cores",
    "HbmUsageSummaryByType": "bytes of tensors in HBM by type", "NeffHeader": "what is known of the program",
    "SchemaFields": "the columns of all tables"}


def type_of(field: str, rows: Sequence[Row]) -> str:
    """Return the type of a column: that of its values, by its name if there are none."""
    kinds = {type(value) for row in rows if (value := row[field]) is not None}
    if kinds == {int, float}:
        return "float64"
    if len(kinds) == 1:
        return TYPES.get(kinds.pop(), "string")
    if field in TEXTS:
        return "string"
    return "float64" if field.endswith(FLOATS) else "int64" if field.endswith(INTEGERS) else "string"


def schema_rows(tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return a row for each column of the tables that have rows. Whether a reader requires it is not known."""
    fields: Row = dict.fromkeys(("field_description", "field_format", "field_minimum", "field_maximum",
                                 "field_enum_values", "field_required"))
    described = list[Row]()
    for table, rows in tables.items():
        for field in rows[0] if rows else ():
            example = next((row[field] for row in rows if row[field] is not None), None)
            unit = next((unit for suffix, unit in UNITS.items() if field.endswith(suffix)), None)
            described.append({"table_name": table, "table_description": TABLES[table], "field_name": field,
                              "field_type": type_of(field, rows), "field_unit": unit,
                              "field_example": None if example is None else str(example), **fields})
    return described
