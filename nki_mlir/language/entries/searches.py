# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Searches, gathers and shuffles."""

from math import prod

from nki_mlir.dialects.nisa.movement import GROUP as PARTITIONS
from nki_mlir.language.entries.entry import SHAPES, Group, InstructionEntry, Page, Regular, columns
from nki_mlir.scalar.dtypes import UINT32

GROUP = Group("searches", "Searches, gathers and shuffles", {
    "max8": InstructionEntry(
        repeats=True,
        releases="""
        2.22   (*, src, mask=None, dtype=None, **kwargs)
        2.27   (dst, src, name=None)
        """,
        regular=Regular("Find the 8 largest values of each partition, largest first: [P, 8].", {"src": "src"},
                        shape=columns(8)),
        page=Page(("max8",), {
            "dst": "[P, 8]",
            "src": "[P, F] of 8 to 16384 elements a partition"},
            "[P, 8]: the 8 largest elements of each partition, largest first; equal elements are repeated.",
            SHAPES),
        example="""
        x: float32[128, 64]
        y: float32[128, 8]
        nisa.max8(dst=y, src=x)
        y == np.sort(x, axis=1)[:, :-9:-1]
        """),
    "nc_find_index8": InstructionEntry(
        repeats=True,
        releases="""
        2.22   (*, data, vals, mask=None, dtype=None, **kwargs)
        2.27   (dst, data, vals, name=None)
        """,
        regular=Regular(
            "Find the index of each of 8 values among the elements of its partition of data.",
            {"data": "data", "vals": "vals"}, shape=columns(8), dtype=UINT32, positions="dst"),
        page=Page(("nc_find_index8",), {
            "dst": "[P, 8] of uint16 or uint32",
            "data": "[P, F] of 8 to 16384 elements a partition",
            "vals": "[P, 8]"},
            "[P, 8]: the index of each value's first occurrence in its flattened partition, or all bits 1 if it does "
            "not "
            "occur.",
            SHAPES),
        example="""
        x: float32[128, 64]
        largest: float32[128, 8]
        y: uint32[128, 8]
        nisa.max8(dst=largest, src=x)
        nisa.nc_find_index8(dst=y, data=x, vals=largest)
        y == np.argsort(x, axis=1)[:, :-9:-1]
        """,
        beta_example="""
        x: float32[128, 64]
        y: uint32[128, 8]
        y = nisa.nc_find_index8(data=x, vals=nisa.max8(src=x))
        y == np.argsort(x, axis=1)[:, :-9:-1]
        """),
    "nc_match_replace8": InstructionEntry(
        repeats=True,
        releases="""
        2.22   (*, data, vals, imm, mask=None, dtype=None, **kwargs)
        2.25   (*, data, vals, imm, dst_idx=None, mask=None, dtype=None, **kwargs)
        2.27   (dst, data, vals, imm, dst_idx=None, name=None)
        """,
        regular=Regular(
            "Replace the first occurrence of each of 8 values in data; dst_idx gets the indices of these occurrences.",
            {"data": "data"}, rows={"vals": "vals", "dst_idx": "dst_idx"}, positions="dst_idx"),
        page=Page(("nc_match_replace8",), {
            "vals": "[P, 8]",
            "imm": "the number that replaces the values",
            "dst_idx": "[P, 8] of uint16 or uint32, to which the instruction writes the indices of the values"},
            "data with one occurrence of each of the 8 values replaced by imm.",
            SHAPES),
        example="""
        x, y: float32[128, 64]
        largest: float32[128, 8]
        nisa.max8(dst=largest, src=x)
        nisa.nc_match_replace8(dst=y, data=x, vals=largest, imm=0.0)
        y == np.where(x >= np.sort(x, axis=1)[:, -8:-7], 0, x)
        """,
        beta_example="""
        x, y: float32[128, 64]
        y = nisa.nc_match_replace8(data=x, vals=nisa.max8(src=x), imm=0.0)
        y == np.where(x >= np.sort(x, axis=1)[:, -8:-7], 0, x)
        """),
    "topk": InstructionEntry(
        releases="""
        kinds  INTEGER n
        2.32   (val_dst, idx_dst, src, n, name=None)
        """,
        page=Page(("topk",), {
            "val_dst": "[P, K] of bfloat16 in SBUF",
            "idx_dst": "[P, K] of uint32 in SBUF",
            "src": "[P, F] of bfloat16 in SBUF: 16 partitions hold a list, element i at [i % 16, i // 16]",
            "n": "the length of the lists, 8 to 16 * F"},
            "val_dst gets the K largest of each list in ascending order, in the layout of src; idx_dst gets their "
            "indices. Other elements keep their values.",
            SHAPES),
        example="""
        x: bfloat16[16, 4]
        y: bfloat16[16, 16]
        indices: uint32[16, 16]
        nisa.topk(val_dst=y, idx_dst=indices, src=x, n=64)
        y[:, 0] == np.sort(np.float32(x), axis=None)[-16:]
        """),
    "nonzero_with_count": InstructionEntry(
        releases="""
        2.28   (dst, src, index_offset=0, padding_val=-1)
        2.29   (dst, src, index_offset=0, padding_val=-1, name=None)
        """,
        regular=Regular(
            "Write the indices of the nonzero elements of partitions 0, 16, ..., then padding, then their count.",
            {"src": "src"}, named={"index_offset": "base", "padding_val": "padding"}, shape=columns(1)),
        page=Page(("nonzero_with_count",), {
            "dst": "[P, F + 1] of int32 in SBUF",
            "src": "[P, F] of float32 or int32 in SBUF",
            "index_offset": "added to each index",
            "padding_val": "the value of the elements between the indices and their count"},
            "In partitions 0, 16, ...: the indices of elements that are not 0, then padding_val, and their count at "
            "the end. Other partitions keep their values.",
            SHAPES),
        example="""
        x: int32[16, 8]
        y: int32[16, 9]
        nisa.nonzero_with_count(dst=y, src=x)
        y[0, 8] == np.count_nonzero(x[0])
        """),
    "sequence_bounds": InstructionEntry(
        releases="""
        2.26   (*, segment_ids, dtype=None)
        2.27   (dst, segment_ids, name=None)
        """,
        regular=Regular(
            "Find, for each index, the first index of its run of equal ids, and the index after the last: [1, 2, n].",
            {"segment_ids": "segment_ids"}, shape=lambda shapes, attributes: (1, 2, prod(shapes[0][1:]))),
        page=Page(("sequence_bounds",), {
            "dst": "[1, 2, N] in SBUF, of float32 or int32",
            "segment_ids": "[1, N] in SBUF, of float32 or int32; 0 is padding"},
            "[1, 2, N]: for each index the first index of its run of equal ids, and one past the last; N and -1 at "
            "padding.",
            SHAPES),
        example="""
        ids: int32[1, 4]
        y: int32[1, 2, 4]
        nisa.memset(dst=ids, value=7)
        nisa.sequence_bounds(dst=y, segment_ids=ids)
        y == np.array([[[0, 0, 0, 0], [4, 4, 4, 4]]])
        """),
    "local_gather": InstructionEntry(
        releases="""
        current INTEGER num_valid_indices
        2.20   (src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, mask=None)
        2.21   (src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None)
        2.27   (dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None)
        """,
        regular=Regular(
            "Gather elements of each partition by indices that 16 partitions share.",
            {"src_buffer": "src", "index": "index"},
            named={"num_elem_per_idx": "elements", "num_valid_indices": "valid"},
            shape=lambda shapes, attributes: (shapes[0][0], *shapes[1][1:], PARTITIONS, attributes["elements"])),
        page=Page(("local_gather",), {
            "dst": "[P, count * num_elem_per_idx] in SBUF, of src_buffer's dtype",
            "src_buffer": "[P, F] in SBUF, P a multiple of 16",
            "index": "[P, I] of uint16: 16 partitions share a list of indices, index i at [i % 16, i // 16]",
            "num_elem_per_idx": "how many elements each index copies: 1, 2, 4, 8, 16 or 32",
            "num_valid_indices": "how many of the 16 * I indices are used; all by default"},
            "The elements of each partition at its group's indices; a new tile is [P, I, 16, num_elem_per_idx].",
            SHAPES),
        example="""
        x: float32[16, 64]
        offsets: uint16[16, 2]
        y: float32[16, 32]
        nisa.local_gather(dst=y, src_buffer=x, index=offsets)
        y == x[:, offsets.flatten(order='F')]
        """,
        beta_example="""
        x: float32[16, 64]
        offsets: uint16[16, 2]
        y: float32[16, 2, 16, 1]
        y = nisa.local_gather(src_buffer=x, index=offsets)
        y == x[:, offsets.flatten(order='F')].reshape(16, 2, 16, 1)
        """),
    "nc_n_gather": InstructionEntry(
        releases="""
        2.27   (dst, data, indices, name=None)
        """,
        regular=Regular(
            "Set dst[p, j] to the element of data[p], flattened, at indices[p, j].",
            {"indices": "index"}, rows={"data": "src"}, op="gather_flattened"),
        page=Page(("gather_flattened",), {
            "dst": "[P, I] in SBUF, of data's dtype",
            "data": "[P, F] in SBUF",
            "indices": "[P, I] of uint32: indices of the flattened elements of a partition of data"},
            "[P, I]: the elements of each partition of data, flattened, at its indices.",
            "Indices that are not uint32, and a dst whose dtype is not data's, are errors."),
        example="""
        x: float32[128, 64]
        offsets: uint32[128, 16]
        y: float32[128, 16]
        nisa.nc_n_gather(dst=y, data=x, indices=offsets)
        y == np.take_along_axis(x, offsets.astype(np.int64), axis=1)
        """),
    "nc_stream_shuffle": InstructionEntry(
        releases="""
        2.22   (src, dst, shuffle_mask, *, dtype=None, mask=None, **kwargs)
        2.27   (dst, src, shuffle_mask, name=None)
        """,
        regular=Regular(
            "Set dst[i] = src[shuffle_mask[i]] in each group of 32 partitions; 255 keeps dst[i].", {"src": "src"},
            named={"shuffle_mask": "shuffle"}),
        page=Page(("nc_stream_shuffle",), {
            "shuffle_mask": "32 integers: the partition, within a group of 32, from which each partition is copied, "
                            "or 255"},
            "In each group of 32 partitions, partition i of dst gets partition shuffle_mask[i] of src; with 255 it "
            "keeps "
            "its values.",
            "Tiles of different dtypes, and partitions beyond src, are errors."),
        example="""
        x, y: float32[32, 64]
        nisa.nc_stream_shuffle(dst=y, src=x, shuffle_mask=[31 - i for i in range(32)])
        y == x[::-1]
        """),
})
