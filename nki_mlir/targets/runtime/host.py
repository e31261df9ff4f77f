# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The properties of the host CPU: vector lanes, caches, threads, and the parts of code that differ between systems."""

import ctypes
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from nki_mlir.diagnostics import NkiMlirError

# The pool's code waits on a word by a system call's number, and marks a spinning loop by an instruction.
_WORDS = {"x86_64": ("202", "pause"), "aarch64": ("98", "yield"), "arm64": ("98", "yield")}
MOST_THREADS = 256                  # slots of the pool, the most threads
LINE = 64                           # bytes of a cache line; each buffer starts at a multiple
PAGE = 4096
MOST_CACHE = 32 << 20               # bytes of the last cache, if its size is unknown
WORTH_WAKING = 50_000               # least nanoseconds of work for the pool's threads


class BadThreadCount(NkiMlirError, ValueError):
    code = "NKI-THREADS"
    message = "NKI_MLIR_NUM_THREADS cannot be '{text}'"
    fix = "set it to a number of threads from 1 to {most}"


class BadCacheSizes(NkiMlirError, ValueError):
    code = "NKI-CACHES"
    message = "NKI_MLIR_CACHES cannot be '{text}'"
    why = "it lists the bytes of the first, second and third cache of a core, each larger than the one before"
    fix = "set it to three sizes, for example 48K,2M,32M"


class Caches(NamedTuple):
    """The bytes of the first cache of data, the second and the third."""

    first: int
    second: int
    third: int

    @property
    def are_plausible(self) -> bool:
        """Whether these are sizes that processors have: virtual machines report others."""
        return 8 << 10 <= self.first <= 512 << 10 and 128 << 10 <= self.second <= 64 << 20 and (
            self.first < self.second < self.third <= 2 << 30)


def chosen_caches() -> Caches | None:
    """Return the sizes of ``NKI_MLIR_CACHES``, as 48K,2M,32M; None if it is not set. Raise ``BadCacheSizes``."""
    text = os.environ.get("NKI_MLIR_CACHES")
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)([KM]?),(\d+)([KM]?),(\d+)([KM]?)", text.strip())
    scale = {"": 0, "K": 10, "M": 20}
    if match is not None:
        words = match.groups()
        sizes = Caches(*(int(words[k]) << scale[words[k + 1]] for k in (0, 2, 4)))
        if 0 < sizes.first < sizes.second < sizes.third:
            return sizes
    raise BadCacheSizes(text=text)


@cache
def reported_caches(folder: str = "/sys/devices/system/cpu/cpu0/cache") -> Caches | None:
    """Return the sizes that Linux reports for the first processor; None if it reports no sizes, or implausible ones."""
    sizes: dict[str, int] = {}
    try:
        for index in sorted(Path(folder).glob("index*")):
            if (index / "type").read_text(encoding="utf-8").strip() != "Instruction":
                level, text = ((index / name).read_text(encoding="utf-8").strip() for name in ("level", "size"))
                sizes[level] = int(text.removesuffix("K")) << 10
        caches = Caches(*(sizes[level] for level in "123"))
    except (OSError, KeyError, ValueError):
        return None
    return caches if caches.are_plausible else None


@cache
def model() -> str:
    """Return the processor's name as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


@cache
def features() -> frozenset[str]:
    """Return the flags of the first CPU as the system reports them, for example 'avx2', 'avx512f', 'asimd'."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset({"asimd"} if platform.machine() in ("arm64", "aarch64") else ())
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), ":")
    return frozenset(flags.split(":", 1)[1].split())


@cache
def cache_bytes() -> int:
    """Return the bytes of the last cache as the system reports them, else a core's share of a large server's cache."""
    try:
        return os.sysconf("SC_LEVEL3_CACHE_SIZE") or MOST_CACHE
    except (ValueError, AttributeError):        # no such name, or no such function, on this system
        return MOST_CACHE


@cache
def lanes() -> int:
    """Return the float32 elements of the widest vector register."""
    available = features()
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= available:
        return 16
    return 8 if {"avx2", "fma"} <= available else 4


def multiplies_pairs() -> bool:
    """Return whether there is an instruction that adds the products of two pairs of bfloat16 to each float32."""
    return lanes() == 16 and "avx512_bf16" in features()


def adds_word_products() -> bool:
    """Return whether there is an instruction that adds the products of two pairs of 16-bit integers to each 32-bit
    one."""
    return lanes() == 16 and "avx512_vnni" in features()


@cache
def multiplies_tiles() -> bool:
    """Return whether an instruction adds products of tiles of bfloat16 (AMX), and Linux lets this process use tile
    registers.

    Linux keeps no memory for their state, which is 8 KB a thread, before a process requests permission. """
    if not {"amx_tile", "amx_bf16"} <= features() or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    refused: int = ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data)
    return not refused


def threads() -> int:
    """Return the threads of a parallel kernel, the calling one included: ``NKI_MLIR_NUM_THREADS``, or one a core."""
    text = os.environ.get("NKI_MLIR_NUM_THREADS")
    if text is not None:
        try:
            if 1 <= int(text) <= MOST_THREADS:
                return int(text)
        except ValueError:
            pass
        raise BadThreadCount(text=text, most=MOST_THREADS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_THREADS)


def can_run_workers() -> bool:
    """Return whether the pool's threads can wait: they use Linux's futex."""
    return sys.platform == "linux" and platform.machine() in _WORDS


def spelled(text: str) -> str:
    """Return the pool's code with the number of the futex system call and the pause instruction of this host."""
    futex, pause = _WORDS.get(platform.machine(), ("0", ""))
    return text.replace("@FUTEX@", futex).replace("@PAUSE@", pause)
