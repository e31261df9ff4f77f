# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Examples of ``nl``, written as those of ``nisa``; functions of one form share one.

``{name}`` is the function's name, ``{formula}`` its formula. ``> 0``: its numbers are positive. ``grid: 2`` launches
two programs. A tile in HBM that has a result holds nothing before. ``BETA_EXAMPLES`` replace those of their names.
"""


def of_pairs(tile: str) -> str:
    return f"""
        x: {tile}
        y: {tile}
        z: {tile.removesuffix(" > 0")}
        z = nl.{{name}}(x, y)
        z == {{formula}}"""


def of_elements(tile: str) -> str:
    return f"""
        x: {tile}
        y: {tile.removesuffix(" > 0")}
        y = nl.{{name}}(x)
        y == {{formula}}"""


def of_rows(value: str, tile: str = "float32[128, 64]", column: str = "float32[128, 1]", more: str = "") -> str:
    return f"""
        x: {tile}
        y: {column}
        y = nl.{{name}}(x, axis=1{more})
        y == {value}"""


EXAMPLES = {
    "add subtract multiply divide maximum minimum mod fmod abs_max abs_min": of_pairs("float32[128, 64]"),
    "power": of_pairs("float32[128, 64] > 0"),
    "bitwise_and bitwise_or bitwise_xor left_shift right_shift equal not_equal greater greater_equal less less_equal "
    "logical_and logical_or logical_xor": of_pairs("int32[128, 64]"),
    "exp sin cos tan tanh arctan sigmoid relu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid gelu_apprx_sigmoid_dx "
    "silu silu_dx erf erf_dx softplus mish square sign abs reciprocal floor ceil trunc negative":
        of_elements("float32[128, 64]"),
    "log sqrt rsqrt": of_elements("float32[128, 64] > 0"), "logical_not invert": of_elements("int32[128, 64]"),
    "sum prod max min mean": of_rows("np.{name}(x, axis=1, keepdims=True)", more=", keepdims=True"),
    "var": of_rows("np.var(x, axis=1, keepdims=True)"),
    "all": of_rows("np.all(x != 0, axis=1, keepdims=True)", "uint8[128, 4]", "uint8[128, 1]"),
    "softmax": of_rows("np.exp(x) / np.sum(np.exp(x), axis=1, keepdims=True)", column="float32[128, 64]"),
    "rms_norm": """
        x: float32[128, 64]
        w: float32[128, 64]
        y: float32[128, 64]
        y = nl.rms_norm(x, w, axis=1, n=64)
        y == x / np.sqrt(np.sum(x * x, axis=1, keepdims=True) / 64 + 1e-6) * w""",
    "where": """
        condition: uint8[128, 64]
        x: float32[128, 64]
        y: float32[128, 64]
        z: float32[128, 64]
        z = nl.where(condition, x, y)
        z == np.where(condition, x, y)""",
    "dropout": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.dropout(x, 0.0)
        y == x""",
    "gather_flattened": """
        x: float32[128, 64]
        places: uint32[128, 16]
        y: float32[128, 16]
        y = nl.gather_flattened(x, places)
        y == np.take_along_axis(x, places.astype(np.int64), axis=1)""",
    "matmul": """
        a: float32[64, 128]
        b: float32[64, 256]
        y: float32[128, 256] in psum
        y = nl.matmul(a, b, transpose_x=True)
        y == a.T @ b""",
    "transpose": """
        x: float32[128, 64]
        y: float32[64, 128] in psum
        y = nl.transpose(x)
        y == x.T""",
    "load": """
        x: float32[128, 64] in hbm
        y: float32[128, 32]
        y = nl.load(x[:, 0:32])
        y == x[:, 0:32]""",
    "load_transpose2d": """
        x: float32[64, 128] in hbm
        y: float32[128, 64]
        y = nl.load_transpose2d(x)
        y == x.T""",
    "store": """
        x: float32[128, 64]
        y: float32[128, 64] in hbm
        nl.store(y, x)
        y == x""",
    "copy": """
        x: float32[128, 64]
        y: int32[128, 64]
        y = nl.copy(x, dtype=nl.int32)
        y == np.rint(x)""",
    "broadcast_to": """
        x: float32[128, 1]
        y: float32[128, 64]
        y = nl.broadcast_to(x, shape=(128, 64))
        y == np.broadcast_to(x, (128, 64))""",
    "expand_dims": """
        x: float32[128, 64]
        y: float32[128, 64, 1]
        y = nl.expand_dims(x, 2)
        y == x[:, :, None]""",
    "ndarray": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        y[:, 0:32] = x[:, 32:64]
        y[:, 32:64] = x[:, 0:32]
        y == np.roll(x, 32, axis=1)""",
    "par_dim": """
        y: float32[128, 64]
        y = nl.zeros((nl.par_dim(128), 64), dtype=nl.float32)
        y == np.zeros((128, 64))""",
    "zeros ones": """
        y: float32[128, 64]
        y = nl.{name}((128, 64), dtype=nl.float32)
        y == np.{name}((128, 64))""",
    "full": """
        y: float32[128, 64]
        y = nl.full((128, 64), 2.5, dtype=nl.float32)
        y == np.full((128, 64), 2.5)""",
    "zeros_like": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.zeros_like(x)
        y == np.zeros((128, 64))""",
    "empty_like": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.empty_like(x)
        y[:, :] = nl.exp(x)
        y == np.exp(x)""",
    "rand": """
        y: float32[128, 64]
        y = nl.floor(nl.rand((128, 64), dtype=nl.float32))
        y == np.zeros((128, 64))""",
    "random_seed": """
        seed: int32[1, 1]
        y: float32[128, 64]
        nl.random_seed(seed)
        first = nl.rand((128, 64), dtype=nl.float32)
        nl.random_seed(seed)
        y = nl.subtract(first, nl.rand((128, 64), dtype=nl.float32))
        y == np.zeros((128, 64))""",
    "shared_constant": """
        y: float32[64, 64]
        y = nl.load(nl.shared_constant(np.tri(64, dtype=np.float32)))
        y == np.tri(64)""",
    "shared_identity_matrix": """
        y: float32[64, 64]
        y = nl.copy(nl.shared_identity_matrix(64), dtype=nl.float32)
        y == np.eye(64)""",
    "ds": """
        x: float32[128, 64]
        y: float32[128, 16]
        y = nl.copy(x[:, nl.ds(32, 16)])
        y == x[:, 32:48]""",
    "affine_range sequential_range static_range": """
        x: float32[512, 64] in hbm
        y: float32[512, 64] in hbm
        for i in nl.{name}(4):
            rows = nl.load(x[128 * i:128 * i + 128, :])
            nl.store(y[128 * i:128 * i + 128, :], nl.exp(rows))
        y == np.exp(x)""",
    "dynamic_range": """
        y: float32[128, 64]
        for i in nl.dynamic_range(4):
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
        y == y + 4""",
    "fori_loop": """
        y: float32[128, 64]
        def step(i):
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
        nl.fori_loop(0, 4, step)
        y == y + 4""",
    "while_loop": """
        left: int32[1, 1]
        y: float32[128, 64]
        nisa.memset(dst=left, value=4)
        def step(count):
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
            nisa.register_load(count, left)
            return count
        nl.while_loop(nisa.register_alloc(4), step)
        y == y + 4""",
    "no_reorder": """
        x: float32[128, 64]
        y: float32[128, 64]
        with nl.no_reorder():
            nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0)
            nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
        y == 2 * x + 1""",
    "program_id num_programs program_ndim": """
        grid: 2
        x: float32[128, 64] in hbm
        y: float32[128, 64] in hbm
        assert nl.program_ndim() == 1
        rows = 128 // nl.num_programs(0)
        i = nl.program_id(0)
        nl.store(y[rows * i:rows * i + rows, :], nl.exp(nl.load(x[rows * i:rows * i + rows, :])))
        y == np.exp(x)""",
    "device_print": """
        x: float32[128, 64]
        y: float32[128, 64]
        y = nl.exp(x)
        nl.device_print("exp of x:", y)
        y == np.exp(x)""",
    "is_sbuf is_psum is_hbm is_on_chip": """
        x: float32[128, 64]
        y: float32[128, 1]
        y = nl.full((128, 1), float(nl.{name}(x.buffer)), dtype=nl.float32)
        y == np.full((128, 1), "{name}" in ("is_sbuf", "is_on_chip"))""",
    "arange": """
        x: float32[128, 64]
        y: float32[128, 32]
        p, f = nl.arange(128)[:, None], nl.arange(32)[None, :]
        y = nl.copy(x[p, 2 * f])
        y == x[:, ::2]""",
    "static_cast": """
        y: float32[128, 1]
        y = nl.full((128, 1), float(nl.static_cast(2.7, nl.int32)), dtype=nl.float32)
        y == np.full((128, 1), 3)""",
    "atomic_rmw": """
        x: float32[16, 64]
        rows: int32[16, 1]
        y: float32[8, 64] in hbm
        nl.store(y, nl.zeros((8, 64), dtype=nl.float32))
        nl.atomic_rmw(y[rows, nl.arange(64)[None, :]], x, op=np.add)
        y == np.stack([np.sum(x[rows[:, 0] == i], axis=0) for i in range(8)])""",
    "all_reduce": """
        grid: 2
        x: float32[2, 128, 64] in hbm
        y: float32[2, 128, 64] in hbm
        i = nl.program_id(0)
        nl.store(y[i], nl.all_reduce(nl.load(x[i]), op=nl.add, program_axes=[0]))
        y == np.broadcast_to(x[0] + x[1], (2, 128, 64))""",
    "loop_reduce": """
        x: float32[4, 128, 64] in hbm
        y: float32[128, 64]
        y = nl.ndarray((128, 64), dtype=nl.float32)
        for i in nl.affine_range(4):
            y[...] = nl.loop_reduce(nl.load(x[i]), op=nl.add, loop_indices=[i])
        y == np.sum(x, axis=0)""",
}
BETA_EXAMPLES = {
    "transpose": """
        x: float32[128, 64]
        y: float32[64, 128]
        y = nl.transpose(x)
        y == x.T""",
    "shared_identity_matrix": """
        y: float32[64, 64]
        y = nl.load(nl.shared_identity_matrix(64), dtype=nl.float32)
        y == np.eye(64)""",
}
