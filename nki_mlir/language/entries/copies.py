# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies, constants and selections."""

from nki_mlir.language.entries.entry import SHAPES, Group, InstructionEntry, Page, Regular

GROUP = Group("copies", "Copies, constants and selections", {
    "tensor_copy": InstructionEntry(
        repeats=True,
        releases="""
        2.21   (src, *, mask=None, dtype=None, engine=0, **kwargs)
        2.23   (src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
        2.27   (dst, src, engine=engine.unknown, name=None)
        """,
        regular=Regular("Copy src on chip.", {"src": "src"}),
        page=Page(("tensor_copy",), {},
            "The elements of src: bit for bit where dtypes are equal, else converted through float32.",
            "Tiles of different shapes, in HBM, or in PSUM on GpSimd, are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.tensor_copy(dst=y, src=x)
        y == x
        """),
    "tensor_copy_predicated": InstructionEntry(
        repeats=True,
        releases="""
        kinds  SCALAR src
        2.22   (*, src, dst, predicate, mask=None, dtype=None, **kwargs)
        2.23   (*, src, dst, predicate, mask=None, dtype=None, reverse_pred=False, **kwargs)
        2.26   (*, src, dst, predicate, reverse_pred=False, mask=None, dtype=None, **kwargs)
        2.27   (dst, src, predicate, reverse_pred=False, name=None)
        """,
        page=Page(("tensor_copy_predicated",), {
            "src": "a tile is [P, F] in SBUF or PSUM",
            "reverse_pred": "True copies where the predicate is 0"},
            "dst has src's elements where the predicate is true, and keeps its values elsewhere.",
            "A predicate of floats, and a src whose dtype is not dst's, are errors."),
        example="""
        x, y: float32[128, 64]
        flags: uint8[128, 64]
        nisa.tensor_copy_predicated(dst=y, src=x, predicate=flags)
        y == np.where(flags != 0, x, y)
        """),
    "tensor_copy_dynamic_src": InstructionEntry(
        releases="""
        2.21   (src, *, mask=None, dtype=None, **kwargs)
        2.23   (src, *, mask=None, dtype=None, engine=engine.unknown, **kwargs)
        2.27   (dst, src, engine=engine.unknown, name=None)
        2.28   -
        2.29   page
        2.29.1 -
        """,
        page=Page(("dynamic_read",), {
            "src": "[P, F] in SBUF or PSUM, a view whose free offset a [1, 1] tile contains"},
            "The elements from the offset on.",
            "An offset beyond the tensor is an error when the program runs."),
        beta_page={"ops": ("tensor_copy_dynamic_src",)},
        example="""
        x: float32[128, 64]
        at: int32[1, 1]
        y: float32[128, 16]
        nisa.tensor_copy_dynamic_src(dst=y, src=x.ap([[64, 128], [1, 16]], scalar_offset=at, indirect_dim=1))
        y == x[:, at[0, 0]:at[0, 0] + 16]
        """,
        beta_example="""
        x: float32[128, 64]
        at: int32[1, 1]
        y: float32[128, 16]
        y = nisa.tensor_copy_dynamic_src(x[nl.arange(128)[:, None], at[0, 0] + nl.arange(16)[None, :]])
        y == x[:, at[0, 0]:at[0, 0] + 16]
        """),
    "tensor_copy_dynamic_dst": InstructionEntry(
        releases="""
        2.22   (*, dst, src, mask=None, dtype=None, **kwargs)
        2.23   (*, dst, src, mask=None, dtype=None, engine=engine.unknown, **kwargs)
        2.27   (dst, src, engine=engine.unknown, name=None)
        2.28   -
        2.29   page
        2.29.1 -
        """,
        page=Page(("dynamic_write",), {
            "dst": "[P, F] in SBUF or PSUM, a view whose free offset a [1, 1] tile contains"},
            "None. The elements of dst from the offset on get src's.",
            "An offset beyond the tensor is an error when the program runs."),
        beta_page={"ops": ("tensor_copy_dynamic_dst",)},
        example="""
        x: float32[128, 16]
        at: int32[1, 1]
        y: float32[128, 64]
        nisa.tensor_copy_dynamic_dst(dst=y.ap([[64, 128], [1, 16]], scalar_offset=at, indirect_dim=1), src=x)
        y[:, at[0, 0]:at[0, 0] + 16] == x
        """,
        beta_example="""
        x: float32[128, 16]
        at: int32[1, 1]
        y: float32[128, 64]
        nisa.tensor_copy_dynamic_dst(dst=y[nl.arange(128)[:, None], at[0, 0] + nl.arange(16)[None, :]], src=x)
        y[:, at[0, 0]:at[0, 0] + 16] == x
        """),
    "memset": InstructionEntry(
        repeats=True,
        releases="""
        kinds  NUMBER value, TILE_SHAPE shape
        2.20   (shape, value, dtype, mask=None, **kwargs)
        2.21   (shape, value, dtype, *, mask=None, engine=0, **kwargs)
        2.23   (shape, value, dtype, *, mask=None, engine=engine.unknown, **kwargs)
        2.27   (dst, value, engine=engine.unknown, name=None)
        """,
        page=Page(("memset",), {
            "value": "a number, converted to dst's dtype",
            "shape": "[P, F...] of the new tile"},
            "A tile all of whose elements have the value.",
            "An infinity or NaN in a tile of integers is an error."),
        example="""
        y: float32[128, 64]
        nisa.memset(dst=y, value=3.0)
        y == np.full((128, 64), 3.0)
        """),
    "iota": InstructionEntry(
        repeats=True,
        releases="""
        kinds  INDEX expr
        2.20   (expr, dtype, mask=None, **kwargs)
        2.21   (expr, dtype, *, mask=None, **kwargs)
        2.27   (dst, pattern, offset, channel_multiplier=0, name=None)
        2.29   (dst, pattern, offset=0, channel_multiplier=0, name=None)
        """,
        page=Page(("iota",), {
            "dst": "[P, F] in SBUF",
            "offset": "an integer or a register, which is added to each value",
            "expr": "affine in nl.arange indices"},
            "[P, F]: offset + p * channel_multiplier + the sum of step * i in 32-bit integers, "
            "converted to dst's dtype.",
            "A pattern of more or fewer elements than a partition of dst is an error."),
        example="""
        y: int32[32, 16]
        nisa.iota(dst=y, pattern=[[2, 16]], offset=5, channel_multiplier=100)
        y == 5 + 100 * np.arange(32)[:, None] + 2 * np.arange(16)
        """,
        beta_example="""
        y: int32[32, 16]
        y = nisa.iota(100 * nl.arange(32)[:, None] + nl.arange(16)[None, :], dtype=nl.int32)
        y == 100 * np.arange(32)[:, None] + np.arange(16)
        """),
    "affine_select": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (pred, on_true_tile, on_false_value, mask=None, dtype=None, **kwargs)
        2.21   (pred, on_true_tile, on_false_value, *, mask=None, dtype=None, **kwargs)
        2.27   (dst, pattern, offset, channel_multiplier, on_true_tile, on_false_value, cmp_op=nl.equal, name=None)
        2.29   (dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=nl.equal, offset=0, name=None)
        """,
        page=Page(("affine_select",), {
            "offset": "an integer, which is added to each value of the pattern",
            "on_false_value": "the value of the other elements",
            "cmp_op": "a comparison with 0, such as nl.greater_equal",
            "pred": "an affine comparison of nl.arange indices"},
            "[P, F]: on_true_tile where pred holds, else on_false_value. | [P, F]: on_true_tile where cmp_op holds "
            "for the value of the pattern and 0, else on_false_value.",
            SHAPES),
        example="""
        x, y: float32[64, 64]
        nisa.affine_select(dst=y, pattern=[[-1, 64]], channel_multiplier=1, on_true_tile=x, on_false_value=0.0,
                           cmp_op=nl.greater_equal)
        y == np.tril(x)
        """,
        beta_example="""
        x, y: float32[64, 64]
        y = nisa.affine_select(nl.arange(64)[:, None] >= nl.arange(64)[None, :], on_true_tile=x, on_false_value=0.0)
        y == np.tril(x)
        """),
    "range_select": InstructionEntry(
        releases="""
        current INTEGRAL range_start
        2.23   (*, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, reduce_res=None,
                reduce_op=np.amax, range_start=0, on_false_value=fp32.min, mask=None, dtype=None, **kwargs)
        2.27   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.idle, reduce_res=None,
                reduce_op=nl.maximum, range_start=0.0, on_false_value=0.0, name=None)
        2.28   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
                reduce_res=None, reduce_op=nl.maximum, range_start=0.0, on_false_value=-3.4028235e+38, name=None)
        2.29   (dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
                reduce_res=None, reduce_op=nl.maximum, range_start=0, on_false_value=-3.4028235e+38, name=None)
        """,
        regular=Regular(
            "Select on_true_tile where the free index is in bounds, else on_false_value; fold each row to its maximum.",
            {"on_true_tile": "src"}, named={"comp_op0": "comp0", "comp_op1": "comp1", "range_start": "base",
                                            "on_false_value": "fill"},
            rows={"bound0": "bound0", "bound1": "bound1"}, positions="dst"),
        commands=("idle", "reduce", "reset_reduce"),
        page=Page(("range_select",), {
            "on_true_tile": "[P, F] of floats",
            "comp_op0": "the comparison of the index with bound0, such as nl.greater_equal",
            "comp_op1": "the comparison of the index with bound1, such as nl.less",
            "bound0": "[P, 1] of float32",
            "bound1": "[P, 1] of float32",
            "reduce_op": "nl.maximum, the only operator",
            "range_start": "the index of the first element",
            "on_false_value": "the lowest float32, the only value"},
            "on_true_tile where both comparisons of the free index are true, else the lowest float32; reduce_res "
            "gets each row's maximum.",
            "Any other reduce_op, and a tile of integers, are errors; any other on_false_value is a warning."),
        beta_page={
            "takes": {"on_false_value": "the value of the other elements"},
            "result": "on_true_tile where both comparisons of the free index are true, else on_false_value; reduce_res "
                      "gets each row's maximum.",
            "errors": "Any other reduce_op, and a tile of integers, are errors."},
        example="""
        x, y: float32[128, 64]
        low: float32[128, 1]
        high: float32[128, 1]
        nisa.memset(dst=low, value=8.0)
        nisa.memset(dst=high, value=40.0)
        nisa.range_select(dst=y, on_true_tile=x, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high)
        y == np.where((np.arange(64) >= 8) & (np.arange(64) < 40), x, np.finfo(np.float32).min)
        """,
        beta_example="""
        x, y: float32[128, 64]
        low, high = nisa.memset((128, 1), 8.0, nl.float32), nisa.memset((128, 1), 40.0, nl.float32)
        y = nisa.range_select(on_true_tile=x, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high,
                              on_false_value=0.0)
        y == np.where((np.arange(64) >= 8) & (np.arange(64) < 40), x, 0)
        """),
})
