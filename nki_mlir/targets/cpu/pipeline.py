# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The passes on records that a kernel for the CPU goes through, by name and in order, with their options."""

PIPELINE = {"trim-tiles": "", "zero-unwritten": "", "fit-functions": "", "tabulate-functions": "", "drop-roundings": "",
            "parallelize": "", "form-products": "", "hoist-tiles": "", "forward-copies": "", "forward-constants": "",
            "store-rows": "", "merge-programs": "", "pair-factors": "", "widen-tiles": "", "widen-factors": "",
            "hoist-factors": "", "copy-words": "", "share-factors": "", "forward-factors": "", "store-products": "",
            "divide-columns": "", "pad-rows": "", "reuse-tiles": "", "deepen-products": "", "prefetch-factors": "",
            "join-nests": "", "spread-sections": "", "chunk-rows": "", "spread-nests": "", "join-parts": "",
            "prefetch-rows": "", "load-fields": "", "load-words": "", "select-powers": "", "find-zeros": "",
            "compare-words": "", "leave-nans": "", "round-pairs": "", "round-words": "", "simplify-extrema": "",
            "delay-stores": "", "halve-vectors": ""}
NAMES = tuple(PIPELINE)
REQUIRED = ("zero-unwritten",)              # without it, reads of memory before it is written are undefined

# The passes that change nothing in functions without this, which a process then need not load.
CHANGE_PRODUCTS = frozenset({
    "form-products", "hoist-tiles", "pair-factors", "widen-tiles", "widen-factors", "hoist-factors", "copy-words",
    "share-factors", "forward-factors", "store-products", "divide-columns", "pad-rows", "reuse-tiles",
    "deepen-products", "prefetch-factors"})
CHANGE_NARROW_FLOATS = frozenset({
    "fit-functions", "tabulate-functions", "drop-roundings", "load-words", "find-zeros", "compare-words", "leave-nans",
    "round-pairs", "round-words", "delay-stores"})
CHANGE_FUNCTIONS = frozenset({"select-powers"})
CHANGE_TILES = frozenset({"trim-tiles", "forward-copies", "forward-constants", "store-rows"})
CHANGE_CONSTANT_TILES = frozenset({"forward-constants"})
CHANGE_OPERATIONS = frozenset({"store-rows"})                   # that are no nests
CHANGE_EXTREMA = frozenset({"simplify-extrema"})
CHANGE_GRIDS = frozenset({"merge-programs"})                    # of two axes or more
CHANGE_SEQUENCES = frozenset({"join-nests", "spread-sections", "chunk-rows"})
CHANGE_DIVIDED_SEQUENCES = frozenset({"join-parts"})            # also those of packed products
# The same on hosts without registers of 16 float32.
NEED_WIDE_REGISTERS = frozenset({"load-words", "select-powers", "halve-vectors"})
