# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn3: NeuronCore-v4: architecture guide of Trainium3. HBM: 4.7 TB/s of a device with eight cores.

No measurement of its instructions is public. Apart from clocks and rates, the numbers are those of trn2.
"""

from nki_mlir.machine import documented
from nki_mlir.machine.cited import Cited
from nki_mlir.machine.costs import Law
from nki_mlir.machine.description import Machine
from nki_mlir.machine.engine import Engine
from nki_mlir.machine.trn2 import COSTS as TRN2
from nki_mlir.machine.trn2 import SCALAR, TENSOR, VECTOR

TWO_OF_16_BITS = Law(Cited(0.5, "architecture guide: two elements of 16 bits a lane and cycle"))
FLOATS_OF_8_BITS = "float8_e4m3", "float8_e4m3fn", "float8_e5m2"        # architecture guide: in the modes of 16 bits

COSTS = TRN2._replace(
    engines={
        **TRN2.engines,
        Engine.TENSOR: TRN2.engines[Engine.TENSOR]._replace(laws=TENSOR | {
            "product.mx": Law(Cited(1, "guide to MX products: 4 rows a cycle, so that K of 512 takes N cycles"),
                              fixed=TENSOR["product"].fixed, result_per_element=TENSOR["product"].result_per_element)}),
        Engine.VECTOR: TRN2.engines[Engine.VECTOR]._replace(laws=VECTOR | {
            "random.numbers": documented.FOUR_A_CYCLE,
            # Not copies in SBUF: on trn2 the fast mode of 16 bits, as measured, takes longer than 32 bits.
            **{f"{law}.{narrow}": VECTOR[f"{law}.bfloat16"] for narrow in FLOATS_OF_8_BITS for law in (
                "tensor_tensor", "tensor_scalar", "tensor_scalar.psum", "tensor_copy.psum", "scalar_tensor_tensor",
                "tensor_reduce")}}),
        Engine.SCALAR: TRN2.engines[Engine.SCALAR]._replace(laws=SCALAR | {
            "tensor_copy.bfloat16": TWO_OF_16_BITS, "tensor_copy.float16": TWO_OF_16_BITS,
            "tensor_scalar.bfloat16": TWO_OF_16_BITS, "tensor_scalar.float16": TWO_OF_16_BITS}),
    },
    dma=TRN2.dma._replace(
        bytes_per_ns=Cited(38.4, "guide to DMA bandwidth: 38.4 raw, of which 33 are left for long runs"),
        short_bytes_per_ns=Cited(38.4, "assumption: short runs are no slower, as on trn2"),
        hbm_bytes_per_ns=Cited(590, "architecture guide: 4.7 TB/s for eight cores"),
        hbm_stack_bytes_per_ns=Cited(1175, "architecture guide: 4.7 TB/s of four stacks, two cores each")),
)

MACHINE = Machine(
    name="trn3",
    generation=4,
    sbuf_bytes_per_partition=245752,
    sbuf_physical_bytes_per_partition=262144,
    clocks={Engine.TENSOR: 2.4, Engine.VECTOR: 1.2, Engine.SCALAR: 1.2, Engine.GPSIMD: 1.2, Engine.SYNC: 1.2},
    product_banks=8,
    gpsimd_sees_psum=True,
    psum_elements_max=8192,                 # bfloat16 sums in all banks
    costs=COSTS,
)
