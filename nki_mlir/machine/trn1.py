# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn1: NeuronCore-v2."""

from nki_mlir.machine.description import Engine, Machine

MACHINE = Machine(
    name="trn1",
    generation=2,
    partitions=128,
    sbuf_bytes_per_partition=180224,
    sbuf_physical_bytes_per_partition=196608,
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
    clocks={Engine.TENSOR: 2.8, Engine.VECTOR: 1.12, Engine.SCALAR: 1.4, Engine.GPSIMD: 1.4, Engine.SYNC: 1.4},
    vector_elements_per_cycle=1.0,
    minimum_interval_cycles=64,
    access_cycles=60,
    gpsimd_start_cycles=150,
    hbm_bytes_per_ns=410.0,
    dma_fixed_ns=2000.0,
    dma_issue_ns=600.0,
)
