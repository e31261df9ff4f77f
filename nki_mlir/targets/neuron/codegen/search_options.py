# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The options of the search for the fastest program of a kernel (``fastest.py``), and the candidates that it times."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search. ``unroll_limit``: above this number of instructions the largest loops stay loops of the
    device; None: the faster choice. ``level``: how long to search for a good order: 0 (program order), 1 or 3."""

    unroll_limit: int | None = None
    level: int = 1
    loads: bool = True          # drop loads of data that tiles on chip have, if memory allows
    evict: bool = True          # evict results from PSUM if products would wait for its banks
    overlap: bool = True        # overlap iterations of the device's loops
    pipeline: bool = True       # pipeline the loops that remain in long code
    serial: bool = True         # end the search of long code at program order if its chains take about as long
    merge: bool = True          # let one instruction process the tiles of several
    merge_loads: bool = True    # let one transfer load several tiles where triggers take long
    transpose_tiles: bool = True    # let the DMA engines transpose tiles on chip if other engines are busier
    group_transposes: bool = True   # let the tensor engine transpose in groups if it stays at half speed
    split_columns: bool = True  # split large tiles by columns, so that engines begin before all is loaded
    overwrite: bool = True      # write results over operands if two iterations do not fit in SBUF
    by_results: bool = True     # complete one result before the next if two iterations do not fit in SBUF
    spill: bool = True          # spill tiles that do not fit in SBUF and PSUM, instead of raising an error


class Candidate(NamedTuple):
    """The limits of unrolling: loops stay if unrolled code would exceed ``limit`` instructions, with bodies of about
    ``body``. ``loads``: loads of data that are on chip are dropped. ``memory``: percent of SBUF that tiles may fill
    before others leave it; 0: none leaves it. ``results``: percent of PSUM that results may fill before others leave
    it. ``overlap``: iterations of loops overlap where they can. ``pipelined``: loops are pipelined, and percent of SBUF
    that their iterations in flight may fill; 0: they are not. ``overwrite``: results are written over operands.
    ``merge``: one instruction processes the tiles of several. ``transposes``: percent of the transposes of tiles on
    chip that the DMA engines execute. ``grouped``: the tensor engine transposes tiles in groups. ``merge_loads``: one
    transfer loads several tiles. ``columns``: into how many pieces large tiles are split; 0: they are not.
    ``by_results``: one result is complete before the next begins."""

    limit: int
    body: int
    loads: bool = False
    memory: int = 0
    results: int = 100
    overlap: bool = False
    pipelined: int = 0
    overwrite: bool = False
    merge: bool = False
    transposes: int = 0
    merge_loads: bool = False
    columns: int = 0
    by_results: bool = False
    grouped: bool = False
