# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of a scheduling graph as arrays of numbers, which all list schedules of the graph share."""

from typing import Any

import numpy as np

from nki_mlir.targets.neuron.codegen.dependence_scan import joined
from nki_mlir.targets.neuron.codegen.scheduling_graph import SPACES, SchedulingGraph
from nki_mlir.targets.neuron.timing.dma_engines import transfer_columns
from nki_mlir.targets.neuron.timing.transfers import TimedTransfer


def columns_of(graph: SchedulingGraph) -> dict[str, Any]:
    """Return the arrays by their names. A list of lists is one array, with the ``..._start`` of each."""
    if not graph.columns:
        graph.columns |= computed_columns(graph)
    return graph.columns


def computed_columns(graph: SchedulingGraph) -> dict[str, Any]:
    columns = {name: np.array(getattr(graph, name), np.int64) for name in ("space", "size", "first", "last", "uses")}
    columns["buffers_start"], columns["buffers"] = joined(graph.buffers)
    for name, edges in (("before", graph.edges), ("users", graph.edges.users), ("buffer_users", graph.buffer_users)):
        columns[f"{name}_start"], columns[name] = edges.starts, edges.steps
    columns["missing"] = np.diff(columns["before_start"])
    columns["changes"] = np.array([graph.changes[space] for space in SPACES], np.int64).reshape(-1)
    tables = {"": 0}
    columns["tables"] = np.array([tables.setdefault(table, len(tables)) for table in graph.tables], np.int64)
    columns["stores"] = np.array(graph.stores, np.int64)
    columns["is_transfer"] = np.array([transfer is not None for transfer in graph.transfers], np.int64)
    columns["loaded"] = np.array([                      # a copy within SBUF, which is no load, has two buffers
        graph.size[buffers[0]] if transfer is not None and transfer.loads and len(buffers) == 1 else -1
        for transfer, buffers in zip(graph.transfers, graph.buffers)], np.int64)
    numbers: dict[TimedTransfer, int] = {}
    columns["transfer"] = np.array([-1 if transfer is None else numbers.setdefault(transfer, len(numbers))
                                    for transfer in graph.transfers], np.int64)
    return columns | transfer_columns(numbers, graph.machine, 1)
