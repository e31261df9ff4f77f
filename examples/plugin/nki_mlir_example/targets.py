# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A variant of trn2 with a third of its SBUF and a vector engine at half its clock."""

from dataclasses import replace

from nki_mlir.plugin import Engine, machine_named

_TRN2 = machine_named("trn2")
TRN2_SMALL = replace(_TRN2, name="trn2_small", sbuf_bytes_per_partition=_TRN2.sbuf_bytes_per_partition // 3,
                     clocks={**_TRN2.clocks, Engine.VECTOR: _TRN2.clocks[Engine.VECTOR] / 2})
