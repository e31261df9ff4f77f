# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented names of the beta generation, with the parameters and defaults that their documents give.

All functions accept undocumented extra keywords, which are not listed. ``None`` stands for a name that is not a
function (a dtype, a buffer, an enumeration, a constant) or that is documented without its parameters.
"""

from tests.signatures import table

NKI = table("""
    jit(func=None, mode='auto')
    trace(func=None)
    baremetal(kernel=None)
    benchmark(kernel=None, warmup=10, iters=100)
    profile(func=None, *, working_directory=None, save_neff_name='file.neff', save_trace_name='profile.ntff',
            additional_compile_opt='', overwrite=False, profile_nth=1, num_execs=None)
""") | dict.fromkeys(["simulate_kernel", "tensor"])

LANGUAGE = dict.fromkeys(
    """float32 tfloat32 float16 bfloat16 float8_e4m3 float8_e5m2 int8 int16 int32 uint8 uint16 uint32 bool_ sbuf psum hbm
    private_hbm shared_hbm tile_size fp32 bfp16 mgrid Tensor par_dim finfo nc spmd_dim arange affine_range
    sequential_range static_range""".split()) | table("""
    ds(start, size)
    program_id(axis)
    num_programs(axes=None)
    program_ndim()
    static_cast(input_data, dtype)
    ndarray|zeros|ones(shape, dtype, *, buffer=None, name='')
    full(shape, fill_value, dtype, *, buffer=None, name='')
    empty_like|zeros_like(a, dtype=None, *, buffer=None, name='')
    shared_constant(constant, dtype=None)
    shared_identity_matrix(n, dtype=uint8)
    rand(shape, dtype=float32)
    random_seed(seed, *, mask=None)
    dropout(x, rate, *, dtype=None, mask=None)
    load|load_transpose2d|copy(src, *, mask=None, dtype=None)
    store(dst, value, *, mask=None)
    atomic_rmw(dst, value, op, *, mask=None)
    broadcast_to(src, *, shape)
    all_reduce(x, op, program_axes, *, dtype=None, mask=None, parallel_reduce=True, asynchronous=False)
    loop_reduce(x, op, loop_indices, *, dtype=None, mask=None)
    device_print(prefix, x, *, mask=None)
    expand_dims(data, axis)
    matmul(x, y, *, transpose_x=False, mask=None)
    transpose(x, *, dtype=None, mask=None)
    gather_flattened(data, indices, *, mask=None, dtype=None)
    where(condition, x, y, *, dtype=None, mask=None)
    add|subtract|multiply|divide|power|maximum|minimum(x, y, *, dtype=None, mask=None)
    mod|fmod(x, y, dtype=None, mask=None)
    equal|not_equal|greater|greater_equal|less|less_equal(x, y, *, dtype=bool, mask=None)
    logical_and|logical_or|logical_xor(x, y, *, dtype=bool, mask=None)
    bitwise_and|bitwise_or|bitwise_xor|left_shift|right_shift(x, y, *, dtype=None, mask=None)
    logical_not(x, *, dtype=bool, mask=None)
    invert|negative|floor|ceil|trunc|exp|log|sin|cos|tan|tanh|arctan|sqrt|rsqrt(x, *, dtype=None, mask=None)
    sigmoid|relu|gelu|gelu_dx|gelu_apprx_tanh|gelu_apprx_sigmoid|silu|silu_dx(x, *, dtype=None, mask=None)
    erf|erf_dx|softplus|mish|square|sign|abs|reciprocal(x, *, dtype=None, mask=None)
    sum|prod|max|min|mean(x, axis, *, dtype=None, mask=None, keepdims=False)
    all(x, axis, *, dtype=bool, mask=None)
    var(x, axis, *, dtype=None, mask=None)
    softmax(x, axis, *, dtype=None, compute_dtype=None, mask=None)
    rms_norm(x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None)
""")

ISA = dict.fromkeys("""engine reduce_cmd dge_mode oob_mode nc_version tensor_engine vector_engine scalar_engine gpsimd_engine
    dma_engine unknown_engine fp32""".split()) | table("""
    get_nc_version()
    nc_matmul(stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
              tile_position=(), tile_size=(), mask=None)
    nc_transpose(data, *, mask=None, dtype=None, engine=engine.unknown)
    activation(op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle,
               mask=None, dtype=None)
    activation_reduce(op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None)
    tensor_tensor(data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown)
    tensor_scalar(data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None,
                  mask=None, engine=engine.unknown)
    tensor_scalar_reduce(*, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None)
    scalar_tensor_tensor(*, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask=None)
    tensor_reduce(op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False)
    tensor_tensor_scan(data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None)
    tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, *, mask=None)
    tensor_copy|tensor_copy_dynamic_src(src, *, mask=None, dtype=None, engine=engine.unknown)
    tensor_copy_dynamic_dst(*, dst, src, mask=None, dtype=None, engine=engine.unknown)
    tensor_copy_predicated(*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None)
    select_reduce(*, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=amax,
                  reverse_pred=False, mask=None, dtype=None)
    range_select(*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, reduce_res=None,
                 reduce_op=amax, range_start=0, on_false_value=-3.4028234663852886e+38, mask=None, dtype=None)
    reciprocal(data, *, dtype=None, mask=None)
    dropout(data, prob, *, mask=None, dtype=None)
    bn_stats|bn_aggr(data, *, mask=None, dtype=None)
    max8(*, src, mask=None, dtype=None)
    nc_find_index8(*, data, vals, mask=None, dtype=None)
    nc_match_replace8(*, data, vals, imm, dst_idx=None, mask=None, dtype=None)
    nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask=None)
    memset(shape, value, dtype, *, mask=None, engine=engine.unknown)
    iota(expr, dtype, *, mask=None)
    affine_select(pred, on_true_tile, on_false_value, *, mask=None, dtype=None)
    tensor_partition_reduce(op, data, *, mask=None, dtype=None)
    local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None)
    sequence_bounds(*, segment_ids, dtype=None)
    dma_copy(*, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown)
    dma_transpose(src, *, axes=None, mask=None, dtype=None, dge_mode=dge_mode.unknown)
""")

COMPILER = dict.fromkeys(["sbuf", "psum", "skip_middle_end_transformations", "enable_stack_allocator",
                          "force_auto_alloc", "multi_buffer", "no_reorder", "allocation_scope"])
TYPING = dict.fromkeys(["tensor", "mutable_tensor", "mutable", "scalar"])

MODULES = {"nki": NKI, "language": LANGUAGE, "isa": ISA, "compiler": COMPILER, "typing": TYPING}
