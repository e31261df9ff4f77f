# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.language.constants``: sizes and alignments."""


from nki_mlir.language.functions import TileSize
from nki_mlir.scalar.dtypes import dtype_of

sbuf_min_align, psum_min_align = TileSize.sbuf_min_align, TileSize.psum_min_align


def sizeinbytes(dtype: object) -> int:
    """Return the bytes of one element."""
    return dtype_of(dtype).itemsize
