# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of a scheduling graph as arrays of numbers, which all list schedules of the graph share."""

from typing import Any

import numpy as np

from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.timing.dma_engines import transfer_columns
from nki_mlir.targets.runtime.compiled_class import int_array

# a buffer that is live for this part of the steps, or longer, is allocated from the other end
LONG = 8


def columns_of(graph: SchedulingGraph) -> dict[str, Any]:
    """Return the arrays by their names. A list of lists is one array, with the ``..._start`` of each."""
    if not graph.columns:
        graph.columns |= computed_columns(graph)
    return graph.columns


def computed_columns(graph: SchedulingGraph) -> dict[str, Any]:
    columns = {name: getattr(graph, name) for name in ("space", "size", "first", "last", "uses", "tables", "stores")}
    for name, edges in (("buffers", graph.buffer_edges), ("before", graph.edges), ("users", graph.edges.users),
                        ("buffer_users", graph.buffer_users)):
        columns[f"{name}_start"], columns[name] = edges.starts, edges.steps
    columns["missing"] = np.diff(columns["before_start"])
    columns["absent_count"] = np.diff(columns["buffers_start"])
    columns["long"] = int_array(graph.last - graph.first > max(len(graph) // LONG, 64))
    columns["changes"] = graph.changes.reshape(-1)
    columns["most"] = graph.changes.cumsum(axis=1).max(axis=1)      # by memory, the bytes that program order needs
    columns["is_transfer"] = int_array(graph.is_transfer)
    distinct, transfer = np.unique(graph.transfer_numbers[graph.is_transfer], return_inverse=True)
    transfers = [graph.table.transfers[number] for number in distinct.tolist()]
    columns["transfer"], columns["loaded"] = np.full(len(graph), -1), np.full(len(graph), -1)
    columns["transfer"][graph.is_transfer] = transfer
    loads = np.array([*[transfer.loads for transfer in transfers], False], np.bool_)[columns["transfer"]]
    is_load = loads & (columns["absent_count"] == 1)        # a copy within SBUF, which is no load, has two buffers
    columns["loaded"][is_load] = graph.size[columns["buffers"][columns["buffers_start"][:-1][is_load]]]
    return columns | transfer_columns(transfers, graph.machine, 1)
