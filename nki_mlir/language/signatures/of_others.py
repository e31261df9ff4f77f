# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The other modules in every release that changed a name: kernels, allocation, exchanges, methods of tensors."""

HISTORY = """\
[nki]
FrameworkKernel
    2.20   class
    2.27   -
baremetal
    2.20   (kernel=None, **kwargs) + additional_compile_opt, artifacts_dir, save_neff_name, save_trace_name
    2.27   -
benchmark
    2.20   (kernel=None, **kwargs) + additional_compile_opt, iters, save_neff_name, save_trace_name, warmup
    2.27   -
jit
    2.21   (func=None, mode='auto', **kwargs)
    2.30   (fn=None, **kwargs)
profile
    2.21   (func=None, **kwargs) + additional_compile_opt, overwrite, profile_nth, save_neff_name, save_trace_name,
            working_directory
    2.27   -
simulate
    2.29   (kernel)
simulate_kernel
    2.20   (kernel, *args, **kwargs)
    2.27   -
tensor
    2.20   class attributes{dtype, ndim, shape}
    2.21   class attributes{dtype, itemsize, ndim, shape}
    2.27   -

[nki.compiler]
allocation_scope
    2.26   ()
    2.27   -
enable_stack_allocator
    2.21   (func=None, log_level=50)
    2.27   -
force_auto_alloc skip_middle_end_transformations
    2.21   (func=None)
    2.27   -
multi_buffer
    2.25   (factor=2)
    2.27   -
no_reorder
    2.23   ()
    2.27   -
psum sbuf
    2.21   constant
    2.27   -

[nki.compiler.sbuf]
alloc
    2.21   (func)
    2.27   -
auto_alloc
    2.21   ()
    2.27   -
mod_alloc
    2.21   (*, base_addr, base_partition=0, num_par_tiles=(), num_free_tiles=())
    2.27   -

[nki.compiler.psum]
alloc
    2.21   (func)
    2.27   -
auto_alloc
    2.21   ()
    2.27   -
mod_alloc
    2.21   (*, base_bank, base_addr=0, base_partition=0, num_bank_tiles=(), num_par_tiles=(), num_free_tiles=())
    2.27   -

[nki.collectives]
NKIObject
    2.28   class
    2.30   -
ReplicaGroup
    2.28   class(NKIObject)
all_gather all_to_all
    2.28   (srcs, dsts, replica_group, collective_dim)
    2.30   (srcs, dsts, replica_group, collective_dim, priority=None)
    2.31   (srcs, dsts, replica_group, collective_dim, priority=None, name=None)
all_gather_v
    2.32   (srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False, priority=None,
            name=None)
all_reduce
    kinds  ANY srcs
    2.28   (srcs, dsts, replica_group, op)
    2.30   (srcs, dsts, replica_group, op, priority=None)
    2.31   (srcs, dsts, replica_group, op, priority=None, name=None)
all_to_all_v
    2.29   (srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False)
    2.30   (srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False, priority=None)
    2.31   (srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False, priority=None,
            name=None)
collective_permute
    2.28   (srcs, dsts, source_target_pairs)
    2.30   (srcs, dsts, source_target_pairs, priority=None)
    2.31   (srcs, dsts, source_target_pairs, priority=None, name=None)
collective_permute_implicit
    2.28   (srcs_by_channel, dsts_by_channel, replica_group, channel_ids=[0])
    2.30   (srcs_by_channel, dsts_by_channel, replica_group, channel_ids=[0], priority=None)
    2.31   (srcs_by_channel, dsts_by_channel, replica_group, channel_ids=[0], priority=None, name=None)
collective_permute_implicit_current_processing_rank_id
    2.28   (iteration_id, replica_group, channel_id=0, num_channels=1)
    2.29   (iteration_id, replica_group, channel_id=0)
    2.31   (iteration_id, replica_group, channel_id=0, name=None)
collective_permute_implicit_reduce
    2.28   (srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op, channel_ids=[0])
    2.30   (srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op, channel_ids=[0], priority=None)
    2.31   (srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op, channel_ids=[0], priority=None,
            name=None)
rank_id
    2.28   ()
    2.31   (name=None)
reduce_scatter
    2.28   (srcs, dsts, replica_group, collective_dim, op)
    2.30   (srcs, dsts, replica_group, collective_dim, op, priority=None)
    2.31   (srcs, dsts, replica_group, collective_dim, op, priority=None, name=None)

[nki.tensor]
assert_shape broadcast_to reshape
    2.20   (shape)
    2.27   -
astype view
    2.20   (dtype)
    2.27   -
expand_dims
    2.20   (axis)
    2.27   -

[nki.language.NkiTensor]
__getitem__
    2.32   (key)
__setitem__
    2.32   (key, value)
ap
    kinds  INTEGER offset indirect_dim
    2.30   (pattern, offset=0, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None)
    2.31   (pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None)
broadcast
    kinds  INTEGER dim size
    2.31   (dim, size)
expand_dim squeeze_dim
    kinds  INTEGER dim
    2.31   (dim)
flatten_dims
    kinds  INTEGER start_dim end_dim
    2.31   (start_dim, end_dim)
get_pattern
    2.30   ()
indirect
    kinds  INTEGER num_elem
    2.31   (index, num_elem=None)
is_contiguous is_indirect
    2.31   ()
is_identity
    2.30   ()
    2.31   -
permute
    kinds  EXTENTS dims
    2.31   (dims)
rearrange
    2.31   (src_pattern, dst_pattern, fixed_sizes=None)
reshape
    2.30   (new_shape=None, shape=None)
    2.31   (shape)
reshape_dim
    kinds  INTEGER dim, EXTENTS shape
    2.31   (dim, shape)
select
    kinds  INTEGER dim
    2.31   (dim, index)
slice
    kinds  INTEGER dim start end step
    2.31   (dim, start, end, step=1)
vector_select
    kinds  INTEGER dim
    2.31   (dim, vector_offset)
view
    2.30   (dtype)

[nki.isa.NkiInstruction]
depends_on
    2.32   (*producers)

[nki.FrameworkKernel]
dump_config
    2.20   (*args, **kwargs)
    2.27   -
is_framework_tensor map_framework_tensor
    2.20   (t)
    2.27   -
translate_to_neuron_dtype
    2.20   (_dtype)
    2.27   -

[nki.kernels]
add_kernel_nx8x128x512
    2.21   (a_ptr, b_ptr, n_elements)
    2.22   -
allocated_fused_rms_norm_qkv
    2.21   (hidden, weights, norm_dtype=np.float32, eps=1e-06)
    2.22   -
allocated_fused_self_attn_for_SD_small_head_size
    2.21   (q_ref, k_ref, v_ref, use_causal_mask=False, mixed_precision=True)
    2.22   -
flash_attn_bwd
    2.20   (q_ref, k_ref, v_ref, o_ref, dy_ref, lse_ref, seed_ref, out_dq_ref, out_dk_ref, out_dv_ref,
            use_causal_mask=False, mixed_precision=False, dropout_p=0.0, softmax_scale=None)
    2.21   (q_ref, k_ref, v_ref, o_ref, dy_ref, lse_ref, seed_ref, logit_bias_ref=None, use_causal_mask=False,
            mixed_precision=False, dropout_p=0.0, softmax_scale=None)
    2.22   -
flash_fwd
    2.20   (q, k, v, seed, o, lse=None, softmax_scale=None, use_causal_mask=True, mixed_precision=True, dropout_p=0.0,
            config=None)
    2.21   (q, k, v, seed, logit_bias=None, softmax_scale=None, use_causal_mask=True, mixed_precision=True,
            dropout_p=0.0, config=None)
    2.22   -
fused_self_attn_for_SD_small_head_size
    2.20   (q_ref, k_ref, v_ref, out_ref, use_causal_mask=False, mixed_percision=True)
    2.21   (q_ref, k_ref, v_ref, use_causal_mask=False, mixed_precision=True)
    2.22   -
resize_nearest_fixed_dma_kernel
    2.20   (data_tensor, out_tensor)
    2.21   (data_tensor, out_shape)
    2.22   -
select_and_scatter_kernel
    2.20   (operand_tensor, source_tensor, out_tensor)
    2.21   (operand_tensor, source_tensor)
    2.22   -
"""
