# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented names of the beta generation, with the parameters their documents give.

A parameter list is as in Python; undocumented extra keywords are accepted by all functions and not listed. ``None`` stands
for a name that is no function (a dtype, a buffer, an enumeration, a constant).
"""

BINARY = "x, y, *, dtype, mask"
COMPARE = BINARY
UNARY = "x, *, dtype, mask"
REDUCE = "x, axis, *, dtype, mask, keepdims"

NKI = {
    "jit": "func, mode", "trace": "func", "baremetal": "kernel", "benchmark": "kernel, warmup, iters",
    "profile": "func, *, working_directory, save_neff_name, save_trace_name, additional_compile_opt, overwrite, "
               "profile_nth, num_execs",
    "simulate_kernel": None, "tensor": None,
}

LANGUAGE = {
    **dict.fromkeys(["float32", "tfloat32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8", "int16",
                     "int32", "uint8", "uint16", "uint32", "bool_", "sbuf", "psum", "hbm", "private_hbm",
                     "shared_hbm", "tile_size", "fp32", "bfp16", "mgrid", "Tensor"]),
    "par_dim": None, "finfo": None, "nc": None, "spmd_dim": None,
    "arange": None, "ds": "start, size", "affine_range": None, "sequential_range": None, "static_range": None,
    "program_id": "axis", "num_programs": "axes", "program_ndim": "", "static_cast": "x, dtype",
    "ndarray": "shape, dtype, *, buffer, name", "zeros": "shape, dtype, *, buffer, name",
    "ones": "shape, dtype, *, buffer, name", "full": "shape, fill_value, dtype, *, buffer, name",
    "empty_like": "a, dtype, *, buffer, name", "zeros_like": "a, dtype, *, buffer, name",
    "shared_constant": "array, dtype", "shared_identity_matrix": "n, dtype",
    "rand": "shape, dtype", "random_seed": "seed, *, mask", "dropout": "x, rate, *, dtype, mask",
    "load": "src, *, mask, dtype", "store": "dst, value, *, mask", "load_transpose2d": "src, *, mask, dtype",
    "atomic_rmw": "dst, value, op, *, mask", "copy": "src, *, mask, dtype", "broadcast_to": "src, *, shape",
    "all_reduce": "x, op, program_axes, *, dtype, mask, parallel_reduce, asynchronous",
    "loop_reduce": "x, op, loop_indices, *, dtype, mask", "device_print": "prefix, x, *, mask",
    "expand_dims": "data, axis", "matmul": "x, y, *, transpose_x, mask", "transpose": "x, *, dtype, mask",
    "gather_flattened": "data, indices, *, mask, dtype", "where": "condition, x, y, *, dtype, mask",
    **dict.fromkeys(["add", "subtract", "multiply", "divide", "power", "maximum", "minimum"], BINARY),
    "mod": "x, y, dtype, mask", "fmod": "x, y, dtype, mask",
    **dict.fromkeys(["equal", "not_equal", "greater", "greater_equal", "less", "less_equal", "logical_and",
                     "logical_or", "logical_xor"], COMPARE),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"], BINARY),
    **dict.fromkeys(["invert", "logical_not", "negative", "floor", "ceil", "trunc", "exp", "log", "sin", "cos", "tan",
                     "tanh", "arctan", "sqrt", "rsqrt", "sigmoid", "relu", "gelu", "gelu_dx", "gelu_apprx_tanh",
                     "gelu_apprx_sigmoid", "silu", "silu_dx", "erf", "erf_dx", "softplus", "mish", "square", "sign",
                     "abs", "reciprocal"], UNARY),
    **dict.fromkeys(["sum", "prod", "max", "min"], REDUCE),
    "all": REDUCE, "mean": REDUCE, "var": "x, axis, *, dtype, mask",
    "softmax": "x, axis, *, dtype, compute_dtype, mask",
    "rms_norm": "x, w, axis, n, epsilon, *, dtype, compute_dtype, mask",
}

ISA = {
    **dict.fromkeys(["engine", "reduce_cmd", "dge_mode", "oob_mode", "nc_version", "tensor_engine", "vector_engine",
                     "scalar_engine", "gpsimd_engine", "dma_engine", "unknown_engine", "fp32"]),
    "get_nc_version": "",
    "nc_matmul": "stationary, moving, *, is_stationary_onezero, is_moving_onezero, is_transpose, tile_position, "
                 "tile_size, mask",
    "nc_transpose": "data, *, mask, dtype, engine",
    "activation": "op, data, *, bias, scale, reduce_op, reduce_res, reduce_cmd, mask, dtype",
    "activation_reduce": "op, data, *, reduce_op, reduce_res, bias, scale, mask, dtype",
    "tensor_tensor": "data1, data2, op, *, dtype, mask, engine",
    "tensor_scalar": "data, op0, operand0, reverse0, op1, operand1, reverse1, *, dtype, mask, engine",
    "tensor_scalar_reduce": "*, data, op0, operand0, reduce_op, reduce_res, reverse0, dtype, mask",
    "scalar_tensor_tensor": "*, data, op0, operand0, op1, operand1, reverse0, reverse1, dtype, mask",
    "tensor_reduce": "op, data, axis, *, mask, dtype, negate, keepdims",
    "tensor_tensor_scan": "data0, data1, initial, op0, op1, reverse0, reverse1, *, dtype, mask",
    "tensor_scalar_cumulative": "*, src, dst, op0, op1, imm0, imm1, reduce_cmd, mask",
    "tensor_copy": "src, *, mask, dtype, engine",
    "tensor_copy_dynamic_src": "src, *, mask, dtype, engine",
    "tensor_copy_dynamic_dst": "*, dst, src, mask, dtype, engine",
    "tensor_copy_predicated": "*, src, dst, predicate, reverse_pred, mask, dtype",
    "select_reduce": "*, dst, predicate, on_true, on_false, reduce_res, reduce_cmd, reduce_op, reverse_pred, mask, "
                     "dtype",
    "range_select": "*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd, reduce_res, reduce_op, "
                    "range_start, on_false_value, mask, dtype",
    "reciprocal": "data, *, dtype, mask", "dropout": "data, prob, *, mask, dtype",
    "bn_stats": "data, *, mask, dtype", "bn_aggr": "data, *, mask, dtype", "max8": "*, src, mask, dtype",
    "nc_find_index8": "*, data, vals, mask, dtype",
    "nc_match_replace8": "*, data, vals, imm, dst_idx, mask, dtype",
    "nc_stream_shuffle": "src, dst, shuffle_mask, *, dtype, mask", "memset": "shape, value, dtype, *, mask, engine",
    "iota": "expr, dtype, *, mask", "affine_select": "pred, on_true_tile, on_false_value, *, mask, dtype",
    "tensor_partition_reduce": "op, data, *, mask, dtype",
    "local_gather": "src_buffer, index, num_elem_per_idx, num_valid_indices, *, mask",
    "sequence_bounds": "*, segment_ids, dtype",
    "dma_copy": "*, dst, src, mask, dst_rmw_op, oob_mode, dge_mode",
    "dma_transpose": "src, *, axes, mask, dtype, dge_mode",
}

COMPILER = dict.fromkeys(["sbuf", "psum", "skip_middle_end_transformations", "enable_stack_allocator",
                          "force_auto_alloc", "multi_buffer", "no_reorder", "allocation_scope"])
TYPING = dict.fromkeys(["tensor", "mutable_tensor", "mutable", "scalar"])

MODULES = {"nki": NKI, "language": LANGUAGE, "isa": ISA, "compiler": COMPILER, "typing": TYPING}
