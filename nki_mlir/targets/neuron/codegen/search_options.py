# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of the search for the fastest program of a kernel (``fastest.py``)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search. ``unroll_limit``: above this number of instructions the largest loops stay loops of the
    device; None: what is faster. ``level``: how long a good order is searched for: 0 (program order), 1 or 3."""

    unroll_limit: int | None = None
    level: int = 1
    loads: bool = True          # load data that stays unchanged once where memory allows
    evict: bool = True          # evict results from PSUM where products would wait for its banks
    overlap: bool = True        # overlap iterations of the device's loops
    pipeline: bool = True       # pipeline the loops that remain in long code
    overwrite: bool = True      # write results over operands where two iterations do not fit in SBUF
    spill: bool = True          # spill tiles that do not fit SBUF and PSUM, instead of an error
