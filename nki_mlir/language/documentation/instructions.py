# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of ``nisa`` and ``nki.collectives``: arguments, results and rules, in both generations.

P are partitions, F and N elements of a partition, over all free axes; ``n`` ranks are in a group, in the order of its
list. ``COMMON`` describes a parameter for all instructions, an instruction's page where it is more special.
"""

from typing import NamedTuple


class Page(NamedTuple):
    """The documentation of a function. ``ops`` are the operations of the ``nisa`` dialect that the instruction
    becomes; engines and cost are read from them."""

    ops: tuple[str, ...]
    takes: dict[str, str]
    result: str
    errors: str


COMMON = {
    "dst": "[P, F] in SBUF or PSUM, of any dtype, which is written",
    "data": "[P, F] in SBUF or PSUM", "src": "[P, F] in SBUF or PSUM",
    "data1": "[P, F] in SBUF or PSUM", "data2": "[P, F] in SBUF or PSUM, of data1's shape",
    "op": "an operator, such as nl.add", "op0": "the first operator, such as nl.multiply",
    "op1": "the second operator, such as nl.add",
    "operand0": "op0's second operand; a tile is [P, 1] of float32",
    "operand1": "op1's second operand; a tile is [P, 1] of float32",
    "reduce_op": "an operator that folds elements, such as nl.add",
    "reverse0": "op0 has its operands in the other order", "reverse1": "op1 has its operands in the other order",
    "reduce_cmd": "what happens to the engine's accumulation registers before and after the instruction",
    "reduce_res": "[P, 1], to which the instruction writes the registers",
    "reduce_init": "the value that load_reduce puts into the registers",
    "bias": "[P, 1] in SBUF or PSUM; 0 by default", "scale": "a tile is [P, 1] of float32",
    "engine": "the engine that runs it; unknown lets the compiler choose", "name": "its name in profiles",
    "mask": "a condition on loop variables and indices; elements where it is false keep their values",
    "dtype": "the result's dtype; that of the operands by default",
    "predicate": "[P, F] of unsigned integers; any value but 0 is true",
    "on_true_tile": "[P, F], the values where the condition is true",
    "negate": "multiplies the result by -1", "keepdims": "True keeps reduced axes, with extent 1",
    "oob_mode": "whether an address out of bounds is an error or its element is skipped",
    "dge_mode": "what generates the DMA descriptors; unknown lets the compiler choose",
    "priority": "0 (first) to 3, from NeuronCore-v4 on",
    "accumulate": "True adds to dst, False overwrites it, None adds where a product has written dst before",
    "pattern": "one pair for each free axis, outermost first",
    "channel_multiplier": "the step from one partition to the next",
}
MACHINE = "The number of the machine. It is known when the kernel is captured, so that an if may test it."
STATES = "Another dtype or count of words, and a machine before NeuronCore-v3 (Vector: v4), are errors."
SAME = "A tile of another shape than the rest, and operands that are all in PSUM, are errors."
SHAPES = "A tile of another shape than these, or in another memory, is an error."

INSTRUCTIONS = {
    "activation": Page(("activation", "activation_accumulate"), {
        "op": "an activation function, such as nl.exp", "reduce_op": "nl.add, or None"},
        "op(data * scale + bias), computed in float32 and rounded once to dst's dtype.",
        "An op that is not an activation function, and a bias or scale that is not [P, 1], are errors."),
    "activation_reduce": Page(("activation_accumulate", "activation_reduce"), {
        "op": "an activation function, such as nl.exp", "reduce_op": "nl.add"},
        "op(data * scale + bias), and in reduce_res [P, 1] the sum of the float32 values over the free axes.",
        "An op that is not an activation function is an error; a reduce_op other than nl.add is a warning."),
    "tensor_tensor": Page(("tensor_tensor",), {},
        "data1 op data2 of each element, computed in float32 (bitwise operators: on integers), rounded once.", SAME),
    "tensor_scalar": Page(("tensor_scalar",), {},
        "(data op0 operand0) op1 operand1, computed in float32 and rounded once; data op0 operand0 without op1.",
        "operand1 without op1, and an operand that is neither a number nor [P, 1], are errors."),
    "scalar_tensor_tensor": Page(("scalar_tensor_tensor",), {"operand1": "[P, F], of data's shape"},
        "(data op0 operand0) op1 operand1, computed in float32 and rounded once.", SAME),
    "tensor_reduce": Page(("tensor_reduce",), {"axis": "the axes to reduce: the last free ones"},
        "data folded over the axes in float32 and rounded once; [P, F] over axis 1 is [P, 1].",
        "Axis 0, the partition, and axes that are not the last ones are errors."),
    "tensor_partition_reduce": Page(("tensor_partition_reduce",), {
        "dst": "[1, F] in SBUF", "data": "[P, F] in SBUF"},
        "[1, F]: data folded over its partitions in float32, rounded once.", SHAPES),
    "tensor_tensor_scan": Page(("tensor_tensor_scan",), {
        "data0": "[P, F] in SBUF or PSUM", "data1": "[P, F], of data0's shape", "initial": "a tile is [P, 1]"},
        "[P, F]: element i is op1(op0(data0[i], element i - 1), data1[i]); element -1 is initial.", SAME),
    "tensor_copy": Page(("tensor_copy",), {},
        "The elements of src: bit for bit where dtypes are equal, else converted through float32.",
        "Tiles of different shapes, in HBM, or in PSUM on GpSimd, are errors."),
    "tensor_copy_predicated": Page(("tensor_copy_predicated",), {
        "src": "[P, F] in SBUF or PSUM, or a number", "reverse_pred": "copies where the predicate is 0"},
        "dst has src's elements where the predicate is true, and keeps its values elsewhere.",
        "A predicate of floats, and src of another dtype than dst, are errors."),
    "memset": Page(("memset",), {"value": "a number, converted to dst's dtype", "shape": "[P, F...] of the new tile"},
        "A tile whose elements all have the value.", "An infinity or NaN in a tile of integers is an error."),
    "reciprocal": Page(("reciprocal",), {}, "1 / data in float32, rounded once; 1 / 0 is infinity.", SHAPES),
    "bn_stats": Page(("bn_stats",), {"dst": "[P, 6] in SBUF or PSUM", "data": "[P, F], F at most 512 elements"},
        "[P, 6]: count, mean, variance * count of the elements at even indices, then of those at odd ones.", SHAPES),
    "bn_aggr": Page(("bn_aggr",), {"dst": "[P, 2] in SBUF or PSUM", "data": "[P, 3 * groups]"},
        "[P, 2]: mean and population variance of all groups together.", SHAPES),
    "max8": Page(("max8",), {"dst": "[P, 8]", "src": "[P, F] of 8 to 16384 elements a partition"},
        "[P, 8]: the 8 largest elements of each partition, largest first; equal elements are repeated.", SHAPES),
    "nc_find_index8": Page(("nc_find_index8",), {
        "dst": "[P, 8] of uint16 or uint32", "data": "[P, F] of 8 to 16384 elements a partition", "vals": "[P, 8]"},
        "[P, 8]: the index of each value's first occurrence in its flattened partition; all bits 1 without one.",
        SHAPES),
    "nc_match_replace8": Page(("nc_match_replace8",), {
        "vals": "[P, 8]", "imm": "the number that replaces them",
        "dst_idx": "[P, 8] of uint16 or uint32, written with their indices"},
        "data with one occurrence of each of the 8 values replaced by imm.", SHAPES),
    "nc_stream_shuffle": Page(("nc_stream_shuffle",), {
        "shuffle_mask": "32 integers: the partition of its group of 32 that each is copied from, or 255"},
        "In each 32 partitions, partition i of dst gets src's partition shuffle_mask[i]; with 255 it keeps its values.",
        "Tiles of different dtypes, and partitions beyond src, are errors."),
    "nc_matmul": Page(("nc_matmul",), {
        "dst": "[M, N] float32 in PSUM, in one bank", "stationary": "[K, M] in SBUF, K and M at most 128",
        "moving": "[K, N] in SBUF, N at most 512 (more from NeuronCore-v4 on)",
        "is_stationary_onezero": "a hint: stationary holds only 0 and 1; values stay the same",
        "is_moving_onezero": "a hint: moving holds only 0 and 1; values stay the same",
        "is_transpose": "moving is an identity matrix, and stationary's elements are transposed bit for bit",
        "tile_position": "(row, column) of the array at which the used part begins",
        "tile_size": "(rows, columns) of that part; values stay the same",
        "perf_mode": "a nisa.matmul_perf_mode: double_row multiplies [K, 2, M] by [K, 2, N] of 8-bit floats"},
        "[M, N] in PSUM: stationary.T @ moving, summed in float32.",
        "Operands outside of SBUF, of different K or of integers, and a dst outside of PSUM are errors."),
    "nc_transpose": Page(("nc_transpose",), {
        "dst": "[F, P], in PSUM by the Tensor engine, of data's dtype",
        "data": "[P, F], up to 128 x 128 by the Tensor engine and 32 x 32 by the Vector engine"},
        "[F, P]: data with its partition and its flattened free axes exchanged.", SHAPES),
    "iota": Page(("iota",), {
        "dst": "[P, F] in SBUF", "offset": "an integer or a register",
        "expr": "an affine expression of nl.arange indices"},
        "[P, F]: offset + p * channel_multiplier + the sum of step * i, of 32-bit integers, as dst's dtype.",
        "A pattern of another count of elements than dst is an error."),
    "affine_select": Page(("affine_select",), {
        "offset": "an integer that is added", "on_false_value": "the value of the other elements",
        "cmp_op": "a comparison with 0, such as nl.greater_equal", "pred": "an affine comparison of nl.arange indices"},
        "[P, F]: on_true_tile where offset + p * channel_multiplier + the sum of step * i cmp_op 0 is true.", SHAPES),
    "local_gather": Page(("local_gather",), {
        "dst": "[P, count * num_elem_per_idx] in SBUF, of src_buffer's dtype",
        "src_buffer": "[P, F] in SBUF, P a multiple of 16",
        "index": "[P, I] of uint16: 16 partitions share their indices, in order of the partition first",
        "num_elem_per_idx": "how many elements each index copies: 1, 2, 4, 8, 16 or 32",
        "num_valid_indices": "how many of the 16 * I indices are used; all by default"},
        "The elements of each partition at its group's indices; a new tile is [P, I, 16, num_elem_per_idx].",
        SHAPES),
    "dma_copy": Page(("dma_copy",), {
        "dst": "[P, F...] in SBUF or a tensor in HBM", "src": "as many elements, in HBM or SBUF",
        "dst_rmw_op": "an operator that combines dst's elements with src's"},
        "dst gets src's elements, converted where dtypes differ.",
        "Different counts of elements, and an address out of bounds with oob_mode error, are errors."),
    "dma_transpose": Page(("dma_transpose",), {
        "dst": "in SBUF, of src's dtype and its shape with the axes exchanged", "src": "2 to 4 axes, in HBM or SBUF",
        "axes": "(1, 0), (2, 1, 0) or (3, 1, 2, 0); by default the one with src's count of axes"},
        "src with its axes permuted, bit for bit.", SHAPES),
    "tensor_scalar_reduce": Page(("tensor_scalar_accumulate", "tensor_scalar_reduce"), {
        "reduce_op": "nl.add, nl.multiply, nl.maximum or nl.minimum",
        "reduce_res_negate": "multiplies what reduce_res gets by -1"},
        "data op0 operand0, rounded once; the registers fold its float32 values over the free axes.",
        "Another reduce_op, and reduce_init without load_reduce, are errors."),
    "tensor_scalar_cumulative": Page(("tensor_scalar_cumulative",), {
        "imm0": "op0's operand; a tile is [P, 1]", "imm1": "the value that load_reduce starts from"},
        "[P, F]: element i is op1(op0(src[i], imm0), element i - 1), computed in float32, each rounded once.",
        "Tiles of 32-bit integers, and imm1 without load_reduce, are errors."),
    "range_select": Page(("range_select",), {
        "on_true_tile": "[P, F] of floats", "comp_op0": "compares the index with bound0, such as nl.greater_equal",
        "comp_op1": "compares the index with bound1, such as nl.less", "bound0": "[P, 1] float32",
        "bound1": "[P, 1] float32", "reduce_op": "nl.maximum", "range_start": "the index of the first element",
        "on_false_value": "the lowest float32, the only value"},
        "on_true_tile where both comparisons of the free index are true, else the lowest float32; reduce_res gets each "
        "row's maximum.",
        "Another reduce_op, and a tile of integers, are errors; another on_false_value is a warning."),
    "select_reduce": Page(("select_reduce",), {
        "predicate": "[P, F] of 8-bit or 16-bit integers; any value but 0 is true", "on_true": "[P, F] in SBUF or PSUM",
        "on_false": "a tile is [P, 1] of float32", "reduce_op": "nl.maximum",
        "reverse_pred": "True takes 0 for true"},
        "on_true where the predicate is true, else on_false; the registers get each row's maximum.",
        "A predicate of floats or 32 bits, on_true of 32-bit integers, and another reduce_op are errors."),
    "exponential": Page(("exponential",), {"max_value": "the number to subtract; a tile is [P, 1] of float32"},
        "exp(src - max_value) in float32, rounded once; the registers get each row's sum.",
        "A machine before NeuronCore-v4, and reduce_init without load_reduce, are errors."),
    "activate2": Page(("activate2",), {
        "op": "an activation function, such as nl.exp", "imm0": "op0's operand; a tile is [P, 1]",
        "imm1": "op1's operand; a tile is [P, 1]", "relu_param": "the slope of nl.prelu below 0"},
        "op((data op0 imm0) op1 imm1) in float32, rounded once.",
        "A machine before NeuronCore-v4, and an op that is not an activation function, are errors."),
    "dma_compute": Page(("dma_compute",), {
        "dst": "[P, F...] in SBUF or HBM", "srcs": "of dst's shape, in SBUF or HBM", "reduce_op": "nl.add",
        "scales": "1.0 for each source, or None", "unique_indices": "True: no run-time address occurs twice"},
        "dst gets the sum of the sources, computed in float32 and rounded once.", "Another reduce_op is an error."),
    "nc_n_gather": Page(("gather_flattened",), {
        "dst": "[P, I] in SBUF, of data's dtype", "data": "[P, F] in SBUF",
        "indices": "[P, I] of uint32, which count elements in a partition of data"},
        "[P, I]: the elements of each partition of data, flattened, at its indices.",
        "Indices of another dtype than uint32, and dst of another dtype than data, are errors."),
    "sequence_bounds": Page(("sequence_bounds",), {
        "dst": "[1, 2, N] in SBUF, of float32 or int32",
        "segment_ids": "[1, N] in SBUF, of float32 or int32; 0 is padding"},
        "[1, 2, N]: for each index the first index of its run of equal ids, and one past the last; N and -1 at "
        "padding.",
        SHAPES),
    "dropout": Page(("dropout",), {
        "dst": "[P, F], of data's dtype",
        "prob": "the probability of 0, from 0 to 1; a tile is [P, 1] of float32"},
        "data with elements set to 0 at random; the others stay as they are.",
        "A probability outside of 0 to 1, and dst of another dtype than data, are errors."),
    "nonzero_with_count": Page(("nonzero_with_count",), {
        "dst": "[P, F + 1] int32 in SBUF", "src": "[P, F] of float32 or int32 in SBUF",
        "index_offset": "an integer added to each index", "padding_val": "the value behind the indices"},
        "In partitions 0, 16, ...: the indices of elements that are not 0, then padding_val, and their count at the "
        "end. "
        "Other partitions keep their values.",
        SHAPES),
    "core_barrier": Page(("core_barrier",), {
        "data": "a tensor in nl.shared_hbm; with any other the barrier orders all memory that the cores share",
        "cores": "the numbers of the cores that wait for each other: (0, 1); one alone does not wait"},
        "None. After the barrier each core reads what any of them wrote to data before it.",
        "A core that the launch does not have is an error; cores that never meet are one when the program runs."),
    "sendrecv": Page(("sendrecv",), {
        "src": "[P, F...] in SBUF", "dst": "[P, F...] in SBUF, of src's shape and dtype",
        "send_to_rank": "the core that receives src: 0 or 1", "recv_from_rank": "the core that sends dst: 0 or 1",
        "pipe_id": "exchanges of one pipe match in their order",
        "dma_engine": "gpsimd_dma moves at most 256 elements a partition"},
        "None. dst gets what the other core sent.",
        "Other shapes, dtypes, memories or cores, and a launch of one core that names another, are errors."),
    "quantize_mx": Page(("quantize_mx",), {
        "dst": "[P, F / 4] of nl.float8_e4m3fn_x4 or nl.float8_e5m2_x4 in SBUF",
        "src": "[P, F] of bfloat16 or float16 in SBUF, P a multiple of 32, F of 4",
        "dst_scale": "[P / 8, F / 4] of uint8 or float8_e8m0fnu; from 64 partitions on [P, F / 4], four rows in 32"},
        "8 partitions x 4 elements share a scale 2 ** e with e = floor(log2(largest magnitude)) - 7 (e5m2: - 14). dst "
        "holds src / scale, rounded to nearest even, dst_scale e + 127.", SHAPES),
    "nc_matmul_mx": Page(("nc_matmul_mx",), {
        "dst": "[M, N] of float32 or bfloat16 in PSUM", "stationary": "[K, M] of a packed type (..._x4) in SBUF",
        "moving": "[K, N] of a packed type in SBUF", "stationary_scale": "scales of stationary, as of quantize_mx",
        "moving_scale": "scales of moving, as of quantize_mx", "tile_position": "(row, 0) where the array is used from",
        "tile_size": "(rows, 128) that are used"},
        "[M, N]: the sum over K and the 4 elements of each of stationary * scale * moving * scale, in float32.",
        "Operands that are not packed, scales of other shapes, and a dst outside of PSUM, are errors."),
    "topk": Page(("topk",), {
        "val_dst": "[P, K] of bfloat16 in SBUF", "idx_dst": "[P, K] of uint32 in SBUF",
        "src": "[P, F] of bfloat16 in SBUF: 16 partitions hold a list, element i at [i % 16, i // 16]",
        "n": "the length of the lists, 8 to 16 * F"},
        "val_dst: the K largest of each list, ascending, laid out as lists; idx_dst: their places; the rest stays.",
        SHAPES),
    "rng": Page(("rng",), {"dst": "[P, F] of integers in SBUF or PSUM"}, "Random bits in every element.",
                "A tile of floats is an error."),
    "rand2": Page(("rand", "tensor_scalar"), {"min": "a tile is [P, 1]",
        "max": "above min; a tile is [P, 1]"},
                  "Random numbers, uniform between min and max, converted to dst's dtype.",
                  "A max that is not above min, and a machine before NeuronCore-v4, are errors."),
    "set_rng_seed": Page(("random_seed",), {"src_seeds": "[1, 1] of 32 bits in SBUF or PSUM"},
                         "None. The Vector engine's random numbers that follow are the same in each run.",
                         "A tile of several elements, or of other than 32 bits, is an error."),
    "rand_get_state": Page(("tensor_copy",), {"dst": "[P, 6] of uint32 in SBUF; [P, 24] of the Vector engine"},
                           "The state of the engine's generator, for rand_set_state.", STATES),
    "rand_set_state": Page(("tensor_copy",), {"src_seeds": "[P, 6] of uint32 in SBUF; [P, 24] of the Vector engine"},
                           "None. The engine's random numbers continue as they did after rand_get_state.", STATES),
    "register_alloc": Page((), {"x": "its value: an integer, a register or a tensor of one element; None leaves it "
                                     "unset"},
                           "A register of 32 bits, a run-time value for offsets, bounds and conditions.",
                           "A tensor of several elements is an error."),
    "register_move": Page(("tensor_copy",), {"dst": "a register", "src": "an integer or a register"},
                          "None. dst gets src's value.",
                          "A dst that is no register, or is a loop's variable, is an error."),
    "register_load": Page(("dma_copy", "tensor_copy"), {"dst": "a register", "src": "one element of up to 32 bits"},
                          "None. dst gets the element; a float is converted, with a warning.",
                          "A tensor of several elements is an error."),
    "register_store": Page(("dma_copy", "tensor_copy"), {"dst": "one element of up to 32 bits", "src": "a register"},
                           "None. The element gets the register's value.", "A src that is no register is an error."),
    "get_nc_version": Page((), {}, MACHINE.replace("number", "generation"), "A call outside of a kernel is an error."),
    "get_nc_sub_version": Page((), {}, MACHINE.replace("number", "revision"), "A call outside of a kernel is none."),
    "tensor_copy_dynamic_src": Page(("dynamic_read",), {
        "src": "[P, F] in SBUF or PSUM, from a free offset that a [1, 1] tile holds"},
        "The elements from the offset on.", "An offset beyond the tensor is an error when the program runs."),
    "tensor_copy_dynamic_dst": Page(("dynamic_write",), {
        "dst": "[P, F] in SBUF or PSUM, from a free offset that a [1, 1] tile holds"},
        "None. The elements from the offset on are src's.",
        "An offset beyond the tensor is an error when the program runs."),
}
BETA_INSTRUCTIONS = {
    "range_select": INSTRUCTIONS["range_select"]._replace(
        takes=INSTRUCTIONS["range_select"].takes | {"on_false_value": "the value of the other elements"},
        result="on_true_tile where both comparisons of the free index are true, else on_false_value; reduce_res gets "
               "each row's maximum.",
        errors="Another reduce_op, and a tile of integers, are errors."),
    **{n: INSTRUCTIONS[n]._replace(ops=(n,)) for n in ("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst")},
}


# -- exchanges between ranks -------------------------------------------------------------------------------------------
COMMON_OF_COLLECTIVES = {
    "srcs": "a list of tensors, all in HBM, or one in SBUF", "dsts": "as many, in the same memory, of the same dtypes",
    "replica_group": "a ReplicaGroup", "op": "nl.add, nl.minimum or nl.maximum", "collective_dim": "0",
    "priority": "0 (first) to 3, from NeuronCore-v4 on", "name": "its name in profiles",
    "srcs_by_channel": "a tensor for each channel", "dsts_by_channel": "a tensor for each channel",
    "srcs0_by_channel": "a tensor for each channel", "srcs1_by_channel": "a tensor for each channel",
    "channel_ids": "0, 1, ... up to 3", "channel_id": "0 to 3",
    "metadata_tensor": "[3, n] of uint32: counts and first elements of what is sent, and counts of what is received; "
                       "with has_rdispls a fourth row, first elements of what is received",
    "recv_counts_known": "True: the third row is an input; False: the operation writes it",
    "has_rdispls": "there is a fourth row",
}
LISTS = "Lists of different lengths, memories or dtypes, and another group than a ReplicaGroup, are errors."
SINGLE = "Tensors in SBUF, several of them, and another group than a ReplicaGroup, are errors."
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
                               "None. dst gets src of the rank that sends to this one; a rank that receives nothing "
                               "keeps dst.", SINGLE),
    "collective_permute_implicit": Page(("ring_permute",), {},
                                        "None. Each dst gets src of the rank before this one in a ring.", LISTS),
    "collective_permute_implicit_reduce": Page(
        ("ring_permute",), {}, "None. Each dst gets src0 op src1 of the rank before this one in a ring.", LISTS),
    "collective_permute_implicit_current_processing_rank_id": Page(
        ("rank_id",), {"iteration_id": "steps round the ring, from 0"},
        "A register: the rank whose data is here after the steps.", "Another channel is an error."),
    "rank_id": Page(("rank_id",), {}, "A register: this rank's number.", "None."),
    "all_gather_v": Page(("varying_exchange",), {"has_rdispls": "False; True is an error"},
                         "None. dst has n slots; slot s gets the part that rank s sends to all: as many elements as "
                         "its "
                         "first count, from its first element on.", SINGLE),
    "all_to_all_v": Page(("varying_exchange",), {},
        "None. dst has n slots, or parts that begin where metadata_tensor says; slot s gets the "
                         "part that rank s sends to this one.", SINGLE),
}
