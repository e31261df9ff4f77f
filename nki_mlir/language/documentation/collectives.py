# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of ``nki.collectives``: exchanges between ranks. ``n`` ranks are in a group, in the order of its list."""

from nki_mlir.language.documentation.instructions import Page

COMMON = {
    "srcs": "a list of tensors, all in HBM, or one in SBUF", "dsts": "as many, in the same memory, of the same dtypes",
    "replica_group": "a ReplicaGroup", "op": "nl.add, nl.minimum or nl.maximum", "collective_dim": "0",
    "priority": "0 (first) to 3, from NeuronCore-v4 on", "name": "what the instruction is called in profiles",
    "srcs_by_channel": "a tensor for each channel", "dsts_by_channel": "a tensor for each channel",
    "srcs0_by_channel": "a tensor for each channel", "srcs1_by_channel": "a tensor for each channel",
    "channel_ids": "0, 1, ... up to 3", "channel_id": "0 to 3",
    "metadata_tensor": "[3, n] of uint32: counts and places of what is sent, and counts of what is received; a row "
                       "more with has_rdispls, places of what is received",
    "recv_counts_known": "the third row is known, else it is written", "has_rdispls": "there is a fourth row",
}
RULES = "Lists of different lengths, memories or dtypes, and another group than a ReplicaGroup, are errors."
HBM = "Tensors in SBUF, several of them, and another group than a ReplicaGroup, are errors."
COLLECTIVES = {
    "all_reduce": Page(("all_reduce",), {}, "None. Each dst is op over the src of all ranks of the group.", RULES),
    "all_gather": Page(("all_gather",), {"collective_dim": "0, in SBUF also 1"},
                       "None. Each dst is the src of all ranks, one after the other along the dimension.", RULES),
    "reduce_scatter": Page(("reduce_scatter",), {}, "None. Each dst is this rank's of n parts of op over all src.",
                           RULES),
    "all_to_all": Page(("all_to_all",), {"srcs": "a list of tensors in HBM"},
                       "None. Each dst is this rank's of n parts of the src of all ranks, one after the other.", RULES),
    "collective_permute": Page(("permute",), {"source_target_pairs": "(from, to) for each rank that receives"},
                               "None. dst is src of the rank it is from; a rank that is no target keeps it.", HBM),
    "collective_permute_implicit": Page(("ring_permute",), {},
                                        "None. Each dst is src of the rank before, round a ring.", RULES),
    "collective_permute_implicit_reduce": Page(
        ("ring_permute",), {}, "None. Each dst is src0 op src1 of the rank before, round a ring.", RULES),
    "collective_permute_implicit_current_processing_rank_id": Page(
        ("rank_id",), {"iteration_id": "steps round the ring, from 0"},
        "A register: the rank whose data is here after the steps.", "Another channel is an error."),
    "rank_id": Page(("rank_id",), {}, "A register: this rank's number.", "None."),
    "all_gather_v": Page(("varying_exchange",), {"has_rdispls": "True is not taken"},
                         "None. dst has n slots; slot s holds the part that rank s sends to all: its first count, from "
                         "its first place on.", HBM),
    "all_to_all_v": Page(("varying_exchange",), {}, "None. dst has n slots, or parts at given places; slot s holds the "
                         "part that rank s sends to this one.", HBM),
}
