# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parameters that instructions share, and the pages of ``nki.collectives``: arguments, results and rules.

P are partitions, F and N elements of a partition, over all free axes; ``n`` ranks are in a group, in the order of its
list. ``COMMON`` describes parameters that mean the same in all instructions; an instruction's entry describes the
others.
"""

from nki_mlir.language.entries.entry import Page

COMMON = {
    "dst": "[P, F] in SBUF or PSUM, of any dtype; gets the result",
    "data": "[P, F] in SBUF or PSUM", "src": "[P, F] in SBUF or PSUM",
    "data1": "[P, F] in SBUF or PSUM", "data2": "[P, F] in SBUF or PSUM, of data1's shape",
    "op": "an operator, such as nl.add", "op0": "the first operator, such as nl.multiply",
    "op1": "the second operator, such as nl.add",
    "operand0": "op0's second operand; a tile is [P, 1] of float32",
    "operand1": "op1's second operand; a tile is [P, 1] of float32",
    "reduce_op": "an operator that folds elements, such as nl.add",
    "reverse0": "True exchanges op0's operands", "reverse1": "True exchanges op1's operands",
    "reduce_cmd": "whether the instruction resets or loads the engine's accumulation registers first, and folds its "
                  "result into them",
    "reduce_res": "[P, 1], to which the instruction writes the accumulation registers",
    "reduce_init": "the value that load_reduce writes to the registers first",
    "bias": "[P, 1] in SBUF or PSUM; 0 by default", "scale": "a tile is [P, 1] of float32",
    "engine": "the engine that runs the instruction; unknown lets the compiler choose",
    "name": "the instruction's name in profiles",
    "mask": "a condition on loop variables and indices; elements where it is false keep their values",
    "dtype": "the result's dtype; by default the operands'",
    "predicate": "[P, F] of unsigned integers; any value but 0 is true",
    "on_true_tile": "[P, F], the values where the condition is true",
    "negate": "True multiplies the result by -1", "keepdims": "True keeps reduced axes, with extent 1",
    "oob_mode": "whether an address out of bounds is an error or its element is skipped",
    "dge_mode": "the generator of the DMA descriptors; unknown lets the compiler choose",
    "priority": "0 (first) to 3, from NeuronCore-v4 on",
    "accumulate": "True adds to dst, False overwrites it, None adds to elements that a product has written and "
                  "overwrites the others",
    "pattern": "one pair for each free axis, outermost first",
    "channel_multiplier": "the step from one partition to the next",
}
# -- exchanges between ranks -------------------------------------------------------------------------------------------
COMMON_OF_COLLECTIVES = {
    "srcs": "a list of tensors, all in HBM, or one in SBUF",
    "dsts": "the same number of tensors, in the same memory, of the same dtypes",
    "replica_group": "a ReplicaGroup", "op": "nl.add, nl.minimum or nl.maximum", "collective_dim": "0",
    "priority": "0 (first) to 3, from NeuronCore-v4 on", "name": "the instruction's name in profiles",
    "srcs_by_channel": "a tensor for each channel", "dsts_by_channel": "a tensor for each channel",
    "srcs0_by_channel": "a tensor for each channel", "srcs1_by_channel": "a tensor for each channel",
    "channel_ids": "0, 1, ... up to 3", "channel_id": "0 to 3",
    "metadata_tensor": "[3, n] of uint32, a column for each rank. Row 0: how many elements this rank sends to it; row "
                       "1: the first of them in src; row 2: how many it receives from it. With has_rdispls, row 3: "
                       "where these begin in dst",
    "recv_counts_known": "True: row 2 is an input; False: the operation writes it",
    "has_rdispls": "True: metadata_tensor has row 3",
}
LISTS = "Lists of different lengths, memories or dtypes, and a replica_group that is not a ReplicaGroup, are errors."
SINGLE = "Tensors in SBUF, several of them, and a replica_group that is not a ReplicaGroup, are errors."
COLLECTIVES = {
    "all_reduce": Page(("all_reduce",), {}, "None. Each dst is op over the src of all ranks of the group.", LISTS),
    "all_gather": Page(("all_gather",), {"collective_dim": "0, in SBUF also 1"},
                       "None. Each dst is the src of all ranks, one after the other along the dimension.", LISTS),
    "reduce_scatter": Page(("reduce_scatter",), {},
        "None. Each dst is this rank's part, one of n, of op over the src of all ranks.",
                           LISTS),
    "all_to_all": Page(("all_to_all",), {"srcs": "a list of tensors in HBM"},
                       "None. Each dst is this rank's part, one of n, of the src of every rank, one after the other.",
                       LISTS),
    "collective_permute": Page(("permute",), {"source_target_pairs": "(from, to) for each rank that receives"},
                               "None. dst gets the src of the rank that sends to this one; a rank that receives "
                               "nothing keeps dst.", SINGLE),
    "collective_permute_implicit": Page(("ring_permute",), {},
                                        "None. Each dst gets the src of the rank before this one in the ring.", LISTS),
    "collective_permute_implicit_reduce": Page(
        ("ring_permute",), {}, "None. Each dst gets src0 op src1 of the rank before this one in the ring.", LISTS),
    "collective_permute_implicit_current_processing_rank_id": Page(
        ("rank_id",), {"iteration_id": "the number of steps in the ring, from 0"},
        "A register: the rank whose data this rank has after the steps.",
        "A channel_id outside of 0 to 3 is an error."),
    "rank_id": Page(("rank_id",), {}, "A register: this rank's number.", "None."),
    "all_gather_v": Page(("varying_exchange",), {"has_rdispls": "must be False"},
                         "None. dst has n slots; slot s gets the part that rank s sends to all, which column 0 of its "
                         "metadata_tensor describes.", SINGLE),
    "all_to_all_v": Page(("varying_exchange",), {},
                         "None. dst has n slots, or parts that begin where row 3 says; slot s gets the part that rank "
                         "s sends to this one.", SINGLE),
}
