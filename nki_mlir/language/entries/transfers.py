# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers."""

from nki_mlir.language.entries.entry import SHAPES, Group, InstructionEntry, Page

GROUP = Group("dma", "Transfers", {
    "dma_copy": InstructionEntry(
        repeats=True,
        releases="""
        needs  3 dge_mode=hwdge: {} with dge_mode hwdge: leave dge_mode to the compiler
        needs  4 priority: a priority: leave it out
        2.21   (src, dst)
        2.22   (*, dst, src)
        2.23   (*, dst, src, mask=None, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown) + mode
        2.27   (dst, src, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, name=None)
        2.28   (dst, src, dst_rmw_op=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, unique_indices=True,
                name=None)
        2.29   (dst, src, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown, name=None)
        2.30   (dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown,
                name=None)
        """,
        page=Page(("dma_copy",), {
            "dst": "[P, F...] in SBUF or a tensor in HBM",
            "src": "the same number of elements as dst, in HBM or SBUF",
            "dst_rmw_op": "an operator that combines dst's elements with src's"},
            "dst gets src's elements, converted where dtypes differ.",
            "Different numbers of elements, and an address out of bounds with oob_mode error, are errors."),
        example="""
        x: float32[128, 64] in hbm
        y: float32[128, 64]
        nisa.dma_copy(dst=y, src=x)
        y == x
        """),
    "dma_transpose": InstructionEntry(
        repeats=True,
        releases="""
        needs  3 dge_mode=hwdge: {} with dge_mode hwdge: leave dge_mode to the compiler
        needs  4 priority: a priority: leave it out
        beta   PAIR axes
        current ANY axes
        2.21   (src, *, mask=None, dtype=None, **kwargs)
        2.26   (src, *, axes=None, mask=None, dtype=None, **kwargs) + dge_mode
        2.27   (dst, src, axes=None, dge_mode=dge_mode.unknown, name=None)
        2.28   (dst, src, axes=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
        2.30   (dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
        """,
        page=Page(("dma_transpose",), {
            "dst": "in SBUF, of src's dtype and its permuted shape",
            "src": "a tensor of 2 to 4 axes, in HBM or SBUF",
            "axes": "(1, 0), (2, 1, 0) or (3, 1, 2, 0); by default the one with the same number of axes as src"},
            "src with its axes permuted, bit for bit.",
            SHAPES),
        example="""
        x: float32[64, 128] in hbm
        y: float32[128, 64]
        nisa.dma_transpose(dst=y, src=x)
        y == x.T
        """,
        beta_example="""
        x: float32[64, 128]
        y: float32[128, 64]
        y = nisa.dma_transpose(x)
        y == x.T
        """),
    "dma_compute": InstructionEntry(
        releases="""
        2.27   (dst, srcs, scales, reduce_op, name=None)
        2.29   (dst, srcs, reduce_op, scales=None, unique_indices=True, name=None)
        2.30   (dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None)
        """,
        page=Page(("dma_compute",), {
            "dst": "[P, F...] in SBUF or HBM",
            "srcs": "of dst's shape, in SBUF or HBM",
            "reduce_op": "nl.add, the only operator",
            "scales": "1.0 for each source, or None",
            "unique_indices": "True promises that no run-time address occurs twice"},
            "dst gets the sum of the sources, computed in float32 and rounded once.",
            "A reduce_op other than nl.add is an error."),
        example="""
        a, b, y: float32[128, 64]
        nisa.dma_compute(dst=y, srcs=[a, b], reduce_op=nl.add)
        y == a + b
        """),
})
