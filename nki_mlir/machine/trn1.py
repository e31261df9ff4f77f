# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn1: NeuronCore-v2: architecture guide of Trainium and Inferentia2. HBM: 820 GB/s of a device with two cores."""

from nki_mlir.machine import documented
from nki_mlir.machine.cited import NONE, Cited
from nki_mlir.machine.costs import ControlCosts, Costs, DmaCosts, EngineCosts, Law
from nki_mlir.machine.description import Machine
from nki_mlir.machine.engine import Engine

LEAST = Cited(64, "reference of nki.isa: MIN_II, about 64 cycles")
NO_LEAST = Cited(0, "reference of nki.isa: 150 + N has no minimum")
WEIGHTS = Cited(84, "fitted on L047: (6.97 - 5.99) ms over 32,768 products, whose loads are not hidden")
CHAIN = Cited(130, "performance guide, profile: a chain of one element starts every 189 ns, of which 59 are issue")
DUPLEX = Cited(340, "mamba tutorial, profile: TENSOR_TENSOR of 8192 float32 lasts 2 N + 350 ns")

COSTS = Costs(
    engines={
        Engine.TENSOR: EngineCosts(
            LEAST, Cited(0, "reference of nki.isa: max(min(64, N_stationary), N_moving)"),
            result_ns=Cited(142, "performance guide, profile: MATMUL of 128 columns lasts 188 ns, 46 of issue"),
            result_in_engine_ns=Cited(0, "results are added up in PSUM"),
            laws={"product": Law(Cited(1, "nki.isa.nc_matmul, cost: N of moving"), fixed=WEIGHTS),
                  "product.float32": Law(Cited(1, "nki.isa.nc_matmul, cost: N of moving"), passes=4, fixed=WEIGHTS),
                  "transpose": Law(Cited(1, "nki.isa.nc_transpose, cost: max(P, min(64, F))"), fixed=WEIGHTS),
                  "transpose.float32": Law(Cited(1, "nki.isa.nc_transpose, cost; two passes for exact zeros and ones"),
                                           passes=2, fixed=WEIGHTS)}),
        Engine.VECTOR: EngineCosts(
            LEAST, Cited(18, "fitted on L081: 160 instructions of 2 * 512 cycles take 2 % more"), DUPLEX,
            Cited(90, "measured by others: about 100 cycles between instructions that depend on each other"),
            documented.VECTOR),
        Engine.SCALAR: EngineCosts(
            LEAST, Cited(18, "assumption: as the vector engine"),
            Cited(100, "performance guide, profile: one element lasts 159 ns, of which 59 are issue"), CHAIN,
            documented.SCALAR, documented.ONE_A_CYCLE),
        Engine.GPSIMD: EngineCosts(
            NO_LEAST, NONE, Cited(200, "assumption: between the other engines'"),
            Cited(100, "assumption: as the vector engine"), documented.GPSIMD, documented.GPSIMD_OTHER),
        Engine.SYNC: EngineCosts(NO_LEAST, NONE, NONE, NONE, {}, documented.ONE_A_CYCLE),
    },
    dma=DmaCosts(
        issue_ns=Cited(116, "assumption: two writes of registers of a queue, each as MOVE"),
        static_issue_ns=Cited(116, "assumption: as of every transfer, since descriptors are in HBM before"),
        trigger_ns=Cited(1000, "guide to DMA: about 2 us in all, divided as measured on trn2"),
        notify_ns=Cited(300, "guide to DMA: about 2 us in all, divided as measured on trn2"),
        descriptor_ns=Cited(12, "assumption: as measured on trn2"),
        word_bytes=Cited(8, "assumption: a word of memory with its check bits; of L298 runs have 4 bytes"),
        word_ns=Cited(40, "fitted on L298: 600 transfers of 128 runs of 4 bytes take 193 us"),
        bytes_per_ns=Cited(18.36, "guide to DMA bandwidth: 17; fitted on L219: 8 % more"),
        short_bytes_per_ns=Cited(4, "fitted on L041: 160 KiB in rows of 256 bytes and 1 KiB take 1.58 us", 0.2),
        short_ns=Cited(125, "guide to DMA bandwidth, chart: 149 for 2 KiB; fitted on L041, L245, L248 and L250", 0.15),
        packet_bytes=Cited(512, "assumption: as on trn2"),
        wait_bytes=Cited(3000, "assumption: as on trn2"),
        page_bytes=Cited(8192, "assumption: as on trn2"),
        round_bytes=Cited(4096, "assumption: as on trn2"),
        wait_ns=NONE,                       # within the two numbers of short runs
        conflict_ns=NONE,
        store_wait_ns=NONE,
        bank_bytes=Cited(1 << 20, "assumption: as on trn2"),
        bank_engines=Cited(8, "assumption: as on trn2"),
        bank_row_bytes=Cited(2048, "assumption: as on trn2"),
        bank_row_ns=NONE,
        transpose_rate=NONE,                # its DMA engines transpose nothing
        sbuf_transpose_rate=NONE,
        sum_rate=Cited(0.5, "assumption: the DMA engine reads two operands for each one that it writes"),
        hbm_bytes_per_ns=Cited(410, "architecture guide: 820 GB/s for two cores"),
        hbm_stack_bytes_per_ns=Cited(410, "architecture guide: 820 GB/s of two stacks, a core each")),
    control=ControlCosts(
        event_ns=Cited(9, "performance guide, profile: EVENT_SEMAPHORE"),
        register_ns=Cited(58, "assumption: the cycles that are measured on trn2"),
        load_ns=Cited(1000, "assumption: as a transfer's way to memory"),
        signal_ns=Cited(50, "assumption: within the results of the other engines"),
        core_signal_ns=Cited(1000, "assumption: a semaphore of another core, and its answer"),
        hop_ns=Cited(1500, "intra-node collectives: 1 to 2 us"),
        fetch_ns=Cited(4, "assumption: a slot of 64 bytes at the rate of one DMA engine"),
        refill_ns=Cited(500, "assumption: a way to memory, half of which is hidden"),
        table_load_ns=Cited(368, "profile of trn1: ACT_TABLE_LOAD"),
        launch_ns=Cited(5500, "fitted on L269: what nki.benchmark measures beside the kernel")),
    psum_port_shared=True,              # architecture guide: vector and scalar engine exclude each other on PSUM
    sbuf_port_shared=True,              # vector and GpSimd engine on SBUF
)

MACHINE = Machine(
    name="trn1",
    generation=2,
    sbuf_bytes_per_partition=180224,
    sbuf_physical_bytes_per_partition=196608,
    clocks={Engine.TENSOR: 2.8, Engine.VECTOR: 1.12, Engine.SCALAR: 1.4, Engine.GPSIMD: 1.4, Engine.SYNC: 1.4},
    array_parts=(64, 128),
    generates_descriptors=False,
    launch_cores=1,                     # it has no logical cores of two
    costs=COSTS,
)
