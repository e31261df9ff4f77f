# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of a call on the device: cycles of the GpSimd cores, from the counters of the emulated ones.

Each rate is derived from one of two published measurements:

- Generalized IoU of 1024 x 256 pairs takes 0.061 ms on 8 cores. Each core makes 384 transfers of together 1,179,648
  bytes; with ``TRANSFER`` cycles to start a transfer, the remaining time gives ``BYTES`` a cycle, 27 GB/s a core. This
  rate includes the arithmetic between the transfers.
- A model with a ReLU as custom operator makes 8.1 steps a second with element accessors, 220.7 with TCM transfers and
  269.9 with these on 8 cores. If the last two are R + S and R + S / 8, the ReLU's time is S with transfers, and 127 S
  with element accessors; an element is two accesses of ``ELEMENT`` cycles.

``TRANSFER`` and ``STREAMED``, an element of a stream whose buffer is in tightly coupled memory, are assumptions.
"""

from collections.abc import Sequence

from nki_mlir.customop.abi import Counters
from nki_mlir.machine import Engine, Machine, machine_named

TRANSFER = 64                   # cycles to start a transfer
BYTES = 19.4                    # bytes a cycle
ELEMENT = 34                    # cycles of an access through an element accessor
STREAMED = 4                    # cycles of a read or write of a stream
STREAM_BYTES = 4096             # bytes of a refill

TARGET = "trn1"                 # the generation that custom operators exist for


def core_cycles(counters: Counters) -> float:
    """Return the cycles that a core is busy."""
    transfers: int = counters.transfers_in + counters.transfers_out + counters.refills
    moved: int = counters.bytes_in + counters.bytes_out + counters.refills * STREAM_BYTES
    accesses: int = counters.elements * ELEMENT + counters.stream_elements * STREAMED
    return transfers * TRANSFER + moved / BYTES + accesses


def cycles(cores: Sequence[Counters]) -> float:
    """Return the cycles until the last core is done; all start at the same time."""
    return max(map(core_cycles, cores))


def microseconds(cores: Sequence[Counters], machine: Machine | None = None) -> float:
    return cycles(cores) / (machine or machine_named(TARGET)).clocks[Engine.GPSIMD] / 1e3
