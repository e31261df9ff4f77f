# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of the methods of ``NkiTensor``: they give views, to which nothing is copied."""

from nki_mlir.language.documentation.instructions import Page

COMMON = {
    "dim": "from 0", "step": "1 or more", "size": "the extent it gets", "dtype": "of the view",
    "shape": "extents; one may be -1", "start": "the first element", "end": "the first that is not in it",
}
ON_CHIP = "Dimension 0 on chip, the partition, is an error."
VIEWS = {
    "slice": Page((), {}, "The elements start, start + step, ... below end of the dimension.",
                  "A part beyond the dimension, and an empty one, are errors."),
    "select": Page((), {"index": "an integer, or known at run time: a register or a [1, 1] tile of integers"},
                   "One element of the dimension, which is dropped; on chip dimension 0 stays, of extent 1.",
                   "An integer beyond the dimension is an error; one of the run time is, when the program runs."),
    "vector_select": Page((), {"dim": "0", "vector_offset": "[N, 1] of 32-bit integers in SBUF"},
                          "N rows of a tensor in HBM, for a DMA.", "A tensor on chip, and another dim, are errors."),
    "permute": Page((), {"dims": "all dimensions in their new order"}, "The dimensions in that order.",
                    "What is no order of the dimensions, and on chip one that moves dimension 0, are errors."),
    "broadcast": Page((), {}, "The dimension, of extent 1, repeated.",
                      "A dimension of another extent is an error. " + ON_CHIP),
    "expand_dim": Page((), {"dim": "where it is put in"}, "One dimension of extent 1 more.", ON_CHIP),
    "squeeze_dim": Page((), {}, "The dimension, of extent 1, dropped.",
                        "A dimension of another extent is an error. " + ON_CHIP),
    "reshape_dim": Page((), {}, "The dimension split into several.",
                        "Extents whose product is not the dimension's are errors. " + ON_CHIP),
    "flatten_dims": Page((), {"start_dim": "the first", "end_dim": "the last, which is one of them"},
                         "The dimensions as one.",
                         "Dimensions that do not lie one in the other are errors. " + ON_CHIP),
    "reshape": Page((), {}, "The same elements in another shape.",
                    "More elements, in HBM also fewer, and a shape that needs a copy, are errors."),
    "rearrange": Page((), {
        "src_pattern": "a name for each dimension, or a tuple of names of what it is made of",
        "dst_pattern": "the names in their new order; a tuple of names is one dimension",
        "fixed_sizes": "extents by name; one of each tuple may be left out"},
        "The dimensions split, reordered and merged.", "Names that differ, and what needs a copy, are errors."),
    "view": Page((), {}, "The same bits as another dtype; the last dimension scales with the sizes.",
                 "A last dimension that does not divide, or is not dense, is an error."),
    "ap": Page((), {
        "pattern": "one for each dimension, outermost first, in elements of the storage; on chip partitions first",
        "offset": "what is added to where the view starts",
        "scalar_offset": "a register or a [1, 1] tile, added at run time, times the extents behind indirect_dim",
        "vector_offset": "[N, 1] of integers: a row of a tensor in HBM for each",
        "indirect_dim": "the dimension that scalar_offset counts"},
        "An access pattern on the whole storage, whatever the view's shape is.",
        "A pattern beyond the storage is an error where it is used, two run-time offsets are one at once."),
    "indirect": Page((), {
        "index": "[P, K] of integers in SBUF: 16 partitions share their offsets, in order of the partition first",
        "num_elem": "how many count; without it all"},
        "Columns of a tensor on chip, as many as there are offsets, from NeuronCore-v4 on.",
        "A machine before NeuronCore-v4, and a tensor in HBM, are errors."),
}
VIEWS["reinterpret_cast"] = VIEWS["view"]
