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
