# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn1: NeuronCore-v2: architecture guide of Trainium and Inferentia2. HBM: 820 GB/s of a device with two cores."""

from nki_mlir.machine.description import Engine, Machine

MACHINE = Machine(
    name="trn1",
    generation=2,
    sbuf_bytes_per_partition=180224,
    sbuf_physical_bytes_per_partition=196608,
    clocks={Engine.TENSOR: 2.8, Engine.VECTOR: 1.12, Engine.SCALAR: 1.4, Engine.GPSIMD: 1.4, Engine.SYNC: 1.4},
    vector_elements_per_cycle=1.0,
    hbm_bytes_per_ns=410.0,
    array_parts=(64, 128),
)
