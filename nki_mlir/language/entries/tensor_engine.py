# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensor engine: products and transposes."""

from nki_mlir.language.entries.entry import SHAPES, Group, InstructionEntry, Page

GROUP = Group("tensor-engine", "Tensor engine: products and transposes", {
    "nc_matmul": InstructionEntry(
        repeats=True,
        releases="""
        needs  3 perf_mode=double_row: {} with perf_mode double_row: multiply the halves one after the other
        2.20   (stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, mask=None, **kwargs)
        2.21   (stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
                mask=None, **kwargs)
        2.22   (stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
                tile_position=(), tile_size=(), mask=None, **kwargs)
        2.27   (dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
                tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
        2.29   (dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
                accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
        """,
        page=Page(("nc_matmul",), {
            "dst": "[M, N] of float32 in PSUM, in one bank",
            "stationary": "[K, M] in SBUF, K and M at most 128",
            "moving": "[K, N] in SBUF, N at most 512 (more from NeuronCore-v4 on)",
            "is_stationary_onezero": "a hint that stationary contains only 0 and 1; it does not change values",
            "is_moving_onezero": "a hint that moving contains only 0 and 1; it does not change values",
            "is_transpose": "True: moving is an identity matrix, and stationary's elements are transposed bit for bit",
            "tile_position": "(row, column) of the array at which the used part begins",
            "tile_size": "(rows, columns) of that part; it does not change values",
            "perf_mode": "double_row multiplies [K, 2, M] by [K, 2, N] of 8-bit floats"},
            "[M, N] in PSUM: stationary.T @ moving, summed in float32.",
            "Operands outside of SBUF, of different K or of integers, and a dst outside of PSUM are errors."),
        example="""
        a: float32[64, 128]
        b: float32[64, 256]
        y: float32[128, 256] in psum
        nisa.nc_matmul(dst=y, stationary=a, moving=b)
        y == a.T @ b
        """),
    "nc_matmul_mx": InstructionEntry(
        releases="""
        2.27   (dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
                name=None) + psum_accumulate_flag
        2.29   (dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
                accumulate=None, name=None)
        """,
        page=Page(("nc_matmul_mx",), {
            "dst": "[M, N] of float32 or bfloat16 in PSUM",
            "stationary": "[K, M] of a packed type (..._x4) in SBUF",
            "moving": "[K, N] of a packed type in SBUF",
            "stationary_scale": "the scales of stationary, in the layout that quantize_mx writes",
            "moving_scale": "the scales of moving, in the layout that quantize_mx writes",
            "tile_position": "(row, 0) of the part of the array that the product uses",
            "tile_size": "(rows, 128) of that part"},
            "[M, N]: stationary.T @ moving of the scaled numbers, 4 in each packed element, summed in float32.",
            "Operands that are not packed, scales of other shapes, and a dst outside of PSUM, are errors."),
        example="""
        x: bfloat16[32, 64]
        words: uint32[32, 16]
        scale: uint8[4, 16]
        y: float32[16, 16] in psum
        packed = words.view(nl.float8_e4m3fn_x4)
        nisa.quantize_mx(dst=packed, src=x, dst_scale=scale)
        nisa.nc_matmul_mx(dst=y, stationary=packed, moving=packed, stationary_scale=scale, moving_scale=scale)
        y == sum(np.float32(x[:, k::4]).T @ np.float32(x[:, k::4]) for k in range(4))
        """),
    "nc_transpose": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (data, mask=None, dtype=None, engine=None, **kwargs)
        2.21   (data, *, mask=None, dtype=None, engine=0, **kwargs)
        2.23   (data, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
        2.27   (dst, data, engine=engine.unknown, name=None)
        """,
        page=Page(("nc_transpose",), {
            "dst": "[F, P] of data's dtype, in PSUM if the Tensor engine transposes",
            "data": "[P, F], up to 128 x 128 by the Tensor engine and 32 x 32 by the Vector engine"},
            "[F, P]: data with its partition and its flattened free axes exchanged.",
            SHAPES),
        example="""
        x: float32[128, 64]
        y: float32[64, 128] in psum
        nisa.nc_transpose(dst=y, data=x)
        y == x.T
        """),
})
