# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Examples of ``nisa``, which ``help()`` shows and the tests run.

The first lines declare tiles, in SBUF where nothing else is said. They hold numbers before the instruction runs; a tile
in PSUM does not. A line ``y == ...`` says in NumPy, of what the tiles held before, what y holds after.
Those of the beta generation replace the ones of their names.
"""

EXAMPLES = {
    "activation": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.activation(dst=y, op=nl.exp, data=x, scale=0.5)
        y == np.exp(0.5 * x)""",
    "activation_reduce": """
        x: float32[128, 64]
        y: float32[128, 64]
        total: float32[128, 1]
        nisa.activation_reduce(dst=y, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        y == x * x
        total == np.sum(x * x, axis=1, keepdims=True)""",
    "tensor_tensor": """
        a: float32[128, 64]
        b: float32[128, 64]
        y: float32[128, 64]
        nisa.tensor_tensor(dst=y, data1=a, data2=b, op=nl.multiply)
        y == a * b""",
    "tensor_scalar": """
        x: float32[128, 64]
        rows: float32[128, 1]
        y: float32[128, 64]
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=rows)
        y == 2 * x + rows""",
    "scalar_tensor_tensor": """
        a: float32[128, 64]
        b: float32[128, 64]
        y: float32[128, 64]
        nisa.scalar_tensor_tensor(dst=y, data=a, op0=nl.multiply, operand0=2.0, op1=nl.subtract, operand1=b)
        y == 2 * a - b""",
    "tensor_reduce": """
        x: float32[128, 64]
        y: float32[128, 1]
        nisa.tensor_reduce(dst=y, op=nl.maximum, data=x, axis=1)
        y == np.max(x, axis=1, keepdims=True)""",
    "tensor_partition_reduce": """
        x: float32[32, 64]
        y: float32[1, 64]
        nisa.tensor_partition_reduce(dst=y, op=nl.maximum, data=x)
        y == np.max(x, axis=0, keepdims=True)""",
    "tensor_tensor_scan": """
        ones: float32[128, 64]
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.memset(dst=ones, value=1.0)
        nisa.tensor_tensor_scan(dst=y, data0=ones, data1=x, initial=0.0, op0=nl.multiply, op1=nl.add)
        y == np.add.accumulate(x, axis=1)""",
    "tensor_copy": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.tensor_copy(dst=y, src=x)
        y == x""",
    "tensor_copy_predicated": """
        x: float32[128, 64]
        flags: uint8[128, 64]
        y: float32[128, 64]
        nisa.tensor_copy_predicated(dst=y, src=x, predicate=flags)
        y == np.where(flags != 0, x, y)""",
    "memset": """
        y: float32[128, 64]
        nisa.memset(dst=y, value=3.0)
        y == np.full((128, 64), 3.0)""",
    "reciprocal": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.reciprocal(dst=y, data=x)
        y == 1 / x""",
    "bn_stats": """
        x: float32[128, 64]
        y: float32[128, 6]
        nisa.bn_stats(dst=y, data=x)
        y[:, 1] == np.mean(x[:, 0::2], axis=1)
        y[:, 5] == 32 * np.var(x[:, 1::2], axis=1)""",
    "bn_aggr": """
        x: float32[128, 64]
        parts: float32[128, 6]
        y: float32[128, 2]
        nisa.bn_stats(dst=parts, data=x)
        nisa.bn_aggr(dst=y, data=parts)
        y[:, 0] == np.mean(x, axis=1)
        y[:, 1] == np.var(x, axis=1)""",
    "max8": """
        x: float32[128, 64]
        y: float32[128, 8]
        nisa.max8(dst=y, src=x)
        y == np.sort(x, axis=1)[:, :-9:-1]""",
    "nc_find_index8": """
        x: float32[128, 64]
        largest: float32[128, 8]
        y: uint32[128, 8]
        nisa.max8(dst=largest, src=x)
        nisa.nc_find_index8(dst=y, data=x, vals=largest)
        y == np.argsort(x, axis=1)[:, :-9:-1]""",
    "nc_match_replace8": """
        x: float32[128, 64]
        largest: float32[128, 8]
        y: float32[128, 64]
        nisa.max8(dst=largest, src=x)
        nisa.nc_match_replace8(dst=y, data=x, vals=largest, imm=0.0)
        y == np.where(x >= np.sort(x, axis=1)[:, -8:-7], 0, x)""",
    "nc_stream_shuffle": """
        x: float32[32, 64]
        y: float32[32, 64]
        nisa.nc_stream_shuffle(dst=y, src=x, shuffle_mask=[31 - i for i in range(32)])
        y == x[::-1]""",
    "nc_matmul": """
        a: float32[64, 128]
        b: float32[64, 256]
        y: float32[128, 256] in psum
        nisa.nc_matmul(dst=y, stationary=a, moving=b)
        y == a.T @ b""",
    "nc_transpose": """
        x: float32[128, 64]
        y: float32[64, 128] in psum
        nisa.nc_transpose(dst=y, data=x)
        y == x.T""",
    "iota": """
        y: int32[32, 16]
        nisa.iota(dst=y, pattern=[[2, 16]], offset=5, channel_multiplier=100)
        y == 5 + 100 * np.arange(32)[:, None] + 2 * np.arange(16)""",
    "affine_select": """
        x: float32[64, 64]
        y: float32[64, 64]
        nisa.affine_select(dst=y, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile=x, on_false_value=0.0,
                           cmp_op=nl.greater_equal)
        y == np.tril(x)""",
    "local_gather": """
        x: float32[16, 64]
        places: uint16[16, 2]
        y: float32[16, 32]
        nisa.local_gather(dst=y, src_buffer=x, index=places)
        y == x[:, places.flatten(order='F')]""",
    "dma_copy": """
        x: float32[128, 64] in hbm
        y: float32[128, 64]
        nisa.dma_copy(dst=y, src=x)
        y == x""",
    "dma_transpose": """
        x: float32[64, 128] in hbm
        y: float32[128, 64]
        nisa.dma_transpose(dst=y, src=x)
        y == x.T""",
    "tensor_scalar_reduce": """
        x: float32[128, 64]
        y: float32[128, 64]
        total: float32[128, 1]
        nisa.tensor_scalar_reduce(dst=y, data=x, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total)
        y == 2 * x
        total == np.sum(2 * x, axis=1, keepdims=True)""",
    "tensor_scalar_cumulative": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.tensor_scalar_cumulative(dst=y, src=x, op0=nl.multiply, op1=nl.add, imm0=2.0)
        y == np.add.accumulate(2 * x, axis=1)""",
    "range_select": """
        x: float32[128, 64]
        low: float32[128, 1]
        high: float32[128, 1]
        y: float32[128, 64]
        nisa.memset(dst=low, value=8.0)
        nisa.memset(dst=high, value=40.0)
        nisa.range_select(dst=y, on_true_tile=x, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high)
        y == np.where((np.arange(64) >= 8) & (np.arange(64) < 40), x, np.finfo(np.float32).min)""",
    "select_reduce": """
        x: float32[128, 64]
        flags: uint8[128, 64]
        y: float32[128, 64]
        nisa.select_reduce(dst=y, predicate=flags, on_true=x, on_false=-1.0)
        y == np.where(flags != 0, x, -1)""",
    "exponential": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.exponential(dst=y, src=x, max_value=1.0)
        y == np.exp(x - 1)""",
    "activate2": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.activate2(dst=y, op=nl.exp, data=x, imm0=0.5, imm1=1.0, op0=nl.multiply, op1=nl.subtract)
        y == np.exp(0.5 * x - 1)""",
    "dma_compute": """
        a: float32[128, 64]
        b: float32[128, 64]
        y: float32[128, 64]
        nisa.dma_compute(dst=y, srcs=[a, b], reduce_op=nl.add)
        y == a + b""",
    "nc_n_gather": """
        x: float32[128, 64]
        places: uint32[128, 16]
        y: float32[128, 16]
        nisa.nc_n_gather(dst=y, data=x, indices=places)
        y == np.take_along_axis(x, places.astype(np.int64), axis=1)""",
    "sequence_bounds": """
        ids: int32[1, 4]
        y: int32[1, 2, 4]
        nisa.memset(dst=ids, value=7)
        nisa.sequence_bounds(dst=y, segment_ids=ids)
        y == np.array([[[0, 0, 0, 0], [4, 4, 4, 4]]])""",
    "dropout": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.dropout(dst=y, data=x, prob=0.0)
        y == x""",
    "nonzero_with_count": """
        x: int32[16, 8]
        y: int32[16, 9]
        nisa.nonzero_with_count(dst=y, src=x)
        y[0, 8] == np.count_nonzero(x[0])""",
    "core_barrier": """
        grid: 2
        x: float32[128, 64] in hbm
        y: float32[128, 64] in hbm
        held = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="held")
        mine, other = 64 * nl.program_id(0), 64 * (1 - nl.program_id(0))
        nl.store(held[mine:mine + 64, :], nl.load(x[mine:mine + 64, :]))
        nisa.core_barrier(data=held, cores=(0, 1))
        nl.store(y[mine:mine + 64, :], nl.load(held[other:other + 64, :]))
        y == np.roll(x, 64, axis=0)""",
    "sendrecv": """
        grid: 2
        x: float32[128, 64] in hbm
        y: float32[128, 64] in hbm
        i = nl.program_id(0)
        mine = nl.load(x[64 * i:64 * i + 64, :])
        theirs = nl.ndarray((64, 64), dtype=nl.float32)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
        nl.store(y[64 * i:64 * i + 64, :], theirs)
        y == np.roll(x, 64, axis=0)""",
    "quantize_mx": """
        x: bfloat16[32, 64]
        words: uint32[32, 16]
        scale: uint8[4, 16]
        nisa.quantize_mx(dst=words.view(nl.float8_e4m3fn_x4), src=x, dst_scale=scale)
        scale == 120 + np.floor(np.log2(np.max(np.float32(x).reshape(4, 8, 16, 4), axis=(1, 3))))""",
    "nc_matmul_mx": """
        x: bfloat16[32, 64]
        words: uint32[32, 16]
        scale: uint8[4, 16]
        y: float32[16, 16] in psum
        packed = words.view(nl.float8_e4m3fn_x4)
        nisa.quantize_mx(dst=packed, src=x, dst_scale=scale)
        nisa.nc_matmul_mx(dst=y, stationary=packed, moving=packed, stationary_scale=scale, moving_scale=scale)
        y == sum(np.float32(x[:, k::4]).T @ np.float32(x[:, k::4]) for k in range(4))""",
    "topk": """
        x: bfloat16[16, 4]
        y: bfloat16[16, 16]
        places: uint32[16, 16]
        nisa.topk(val_dst=y, idx_dst=places, src=x, n=64)
        y[:, 0] == np.sort(np.float32(x), axis=None)[-16:]""",
    "rng set_rng_seed": """
        seed: int32[1, 1]
        first: uint32[128, 64]
        y: uint32[128, 64]
        nisa.set_rng_seed(src_seeds=seed)
        nisa.rng(dst=first)
        nisa.set_rng_seed(src_seeds=seed)
        nisa.rng(dst=y)
        nisa.tensor_tensor(dst=y, data1=y, data2=first, op=nl.bitwise_xor)
        y == np.zeros((128, 64))""",
    "rand_get_state rand_set_state": """
        state: uint32[128, 6]
        first: uint32[128, 64]
        y: uint32[128, 64]
        nisa.rand_get_state(dst=state)
        nisa.rng(dst=first, engine=nisa.engine.gpsimd)
        nisa.rand_set_state(src_seeds=state)
        nisa.rng(dst=y, engine=nisa.engine.gpsimd)
        nisa.tensor_tensor(dst=y, data1=y, data2=first, op=nl.bitwise_xor)
        y == np.zeros((128, 64))""",
    "rand2": """
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.rand2(dst=x, min=2.0, max=3.0)
        y = nl.floor(x)
        y == np.full((128, 64), 2.0)""",
    "register_alloc register_load register_move register_store": """
        n: int32[1, 1]
        y: int32[1, 1]
        first, second = nisa.register_alloc(5), nisa.register_alloc()
        nisa.register_load(first, n)
        nisa.register_move(second, first)
        nisa.register_store(y, second)
        y == n""",
    "get_nc_version": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.exp(x) if nisa.get_nc_version() >= nisa.nc_version.gen3 else nl.copy(x)
        y == np.exp(x)""",
    "get_nc_sub_version": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.exp(x) if nisa.get_nc_sub_version() == 0 else nl.copy(x)
        y == np.exp(x)""",
    "tensor_copy_dynamic_src": """
        x: float32[128, 64]
        at: int32[1, 1]
        y: float32[128, 16]
        nisa.tensor_copy_dynamic_src(dst=y, src=x.ap([[64, 128], [1, 16]], scalar_offset=at, indirect_dim=1))
        y == x[:, at[0, 0]:at[0, 0] + 16]""",
    "tensor_copy_dynamic_dst": """
        x: float32[128, 16]
        at: int32[1, 1]
        y: float32[128, 64]
        nisa.tensor_copy_dynamic_dst(dst=y.ap([[64, 128], [1, 16]], scalar_offset=at, indirect_dim=1), src=x)
        y[:, at[0, 0]:at[0, 0] + 16] == x""",
}

BETA_EXAMPLES = {
    "activation": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nisa.activation(op=nl.exp, data=x, scale=0.5)
        y == np.exp(0.5 * x)""",
    "activation_reduce": """
        x: float32[128, 64]
        y: float32[128, 64]
        total: float32[128, 1]
        y = nisa.activation_reduce(op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        y == x * x
        total == np.sum(x * x, axis=1, keepdims=True)""",
    "tensor_tensor": """
        a: float32[128, 64]
        b: float32[128, 64]
        y: float32[128, 64]
        y = nisa.tensor_tensor(a, b, op=nl.multiply)
        y == a * b""",
    "tensor_scalar": """
        x: float32[128, 64]
        rows: float32[128, 1]
        y: float32[128, 64]
        y = nisa.tensor_scalar(x, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=rows)
        y == 2 * x + rows""",
    "scalar_tensor_tensor": """
        a: float32[128, 64]
        b: float32[128, 64]
        y: float32[128, 64]
        y = nisa.scalar_tensor_tensor(data=a, op0=nl.multiply, operand0=2.0, op1=nl.subtract, operand1=b)
        y == 2 * a - b""",
    "tensor_reduce": """
        x: float32[128, 64]
        y: float32[128, 1]
        y = nisa.tensor_reduce(nl.max, x, axis=1, keepdims=True)
        y == np.max(x, axis=1, keepdims=True)""",
    "tensor_partition_reduce": """
        x: float32[32, 64]
        y: float32[1, 64]
        y = nisa.tensor_partition_reduce(nl.max, x)
        y == np.max(x, axis=0, keepdims=True)""",
    "tensor_tensor_scan": """
        x: float32[128, 64]
        y: float32[128, 64]
        ones = nisa.memset((128, 64), 1.0, nl.float32)
        y = nisa.tensor_tensor_scan(ones, x, initial=0.0, op0=nl.multiply, op1=nl.add)
        y == np.add.accumulate(x, axis=1)""",
    "tensor_copy": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nisa.tensor_copy(x)
        y == x""",
    "memset": """
        y: float32[128, 64]
        y = nisa.memset((128, 64), 3.0, nl.float32)
        y == np.full((128, 64), 3.0)""",
    "reciprocal": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nisa.reciprocal(x)
        y == 1 / x""",
    "bn_stats": """
        x: float32[128, 64]
        y: float32[128, 6]
        y = nisa.bn_stats(x)
        y[:, 1] == np.mean(x[:, 0::2], axis=1)
        y[:, 5] == 32 * np.var(x[:, 1::2], axis=1)""",
    "bn_aggr": """
        x: float32[128, 64]
        y: float32[128, 2]
        y = nisa.bn_aggr(nisa.bn_stats(x))
        y[:, 0] == np.mean(x, axis=1)
        y[:, 1] == np.var(x, axis=1)""",
    "max8": """
        x: float32[128, 64]
        y: float32[128, 8]
        y = nisa.max8(src=x)
        y == np.sort(x, axis=1)[:, :-9:-1]""",
    "nc_find_index8": """
        x: float32[128, 64]
        y: uint32[128, 8]
        y = nisa.nc_find_index8(data=x, vals=nisa.max8(src=x))
        y == np.argsort(x, axis=1)[:, :-9:-1]""",
    "nc_match_replace8": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nisa.nc_match_replace8(data=x, vals=nisa.max8(src=x), imm=0.0)
        y == np.where(x >= np.sort(x, axis=1)[:, -8:-7], 0, x)""",
    "nc_matmul": """
        a: float32[64, 128]
        b: float32[64, 256]
        y: float32[128, 256] in psum
        y = nisa.nc_matmul(a, b)
        y == a.T @ b""",
    "nc_transpose": """
        x: float32[128, 64]
        y: float32[64, 128] in psum
        y = nisa.nc_transpose(x)
        y == x.T""",
    "iota": """
        y: int32[32, 16]
        y = nisa.iota(100 * nl.arange(32)[:, None] + nl.arange(16)[None, :], dtype=nl.int32)
        y == 100 * np.arange(32)[:, None] + np.arange(16)""",
    "affine_select": """
        x: float32[64, 64]
        y: float32[64, 64]
        y = nisa.affine_select(nl.arange(64)[:, None] >= nl.arange(64)[None, :], on_true_tile=x, on_false_value=0.0)
        y == np.tril(x)""",
    "local_gather": """
        x: float32[16, 64]
        places: uint16[16, 2]
        y: float32[16, 2, 16, 1]
        y = nisa.local_gather(src_buffer=x, index=places)
        y == x[:, places.flatten(order='F')].reshape(16, 2, 16, 1)""",
    "dma_transpose": """
        x: float32[64, 128]
        y: float32[128, 64]
        y = nisa.dma_transpose(x)
        y == x.T""",
    "tensor_scalar_reduce": """
        x: float32[128, 64]
        y: float32[128, 64]
        total: float32[128, 1]
        y = nisa.tensor_scalar_reduce(data=x, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total)
        y == 2 * x
        total == np.sum(2 * x, axis=1, keepdims=True)""",
    "dropout": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nisa.dropout(x, 0.0)
        y == x""",
    "sequence_bounds": """
        y: int32[1, 2, 4]
        ids = nisa.memset((1, 4), 7, nl.int32)
        y = nisa.sequence_bounds(segment_ids=ids)
        y == np.array([[[0, 0, 0, 0], [4, 4, 4, 4]]])""",
    "range_select": """
        x: float32[128, 64]
        y: float32[128, 64]
        low, high = nisa.memset((128, 1), 8.0, nl.float32), nisa.memset((128, 1), 40.0, nl.float32)
        y = nisa.range_select(on_true_tile=x, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high,
                              on_false_value=0.0)
        y == np.where((np.arange(64) >= 8) & (np.arange(64) < 40), x, 0)""",
    "tensor_copy_dynamic_src": """
        x: float32[128, 64]
        at: int32[1, 1]
        y: float32[128, 16]
        y = nisa.tensor_copy_dynamic_src(x[nl.arange(128)[:, None], at[0, 0] + nl.arange(16)[None, :]])
        y == x[:, at[0, 0]:at[0, 0] + 16]""",
    "tensor_copy_dynamic_dst": """
        x: float32[128, 16]
        at: int32[1, 1]
        y: float32[128, 64]
        nisa.tensor_copy_dynamic_dst(dst=y[nl.arange(128)[:, None], at[0, 0] + nl.arange(16)[None, :]], src=x)
        y[:, at[0, 0]:at[0, 0] + 16] == x""",
}
