# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Published latencies of complete kernels, each measurement once, with a kernel that computes the same.

Entries keep the numbers of the calibration set on which costs are fitted. A harness starts and stops its clock outside
of the kernel; one or two of its short entries determine the time that it adds.
"""

from typing import NamedTuple

# ns outside of the first and the last instruction, by harness
LAUNCH = {
    "benchmark": 5_500,         # nki.benchmark on trn1: L269
    "profiler": 14_500,         # the complete time of a profile: L300, L302, L320
    "mamba": 22_000,            # the tutorial prints latency and time of the core: L081
    "autotune": 40_000,         # scoreboard on trn2: L154, L174
    "voyager": 9_400,           # stated by its authors
    "variants": 9_400,          # assumption: as on trn2 elsewhere; its shortest kernel takes 30 times as long
}
STATIC = ("variants",)          # harnesses that compile with --disable-dge, as the benchmark of these kernels does
CORES = 2                       # assumption: the variants' source names one core, but moves more bytes than one does


class Entry(NamedTuple):
    """A measurement: ``known`` says that the loop nest is published; otherwise it is assumed."""

    name: str
    kernel: str
    arguments: tuple[str, ...]
    target: str
    harness: str
    published_ns: float
    source: str
    known: bool = True

    @property
    def operator(self) -> str:
        """Return the name of the operator that the kernel computes."""
        function = self.kernel.partition(":")[2]
        return OPERATORS.get(function, function)


# The operators with several kernels; any other kernel is the only one of an operator of its name.
OPERATORS = {
    "tiled": "product", "hoisted": "product", "blocked": "product", "transposing": "product",
    "attention_in_steps": "attention", "mamba_states_outside": "scan", "mamba_channels_outside": "scan",
    "adamw_of_rows": "adamw", "adamw_in_steps": "adamw", "rope_halves": "rope", "rope_copied": "rope",
}


def square(n: int) -> tuple[str, ...]:
    return f"{n}x{n}xbf16", f"{n}x{n}xbf16"


def heads(d: int, s: int, *options: str) -> tuple[str, ...]:
    return (f"{d}x{s}xbf16",) * 3 + options


def scan(length: int, channels: int, *options: str) -> tuple[str, ...]:
    return (f"{channels}x{length}xf32", f"{channels}x{length}xf32", f"{channels}x16xf32", f"16x{length}xf32",
            f"16x{length}xf32", *options)


def sums(n: int, free: int) -> tuple[str, ...]:
    return f"{n}xf32", f"{n}xf32", f"free={free}"


MATMUL = "SDK 2.26, tutorial on matrix products"
AUTOTUNE = "public autotuning of matrix products"
GUIDE = "SDK, guide to optimizing kernels"
FLASH = "public study of attention on trn1, neuronx-cc 2.23"
MAMBA = "SDK, tutorial on the selective scan"
COURSE = "public course on accelerators, its measured solutions"
VOYAGER = "public measurements on trn2, neuronx-cc 2.22"
KERNELS = "public benchmark of kernels"
PUBLISHED_VARIANTS = "public measurements of variants on trn2"
V5 = ("separate=True", "wide=True")

ENTRIES = (
    Entry("L041", "matmul.py:tiled", ("8192x4096xbf16", "8192x8192xbf16"), "trn1", "benchmark", 51.8e6, MATMUL),
    Entry("L047", "matmul.py:blocked", ("8192x4096xbf16", "8192x8192xbf16"), "trn1", "benchmark", 6.97e6, MATMUL),
    Entry("L136", "matmul.py:blocked", ("4096x4096xbf16", "4096x4096xbf16"), "trn1", "benchmark", 2.694e6, AUTOTUNE),
    Entry("L142", "matmul.py:blocked", ("8192x4096xbf16", "8192x8192xbf16"), "trn1", "benchmark", 6.991e6, AUTOTUNE),
    Entry("L150", "matmul.py:blocked", ("8192x8192xbf16", "8192x8192xbf16"), "trn1", "benchmark", 14.72e6, AUTOTUNE),
    Entry("L055", "matmul.py:hoisted", ("8192x4096xf32", "8192x8192xf32"), "trn2", "profiler", 28.2e6, GUIDE),
    Entry("L067", "matmul.py:blocked", ("8192x4096xf32", "8192x8192xf32", "block_m=8"), "trn2", "profiler", 28.3e6,
          GUIDE, False),
    Entry("L154", "matmul.py:transposing", (*square(1024), "block_m=8", "block_n=2"), "trn2", "autotune", 79e3,
          AUTOTUNE, False),
    Entry("L160", "matmul.py:transposing", (*square(2560), "block_m=10"), "trn2", "autotune", 509e3, AUTOTUNE, False),
    Entry("L170", "matmul.py:transposing", (*square(5120), "block_m=8", "block_n=2"), "trn2", "autotune", 3.603e6,
          AUTOTUNE, False),
    Entry("L174", "matmul.py:hoisted", (*square(1024), "block_m=8", "block_n=2"), "trn2", "autotune", 76e3, AUTOTUNE,
          False),
    Entry("L180", "matmul.py:hoisted", (*square(2560), "block_m=10"), "trn2", "autotune", 483e3, AUTOTUNE, False),
    Entry("L190", "matmul.py:hoisted", (*square(5120), "block_m=8", "block_n=2"), "trn2", "autotune", 3.504e6, AUTOTUNE,
          False),
    Entry("L245", "fused.py:attention_in_steps", heads(128, 512), "trn1", "benchmark", 57e3, FLASH, False),
    Entry("L248", "fused.py:attention_in_steps", heads(128, 4096), "trn1", "benchmark", 3130e3, FLASH,
          False),
    Entry("L250", "fused.py:attention_in_steps", heads(128, 16384), "trn1", "benchmark", 67733e3, FLASH,
          False),
    Entry("L258", "fused.py:attention", heads(128, 1024, *V5), "trn1", "benchmark", 53e3, FLASH),
    Entry("L261", "fused.py:attention", heads(128, 8192, *V5), "trn1", "benchmark", 2455e3, FLASH),
    Entry("L269", "fused.py:attention", heads(128, 512), "trn1", "benchmark", 19e3, FLASH),
    Entry("L272", "fused.py:attention", heads(128, 4096), "trn1", "benchmark", 400e3, FLASH),
    Entry("L274", "fused.py:attention", heads(128, 16384), "trn1", "benchmark", 6228e3, FLASH),
    Entry("L287", "fused.py:attention", heads(128, 2048, "group=4"), "trn1", "benchmark", 98e3, FLASH, False),
    Entry("L240", "fused.py:attention", heads(64, 4096), "trn1", "benchmark", 385e3, "public tuning, step 5", False),
    Entry("L081", "rows.py:mamba_states_outside", scan(512, 256), "trn1", "mamba", 172.93e3, MAMBA),
    Entry("L083", "rows.py:mamba_channels_outside", scan(512, 4096), "trn1", "mamba", 1.61e6, MAMBA),
    Entry("L088", "rows.py:mamba_channels_outside", scan(1024, 4096), "trn1", "mamba", 4.4e6, MAMBA),
    Entry("L091", "rows.py:mamba_channels_outside", scan(2048, 4096, "piece=512"), "trn1", "mamba", 6.6e6, MAMBA),
    Entry("L219", "rows.py:silu", ("4096x7168xf32",), "trn1", "benchmark", 797.74e3, KERNELS, False),
    Entry("L211", "fused.py:bmm_softmax", ("16x64x4096xf32", "16x64x4096xf32"), "trn1", "benchmark", 11.9998e6,
          KERNELS, False),
    Entry("L298", "rows.py:vector_add", sums(25600, 1), "trn1", "profiler", 206e3, COURSE),
    Entry("L300", "rows.py:vector_add", sums(25600, 200), "trn1", "profiler", 19e3, COURSE),
    Entry("L302", "rows.py:vector_add", sums(256000, 1000), "trn1", "profiler", 29.5e3, COURSE),
    Entry("L317", "rows.py:vector_add", sums(25600, 1), "trn2", "profiler", 378e3, COURSE),
    Entry("L320", "rows.py:vector_add", sums(256000, 2000), "trn2", "profiler", 28e3, COURSE),
    Entry("L311", "fused.py:convolution", ("256x224x224xf32", "256x9x256xf32"), "trn1", "benchmark", 3751e3, COURSE,
          False),
    Entry("L312", "fused.py:convolution", ("256x224x224xf16", "256x9x256xf16"), "trn1", "benchmark", 1054e3, COURSE,
          False),
    Entry("L332", "fused.py:convolution", ("256x224x224xf16", "256x9x256xf16"), "trn2", "benchmark", 930e3, COURSE,
          False),
    Entry("L356", "rows.py:layernorm", ("4096x8192xf32", "8192xf32", "8192xf32"), "trn2", "voyager", 1.728e6, VOYAGER,
          False),
    Entry("L359", "rows.py:maxpool", ("4096x4096xf32",), "trn2", "voyager", 1.016e6, VOYAGER),
    Entry("L362", "fused.py:swiglu", ("4096x1024xf32", "1024x3072xf32", "1024x3072xf32", "3072x1024xf32"), "trn2",
          "voyager", 4.082e6, VOYAGER, False),
)


# -- variants of one kernel --------------------------------------------------------------------------------------------
def variants(first: int, kernel: str, inputs: tuple[str, ...], measured: dict[tuple[str, ...], float]
             ) -> tuple[Entry, ...]:
    """Return entries from a number on, with options and the measured ms. The published time counts as that of
    ``CORES`` cores that share the work; the model has one core, so its time is compared with that multiple."""
    return tuple(Entry(f"V{first + k:03}", f"variants.py:{kernel}", inputs + options, "trn2", "variants",
                       CORES * ms * 1e6, PUBLISHED_VARIANTS, False) for k, (options, ms) in enumerate(measured.items()))


def each(option: str, measured: dict[int, float]) -> dict[tuple[str, ...], float]:
    return {(f"{option}={value}",): ms for value, ms in measured.items()}


ARRAYS = ("10944x2048xf32",) * 4
FREQUENCIES = ("128x262144xf32", "64x262144xf32", "64x262144xf32")
OPERANDS = ("4096x5120xf32", "5120x12288xf32")
LOW_RANK = (*OPERANDS, "5120x128xf32", "128x12288xf32")
BATCH = ("16x4096x64xf32", "16x64x4096xf32")
NORMALIZED = ("4096x1024xf32", "1024x2048xf32")
VARIANTS = (
    *variants(1, "adamw", ARRAYS, each("columns", {
        512: 0.7768, 576: 0.5839, 608: 0.5860, 684: 0.6390, 768: 0.7517, 912: 0.5606, 1024: 0.5921, 1152: 0.6834,
        1216: 0.5601, 1368: 0.5825, 1536: 0.6515, 1824: 0.5474, 2304: 0.6105})),
    *variants(14, "adamw_of_rows", ARRAYS, {(): 0.6180}),
    *variants(15, "adamw_in_steps", ARRAYS, {(): 1.3050}),
    *variants(21, "rope_halves", FREQUENCIES, each("width", {512: 1.0335, 1024: 1.0350, 2048: 0.9445, 4096: 1.0223})),
    *variants(25, "rope_copied", FREQUENCIES, each("width", {256: 0.7335, 512: 0.7337, 1024: 0.7931, 2048: 0.7801,
                                                             4096: 0.7812})),
    *variants(30, "rope_copied", FREQUENCIES, {(f"width={width}", "exchange=128x128xf32"): ms for width, ms in {
        128: 0.6986, 256: 0.6870, 512: 0.6960}.items()}),
    *variants(41, "product", OPERANDS, each("block", {1: 15.885, 2: 13.808, 4: 13.29, 8: 14.02})),
    *variants(45, "product", OPERANDS, each("pieces", {3: 10.656, 1: 3.69})),
    *variants(51, "batched", BATCH, each("ahead", {1: 3.848, 8: 3.492, 16: 3.105, 32: 2.035, 64: 2.610, 128: 2.918})),
    *variants(57, "batched", BATCH, {("ahead=32", "loaded=True"): 2.035}),
    *variants(58, "batched", BATCH, each("pieces", {1: 1.559})),
    *variants(61, "lora", LOW_RANK, {(): 14.84, ("pieces=3",): 11.30, ("pieces=3", "added=True"): 11.18}),
    *variants(71, "normalized_product", NORMALIZED, {(): 0.4714, ("order=after",): 0.4733, ("pieces=3",): 0.3688,
                                                     ("pieces=1",): 0.1458}),
    *variants(75, "normalized_product", NORMALIZED, {("order=loaded",): 0.4706}),
)
