# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.isa`` in every release that changed a name, as the documents of that release write it."""

HISTORY = """\
[nki.isa]
NKIObject
    2.29   class
    2.30   -
NkiInstruction
    2.32   class(NKIObject) init(handle)
NkiValidationError
    2.29   class(Exception)
VirtualRegister
    2.29   class(NKIObject)
    2.30   class(NKIObject) init(state=None, frozen=False)
activate2
    kinds  MAYBE imm0 imm1
    2.30   (dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False, reduce_op=None,
            reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None)
activation
    2.20   (op, data, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
    2.21   (op, data, *, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
    2.22   (op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=0, mask=None, dtype=None,
            **kwargs)
    2.23   (op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle, mask=None,
            dtype=None, **kwargs)
    2.27   (dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle,
            name=None)
activation_reduce
    2.21   (op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
    2.27   (dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None)
affine_select
    2.20   (pred, on_true_tile, on_false_value, mask=None, dtype=None, **kwargs)
    2.21   (pred, on_true_tile, on_false_value, *, mask=None, dtype=None, **kwargs)
    2.27   (dst, pattern, offset, channel_multiplier, on_true_tile, on_false_value, cmp_op=nl.equal, name=None)
    2.29   (dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=nl.equal, offset=0, name=None)
attention_kernel
    2.20   (kernel_name, q, k, v, scale, out)
    2.21   -
attention_kernel_cache
    2.20   (kernel_name, q, k, v, scale, out, neg_max, recip)
    2.21   -
bn_aggr bn_stats
    2.20   (data, mask=None, dtype=None, **kwargs)
    2.21   (data, *, mask=None, dtype=None, **kwargs)
    2.27   (dst, data, name=None)
builtin_custom_op
    2.20   (function_name, lib_file_name, ulib_to_ucode_version, ulib_to_isa_version, srcs, dsts, **kwargs)
    2.27   -
core_barrier
    2.27   (data, cores, engine=engine.unknown, name=None)
    2.29   (data, cores, engine=engine.gpsimd, name=None)
dge_mode
    2.23   enum {none=0, swdge=1, hwdge=2, unknown=3}
    2.27   enum {unknown=0, swdge=1, hwdge=2, none=3}
dma_compute
    2.27   (dst, srcs, scales, reduce_op, name=None)
    2.29   (dst, srcs, reduce_op, scales=None, unique_indices=True, name=None)
    2.30   (dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None)
dma_copy
    2.21   (src, dst)
    2.22   (*, dst, src)
    2.23   (*, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown) + mode
    2.27   (dst, src, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, name=None)
    2.28   (dst, src, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, unique_indices=True,
            name=None)
    2.29   (dst, src, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown, name=None)
    2.30   (dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown,
            name=None)
dma_engine
    2.20   constant
    2.27   constant = engine.dma
    2.29   enum {dma=1, gpsimd_dma=2}
dma_transpose
    kinds  ANY axes
    2.21   (src, *, mask=None, dtype=None, **kwargs)
    2.26   (src, *, axes=None, mask=None, dtype=None, **kwargs) + dge_mode
    2.27   (dst, src, axes=None, dge_mode=dge_mode.unknown, name=None)
    2.28   (dst, src, axes=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
    2.30   (dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
dropout
    2.20   (data, prob, mask=None, dtype=None, **kwargs)
    2.21   (data, prob, *, mask=None, dtype=None, **kwargs)
    2.27   (dst, data, prob, name=None)
engine
    2.22   enum {tensor=1, vector=5, scalar=2, gpsimd=3, dma=4, unknown=0}
    2.23   enum {tensor=1, vector=5, scalar=2, gpsimd=3, sync=6, unknown=0}
    2.27   enum {tensor=1, vector=5, scalar=2, gpsimd=3, dma=4, sync=6, unknown=0}
exponential
    2.28   (dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0)
    2.29   (dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0, name=None)
fp32
    2.23   class attributes{min}
    2.27   -
get_nc_sub_version
    2.31   ()
get_nc_version
    2.21   ()
gpsimd_engine
    2.20   constant
    2.27   constant = engine.gpsimd
iota
    kinds  INDEX expr
    2.20   (expr, dtype, mask=None, **kwargs)
    2.21   (expr, dtype, *, mask=None, **kwargs)
    2.27   (dst, pattern, offset, channel_multiplier=0, name=None)
    2.29   (dst, pattern, offset=0, channel_multiplier=0, name=None)
local_gather
    current INTEGER num_valid_indices
    2.20   (src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, mask=None)
    2.21   (src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None)
    2.27   (dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None)
matmul_perf_mode
    2.27   enum {none='none', double_row='double_row'}
max8
    2.22   (*, src, mask=None, dtype=None, **kwargs)
    2.27   (dst, src, name=None)
memset
    kinds  NUMBER value, TILE_SHAPE shape
    2.20   (shape, value, dtype, mask=None, **kwargs)
    2.21   (shape, value, dtype, *, mask=None, engine=0, **kwargs)
    2.23   (shape, value, dtype, *, mask=None, engine=engine.unknown, **kwargs)
    2.27   (dst, value, engine=engine.unknown, name=None)
nc_find_index8
    2.22   (*, data, vals, mask=None, dtype=None, **kwargs)
    2.27   (dst, data, vals, name=None)
nc_match_replace8
    2.22   (*, data, vals, imm, mask=None, dtype=None, **kwargs)
    2.25   (*, data, vals, imm, dst_idx=None, mask=None, dtype=None, **kwargs)
    2.27   (dst, data, vals, imm, dst_idx=None, name=None)
nc_matmul
    2.20   (stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, mask=None, **kwargs)
    2.21   (stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
            mask=None, **kwargs)
    2.22   (stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
            tile_position=(), tile_size=(), mask=None, **kwargs)
    2.27   (dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
            tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
    2.29   (dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
            accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
nc_matmul_mx
    2.27   (dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
            name=None) + psum_accumulate_flag
    2.29   (dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
            accumulate=None, name=None)
nc_n_gather
    2.27   (dst, data, indices, name=None)
nc_stream_shuffle
    2.22   (src, dst, shuffle_mask, *, dtype=None, mask=None, **kwargs)
    2.27   (dst, src, shuffle_mask, name=None)
nc_transpose
    2.20   (data, mask=None, dtype=None, engine=None, **kwargs)
    2.21   (data, *, mask=None, dtype=None, engine=0, **kwargs)
    2.23   (data, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
    2.27   (dst, data, engine=engine.unknown, name=None)
nc_version
    2.21   enum {gen2=2, gen3=3}
    2.27   enum {gen2=2, gen3=3, gen4=4}
nonzero_with_count
    2.28   (dst, src, index_offset=0, padding_val=-1)
    2.29   (dst, src, index_offset=0, padding_val=-1, name=None)
oob_mode
    2.23   enum {error=0, skip=1}
quantize_mx
    2.27   (dst, src, dst_scale, name=None)
rand2
    2.27   (dst, min, max, name=None)
rand_get_state
    2.27   (dst, engine=engine.unknown, name=None)
    2.31   (dst, engine=engine.gpsimd, name=None)
rand_set_state
    2.27   (src_seeds, engine=engine.unknown, name=None)
    2.31   (src_seeds, engine=engine.gpsimd, name=None)
range_select
    current INTEGER range_start
    2.23   (*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, reduce_res=None,
            reduce_op=np.amax, range_start=0, on_false_value=fp32.min, mask=None, dtype=None, **kwargs)
    2.27   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, reduce_res=None,
            reduce_op=nl.maximum, range_start=0.0, on_false_value=0.0, name=None)
    2.28   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
            reduce_res=None, reduce_op=nl.maximum, range_start=0.0, on_false_value=-3.4028235e+38, name=None)
    2.29   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
            reduce_res=None, reduce_op=nl.maximum, range_start=0, on_false_value=-3.4028235e+38, name=None)
reciprocal
    2.20   (data, dtype=None, mask=None, **kwargs)
    2.21   (data, *, dtype=None, mask=None, engine=0, **kwargs)
    2.22   (data, *, dtype=None, mask=None, **kwargs)
    2.27   (dst, data, name=None)
reduce_cmd
    2.22   enum {idle=0, reset=1, reset_reduce=3, reduce=2}
    2.27   enum {idle=0, reset=1, reduce=2, reset_reduce=3, load_reduce=4}
register_alloc
    2.27   (x=None)
register_load register_store
    kinds  ANY dst src
    2.27   (dst, src)
register_move
    kinds  ANY dst src imm
    2.27   (dst, imm)
    2.29   (dst, src)
rng
    2.27   (dst, engine=engine.unknown, name=None)
    2.31   (dst, engine=engine.vector, name=None)
scalar_engine
    2.20   constant
    2.27   constant = engine.scalar
scalar_tensor_tensor
    kinds  TILE operand1
    current MAYBE operand0
    2.21   (*, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask=None, **kwargs)
    2.27   (dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None)
select_reduce
    2.26   (*, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=np.amax,
            reverse_pred=False, mask=None, dtype=None, **kwargs)
    2.27   (dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=nl.maximum,
            reverse_pred=False, name=None)
sendrecv
    2.27   (src, dst, send_to_rank, recv_from_rank, pipe_id, name=None)
    2.29   (src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engine.dma, name=None)
sequence_bounds
    2.26   (*, segment_ids, dtype=None)
    2.27   (dst, segment_ids, name=None)
set_rng_seed
    2.27   (src_seeds, name=None)
tensor_copy
    2.21   (src, *, mask=None, dtype=None, engine=0, **kwargs)
    2.23   (src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
    2.27   (dst, src, engine=engine.unknown, name=None)
tensor_copy_dynamic_dst
    2.22   (*, dst, src, mask=None, dtype=None, **kwargs)
    2.23   (*, dst, src, mask=None, dtype=None, engine=engine.unknown, **kwargs)
    2.27   (dst, src, engine=engine.unknown, name=None)
    2.28   -
    2.29   page
    2.29.1 -
tensor_copy_dynamic_src
    2.21   (src, *, mask=None, dtype=None, **kwargs)
    2.23   (src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
    2.27   (dst, src, engine=engine.unknown, name=None)
    2.28   -
    2.29   page
    2.29.1 -
tensor_copy_predicated
    kinds  SCALAR src
    2.22   (*, src, dst, predicate, mask=None, dtype=None, **kwargs)
    2.23   (*, src, dst, predicate, mask=None, dtype=None, reverse_pred=False, **kwargs)
    2.26   (*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None, **kwargs)
    2.27   (dst, src, predicate, reverse_pred=False, name=None)
tensor_engine
    2.20   constant
    2.27   constant = engine.tensor
tensor_partition_reduce
    2.21   (op, data, *, mask=None, dtype=None, **kwargs)
    2.27   (dst, op, data, name=None)
tensor_reduce
    2.20   (op, data, axis, mask=None, dtype=None, negate=False, keepdims=False, **kwargs)
    2.21   (op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False, **kwargs)
    2.27   (dst, op, data, axis, negate=False, keepdims=False, name=None)
tensor_scalar
    current MAYBE operand0
    2.20   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, dtype=None, mask=None,
            **kwargs)
    2.21   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None, mask=None,
            engine=0, **kwargs)
    2.23   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None, mask=None,
            engine=engine.unknown, **kwargs)
    2.27   (dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, engine=engine.unknown,
            name=None)
tensor_scalar_cumulative
    2.27   (dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce)
    2.29   (dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None)
tensor_scalar_reduce
    current MAYBE operand0
    2.21   (*, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None, **kwargs)
    2.27   (dst, data, op0, operand0, reduce_op, reduce_res, reverse0=False, name=None)
    2.30   (dst, data, op0, operand0, reduce_op, reduce_res, reverse0=False, reduce_cmd=reduce_cmd.reset_reduce,
            reduce_init=None, name=None)
    2.32   (dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, reduce_cmd=reduce_cmd.reset_reduce,
            reduce_init=None, reduce_res_negate=False, name=None)
tensor_tensor
    2.20   (data1, data2, op, dtype=None, mask=None, **kwargs)
    2.21   (data1, data2, op, *, dtype=None, mask=None, **kwargs)
    2.22   (data1, data2, op, *, dtype=None, mask=None, engine=0, **kwargs)
    2.23   (data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown, **kwargs)
    2.27   (dst, data1, data2, op, engine=engine.unknown, name=None)
tensor_tensor_scan
    2.20   (data0, data1, initial, op0, op1, reverse0=False, reverse1=False, dtype=None, mask=None, **kwargs)
    2.21   (data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None, **kwargs)
    2.27   (dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None)
topk
    kinds  INTEGER n
    2.32   (val_dst, idx_dst, src, n, name=None)
unknown_engine
    2.20   constant
    2.27   constant = engine.unknown
vector_engine
    2.20   constant
    2.27   constant = engine.vector
"""
