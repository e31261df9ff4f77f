# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""trn2: NeuronCore-v3: architecture guide of Trainium2. HBM: 2.9 TB/s of a device with eight cores.

Others measured instructions, with version 2.22 of the vendor's compiler: the entries of the calibration set.
"""

from nki_mlir.machine import documented
from nki_mlir.machine.cited import NONE, Cited
from nki_mlir.machine.costs import ControlCosts, Costs, DmaCosts, EngineCosts, Law, Ramp
from nki_mlir.machine.description import Machine
from nki_mlir.machine.engine import Engine

LEAST = Cited(64, "reference of nki.isa: MIN_II, about 64 cycles")
ACCESS = Cited(57, "measured by others: transposes of 32 columns start every 93 ns; the architecture guide has "
               "about 60 cycles for each access to memory")
SHORTEST = Cited(7, "reference of nki.isa: MIN_II, about 64 cycles, with the access to memory")
NO_LEAST = Cited(0, "reference of nki.isa: 150 + N has no minimum")
WEIGHTS = Cited(4, "optimization guide, profile: 512 columns of float32 take 859 ns, four times 516 cycles")
RESULT = Cited(0.99, "measured, L022: 203 ns + 2 N cycles from issue to result, of which N are issue")
FUNCTION = Cited(103, "measured, L030 and L029: exp 293.5 ns + N, a copy 190.3 ns + N")


def measured(value: float, entries: str, text: str) -> Cited:
    return Cited(value, f"measured, {entries}: {text}")


TWO_FROM_PSUM = Law(Cited(0.5, "architecture guide: twice as fast with 16 bits if one side is in PSUM"))
MEMSET = Law(measured(0.8, "L026", "0.7975 cycles an element"), result_ns=measured(
    -98, "L026", "58.7 ns beside what grows with N, all of it issue, since it reads nothing"))
VECTOR = documented.VECTOR | {
    "tensor_tensor": Law(measured(1, "L027", "two elements a cycle")),
    "tensor_tensor.bfloat16": Law(Cited(0.5, "architecture guide: twice as fast with 16 bits, in SBUF")),
    "tensor_tensor.float16": Law(Cited(0.5, "architecture guide: twice as fast with 16 bits, in SBUF")),
    "tensor_tensor.divide": Law(Cited(7, "assumption: a reciprocal, 6 N as of L031, and a product")),
    "tensor_scalar": Law(measured(0.5, "L028", "two elements a cycle")),
    "tensor_scalar.psum": Law(Cited(1, "assumption: as a copy from PSUM, which is measured")),
    "tensor_scalar.psum.bfloat16": TWO_FROM_PSUM,
    "tensor_scalar.psum.float16": TWO_FROM_PSUM,
    "tensor_scalar.bfloat16": Law(Cited(0.25, "architecture guide: four times as fast with 16 bits, in SBUF")),
    "tensor_scalar.float16": Law(Cited(0.25, "architecture guide: four times as fast with 16 bits, in SBUF")),
    "tensor_copy": Law(measured(0.5, "L024", "two elements a cycle")),
    "tensor_copy.bfloat16": Law(measured(0.685, "L025", "the architecture guide has four elements a cycle")),
    "tensor_copy.float16": Law(measured(0.685, "L025", "of bfloat16")),
    "tensor_copy.apart": Law(Cited(0.685, "assumption: elements of 16 bits that are apart are no faster than others")),
    "tensor_copy.psum": Law(Cited(1, "measured by others: a copy from PSUM takes 1.0424 N ns")),
    "tensor_copy.psum.bfloat16": TWO_FROM_PSUM,
    "tensor_copy.psum.float16": TWO_FROM_PSUM,
    "scalar_tensor_tensor": Law(Cited(1, "assumption: as tensor_tensor, which is measured")),
    "scalar_tensor_tensor.bfloat16": Law(Cited(0.5, "assumption: as tensor_tensor")),
    "select": Law(Cited(1, "assumption: as tensor_tensor, which is measured")),
    "reciprocal": Law(measured(6, "L031", "6.249 ns an element")),
    "memset": MEMSET,
    "memset.fast": MEMSET,
}
SCALAR = documented.SCALAR | {
    "activation": Law(documented.ONE_A_CYCLE.per_element, result_ns=FUNCTION),
    "activation.copy": documented.ONE_A_CYCLE,
    "activation_reduce": Law(documented.ONE_A_CYCLE.per_element, fixed=Cited(
        222, "measured by others: the instruction that reads the sum starts 185 ns before the next one")),
}
RAMP = Ramp(
    rate=Cited(0.5, "guide to profiles, throttling: about 50 %; measured by others: a product of float32 with 64 rows "
               "takes 1,707 ns, with 128 rows 860", 0.03),
    threshold=Cited(0.46, "guide to profiles: below 50 %; fitted on V054: products of 64 rows, at most 49.6 %, run at "
                    "full speed", 0.05),
    window_ns=Cited(3000, "guide to profiles: any window of about 3 us", 0.2),
    spread=Cited(0.015, "fitted on V055 and V056: products of 64 rows come to half speed after some 300 us", 0.3))
TENSOR = {
    "product": Law(Cited(1, "nki.isa.nc_matmul, cost: N of moving"), fixed=WEIGHTS, result_per_element=RESULT),
    "product.float32": Law(Cited(1, "nki.isa.nc_matmul, cost: N of moving"), passes=4, fixed=WEIGHTS,
                           least=Cited(128, "measured by others: weights of float32 load in 128 cycles a pass"),
                           result_per_element=RESULT),
    "transpose": Law(Cited(1, "nki.isa.nc_transpose, cost: max(P, min(64, F))"), fixed=WEIGHTS,
                     result_per_element=RESULT),
    "transpose.float32": Law(Cited(1, "architecture guide: transposes of float32 take half of a product's passes"),
                             passes=2, fixed=WEIGHTS, result_per_element=RESULT),
}

COSTS = Costs(
    engines={
        Engine.TENSOR: EngineCosts(
            LEAST, Cited(0, "reference of nki.isa: max(min(64, N_stationary), N_moving)"),
            result_ns=measured(203, "L022", "from issue to result, beside what grows with N"),
            result_in_engine_ns=Cited(0, "results are added up in PSUM"), laws=TENSOR, ramp=RAMP),
        Engine.VECTOR: EngineCosts(
            SHORTEST, ACCESS,
            measured(98, "L024 to L032", "158 ns beside what grows with N, of which 59 are issue"),
            measured(98, "L024 to L032", "chains of instructions show the whole of it"), VECTOR),
        Engine.SCALAR: EngineCosts(
            SHORTEST, Cited(57, "assumption: as the vector engine"),
            measured(143, "L029", "190 ns beside what grows with N, of which 47 are issue"),
            measured(143, "L375 to L378", "chains of copies show the whole of it"), SCALAR, documented.ONE_A_CYCLE),
        Engine.GPSIMD: EngineCosts(
            NO_LEAST, NONE, Cited(200, "assumption: between the other engines'"),
            Cited(150, "assumption: as the vector engine"), documented.GPSIMD, documented.GPSIMD_OTHER),
        Engine.SYNC: EngineCosts(NO_LEAST, NONE, NONE, NONE, {}, documented.ONE_A_CYCLE),
    },
    dma=DmaCosts(
        issue_ns=Cited(600, "guide to DGE: about 600 ns; measured by others: 599 of a load, 609 of a store; L317: 606"),
        static_issue_ns=Cited(136, "assumption: two writes of registers of a queue, each as MOVE"),
        trigger_ns=measured(735, "L016", "from the trigger to the start"),
        notify_ns=measured(300, "L017", "from the end to the consumer's start"),
        descriptor_ns=measured(12, "L014", "a descriptor of 256 bytes; the guide's chart then is time of issue"),
        word_bytes=Cited(8, "assumption: as on trn1, a word of memory with its check bits"),
        word_ns=Cited(40, "assumption: as on trn1; 600 transfers of runs of 4 bytes (L317) take 606 ns, their issue"),
        bytes_per_ns=Cited(27.2, "guide to DMA bandwidth: 27.2 raw, of which 23 are left for long runs", 0.04),
        short_bytes_per_ns=Cited(27.2, "measured, L014: short runs are no slower", 0.04),
        short_ns=NONE,
        packet_bytes=Cited(512, "assumption: of V001 to V014 the runs that are multiples of it are slow"),
        wait_bytes=Cited(3000, "fitted on L014, V001, V002 and V003", 0.2),
        page_bytes=Cited(8192, "fitted on L013, L356, L359 and V013: 23 bytes a ns of one engine of long runs", 0.2),
        round_bytes=Cited(4096, "guide to DMA bandwidth, chart: runs of 4 KiB have 97 % of the highest rate; V007"),
        wait_ns=Cited(15, "fitted on V002 to V004, V006, V009, V010, V012; V021 to V026 and V030 to V032 agree", 0.4),
        conflict_ns=Cited(62, "fitted on L013, L055, V001, V005, V008, V011, V013 and V014", 0.2),
        store_wait_ns=Cited(14, "measured by others: stores 382 bytes a ns of 16 engines, where loads have 282", 0.4),
        bank_bytes=Cited(1 << 20, "assumption: V021 to V032 have runs 1 MiB apart, L055, which is no slower, 32 KiB"),
        bank_engines=Cited(8, "assumption: of V021 to V024, which eight engines move, long runs do not wait"),
        bank_row_bytes=Cited(2048, "assumption: a row of HBM; of V025 to V029 longer runs are slower"),
        bank_row_ns=Cited(80, "fitted on V027 to V029: their 128 rows are on 16 engines", 0.2),
        transpose_rate=Cited(0.9, "guide to DMA bandwidth: transposes to SBUF have up to 90 % of the throughput"),
        sbuf_transpose_rate=Cited(0.5, "guide to DMA bandwidth: transposes of SBUF have up to 50 % of the throughput"),
        sum_rate=Cited(0.5, "assumption: the DMA engine reads two operands for each one that it writes"),
        hbm_bytes_per_ns=Cited(362, "architecture guide: 2.9 TB/s for eight cores"),
        hbm_stack_bytes_per_ns=Cited(725, "architecture guide: 2.9 TB/s of four stacks, two cores each")),
    control=ControlCosts(
        event_ns=Cited(9, "performance guide, profile of trn1: EVENT_SEMAPHORE"),
        register_ns=Cited(68, "measured by others: MOVE of a number to a register"),
        load_ns=Cited(735, "assumption: as a transfer's way to memory"),
        signal_ns=Cited(50, "assumption: within the results of the other engines"),
        core_signal_ns=Cited(1000, "assumption: a semaphore of another core, and its answer"),
        hop_ns=Cited(1500, "intra-node collectives: 1 to 2 us"),
        fetch_ns=Cited(3, "assumption: a slot of 64 bytes at the rate of one DMA engine"),
        refill_ns=Cited(370, "assumption: a way to memory, half of which is hidden"),
        table_load_ns=Cited(1280, "measured by others: ACT_TABLE_LOAD 1,283 ns"),
        launch_ns=Cited(9400, "measured by others: 9,403 ns of a whole kernel beside its instructions")),
    psum_port_shared=False,             # architecture guide: both have the full bandwidth of different banks
    sbuf_port_shared=False,
)

MACHINE = Machine(
    name="trn2",
    generation=3,
    sbuf_bytes_per_partition=212984,
    sbuf_physical_bytes_per_partition=229376,
    clocks={Engine.TENSOR: 2.4, Engine.VECTOR: 0.96, Engine.SCALAR: 1.2, Engine.GPSIMD: 1.2, Engine.SYNC: 1.2},
    costs=COSTS,
)
