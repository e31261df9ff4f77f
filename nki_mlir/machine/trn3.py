# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn3: NeuronCore-v4: architecture guide of Trainium3. HBM: 4.7 TB/s of a device with eight cores."""

from nki_mlir.machine.description import Engine, Machine

MACHINE = Machine(
    name="trn3",
    generation=4,
    sbuf_bytes_per_partition=245752,
    sbuf_physical_bytes_per_partition=262144,
    clocks={Engine.TENSOR: 2.4, Engine.VECTOR: 1.2, Engine.SCALAR: 1.2, Engine.GPSIMD: 1.2, Engine.SYNC: 1.2},
    vector_elements_per_cycle=2.0,
    hbm_bytes_per_ns=590.0,
    product_banks=8,
    gpsimd_sees_psum=True,
    psum_elements_max=8192,                 # bfloat16 sums in all banks
)
