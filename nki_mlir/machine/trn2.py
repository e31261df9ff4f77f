# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn2: NeuronCore-v3: architecture guide of Trainium2. HBM: 2.9 TB/s of a device with eight cores."""

from nki_mlir.machine.description import Engine, Machine

MACHINE = Machine(
    name="trn2",
    generation=3,
    sbuf_bytes_per_partition=212984,
    sbuf_physical_bytes_per_partition=229376,
    clocks={Engine.TENSOR: 2.4, Engine.VECTOR: 0.96, Engine.SCALAR: 1.2, Engine.GPSIMD: 1.2, Engine.SYNC: 1.2},
    vector_elements_per_cycle=2.0,
    hbm_bytes_per_ns=362.0,
)
