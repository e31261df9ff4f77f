# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn2: NeuronCore-v3."""

from nki_mlir.machine.description import Engine, Machine

MACHINE = Machine(
    name="trn2",
    generation=3,
    partitions=128,
    sbuf_bytes_per_partition=212984,
    sbuf_physical_bytes_per_partition=229376,
    psum_banks=8,
    psum_bank_bytes=2048,
    address_alignment=4,
    stationary_free_max=128,
    moving_free_max=512,
    psum_free_max=512,
    transpose_vector_max=32,
    free_dims_max=4,
    sbuf_elements_max=65536,
    psum_elements_max=4096,
    quadrant=32,
    semaphores=256,
    dma_engines=16,
    clocks={Engine.TENSOR: 2.4, Engine.VECTOR: 0.96, Engine.SCALAR: 1.2, Engine.GPSIMD: 1.2, Engine.SYNC: 1.2},
    vector_elements_per_cycle=2.0,
    minimum_interval_cycles=64,
    access_cycles=60,
    gpsimd_start_cycles=150,
    hbm_bytes_per_ns=362.0,
    dma_fixed_ns=2000.0,
    dma_issue_ns=600.0,
)
