# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints exchanges between ranks as calls of ``nki.collectives``.

    nccl.all_reduce(srcs=[part], dsts=[total], replica_group=nccl.ReplicaGroup([[0, 1, 2, 3]]), op=nl.add)
"""

from collections.abc import Callable
from typing import Any

from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.launch_members import RANKS
from nki_mlir.dialects.nisa import collectives
from nki_mlir.dialects.op import Op
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.statements import operator_text

IMPORT = "import nki.collectives as nccl\n"


def _write(text: KernelText, op: Op, function: str, tensors: dict[str, Tile], *arguments: str) -> None:
    """Write a call of a function; each of its lists has one tensor."""
    if text.beta:
        raise Unprintable(what="an exchange between ranks, which the beta generation does not have,",
                          fix="print for the current generation")
    if isinstance(op, collectives.Grouped) and op.over != RANKS:
        raise Unprintable(what="a reduction over programs that run on several cores", fix="launch one core")
    lists = [f"{name}=[{text.tile(op, tile, exact=True)}]" for name, tile in tensors.items()]
    text.write(f"nccl.{function}({', '.join([*lists, *arguments])})")


def _group(groups: str) -> str:
    return f"replica_group=nccl.ReplicaGroup({collectives.parsed(groups)})"


def _tensors(op: Any) -> dict[str, Tile]:
    return {"srcs": op.src, "dsts": op.dst}


def _all_reduce(text: KernelText, op: collectives.AllReduceOp) -> None:
    _write(text, op, "all_reduce", _tensors(op), _group(op.groups), f"op={operator_text(op.op)}")


def _all_gather(text: KernelText, op: collectives.AllGatherOp) -> None:
    _write(text, op, "all_gather", _tensors(op), _group(op.groups), f"collective_dim={op.dim}")


def _reduce_scatter(text: KernelText, op: collectives.ReduceScatterOp) -> None:
    _write(text, op, "reduce_scatter", _tensors(op), _group(op.groups), "collective_dim=0",
           f"op={operator_text(op.op)}")


def _all_to_all(text: KernelText, op: collectives.AllToAllOp) -> None:
    _write(text, op, "all_to_all", _tensors(op), _group(op.groups), "collective_dim=0")


def _permute(text: KernelText, op: collectives.PermuteOp) -> None:
    pairs = list(zip(op.pairs[::2], op.pairs[1::2]))
    _write(text, op, "collective_permute", _tensors(op), f"source_target_pairs={pairs}")


def _ring_permute(text: KernelText, op: collectives.RingPermuteOp) -> None:
    function = "collective_permute_implicit"
    if op.other is None:
        _write(text, op, function, {"srcs_by_channel": op.src, "dsts_by_channel": op.dst}, _group(op.groups))
        return
    tensors = {"srcs0_by_channel": op.src, "srcs1_by_channel": op.other, "dsts_by_channel": op.dst}
    _write(text, op, f"{function}_reduce", tensors, _group(op.groups), f"op={operator_text(op.op)}")


def _varying(text: KernelText, op: collectives.VaryingOp) -> None:
    options = [f"{name}=True" for name, passed in (("recv_counts_known", op.counts_known),
                                                  ("has_rdispls", op.displaced)) if passed]
    _write(text, op, "all_gather_v" if op.to_all else "all_to_all_v", _tensors(op), _group(op.groups),
           f"metadata_tensor={text.tile(op, op.metadata, exact=True)}", *options)


def _rank_id(text: KernelText, op: collectives.RankIdOp) -> None:
    """Write the number of a rank into a tile: a register has it in between."""
    if text.beta:
        raise Unprintable(what="the number of a rank, which the beta generation does not have,",
                          fix="print for the current generation")
    function = "collective_permute_implicit_current_processing_rank_id"
    number = f"nccl.{function}(iteration_id={op.steps}, {_group(op.groups)})" if op.steps else "nccl.rank_id()"
    text.write(f"nisa.register_store(dst={text.tile(op, op.dst)}, src={number})")


WRITERS: dict[str, Callable[[KernelText, Any], None]] = {
    "nisa.all_reduce": _all_reduce, "nisa.all_gather": _all_gather, "nisa.reduce_scatter": _reduce_scatter,
    "nisa.all_to_all": _all_to_all, "nisa.permute": _permute, "nisa.ring_permute": _ring_permute,
    "nisa.varying_exchange": _varying, "nisa.rank_id": _rank_id}
