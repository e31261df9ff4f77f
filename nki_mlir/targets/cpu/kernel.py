# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A captured kernel as native code: one C function that runs all programs of its grid."""

import ctypes
from collections import deque
from collections.abc import Sequence
from math import prod
from struct import Struct
from threading import get_ident, main_thread
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.alone import exclusive_property
from nki_mlir.diagnostics import InternalError, NkiMlirError
from nki_mlir.targets import CapturedKernel
from nki_mlir.targets.cpu.image import PYTHON, SITE_BITS, Target, find, key_of, store
from nki_mlir.targets.runtime import host
from nki_mlir.targets.runtime.interruption import INTERRUPTED
from nki_mlir.targets.runtime.jit import find_batch
from nki_mlir.targets.runtime.machine import machine, thunk
from nki_mlir.targets.runtime.object_file import NotLoadable

if TYPE_CHECKING:
    from nki_mlir.targets.cpu.host_operations import HostOperations

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
OVERLAP_FAILED = -1             # the status of a launch whose error Python stores
MOST_FAILURES = 256
WORTH_WATCHING = 5e6            # estimated nanoseconds of work from which on a launch notices Ctrl-C


class OutOfMemory(NkiMlirError, MemoryError):
    code = "NKI-MEMORY"
    message = "there is no memory for the kernel's buffers ({bytes} bytes a program)"
    fix = "run fewer programs at a time (NKI_MLIR_NUM_THREADS), or use smaller tiles"


class NativeKernel:
    """All programs of a kernel. Call it with arrays, or call ``address`` as ``int32_t entry(void** data)``.

    ``data`` are the addresses of the inputs in order, then of the shared outputs in order. The function may be called
    from several threads at once; it is valid as long as this object is. It returns 0 or a status for ``error``.
    """

    def __init__(self, captured: CapturedKernel, grid: tuple[int, ...], may_alias: bool = False) -> None:
        """Compile the kernel, or load it. With ``may_alias``, its code is also correct for inputs that overlap a
        written one, and slower."""
        self.captured, self.grid = captured, grid
        modules = list(dict.fromkeys(v.module for v in captured.variants.values()))
        order = [0] * prod(grid) if len(modules) == 1 else [
            modules.index(captured.variant_for(point).module) for point in np.ndindex(*grid)]
        self.hosts: HostOperations | None = None
        # errors of launches with overlapping inputs
        self.failures: deque[BaseException] = deque(maxlen=MOST_FAILURES)
        key = key_of(modules, (order, grid, may_alias))
        if not self.load(key):                  # the kernel is compiled again, and the entry replaced
            from nki_mlir.targets.cpu.lowering import image_of  # start-up: a kernel from the cache does not need it
            self.image, self.hosts = image_of(modules, len(grid), may_alias)
            self.words = self.linked_programs()
            store(key, self.image)
        programs = self.image.programs
        launched = (*grid[:-1], grid[-1] // self.image.merged) if grid else grid
        order = order[:prod(launched)]
        frame = max(p.frame_bytes for p in programs)     # all programs share it: memory begins after the largest frame
        self.bytes = frame + max(p.memory for p in programs)
        cost = sum(programs[k].cost for k in order)
        self.parallel = (len(order) > 1 and PYTHON not in self.image.targets and cost >= host.WORTH_WAKING
                         and not may_alias)
        self.short = cost < WORTH_WATCHING and not self.image.unbounded
        if not self.short:
            machine().watch_signals()
        if self.parallel or self.image.parallel:
            machine().start_workers()
        self.codes = np.array([self.words[k].ctypes.data for k in order], np.int64)
        codes = self.codes.ctypes.data if len(modules) > 1 else 0
        self.pairs = np.array(self.image.pairs, np.int64)
        self.overlap_entry = ENTRY(self.launch_overlapping) if self.image.pairs else None
        otherwise = ctypes.cast(self.overlap_entry, ctypes.c_void_p).value if self.overlap_entry else 0
        neighbors = neighbors_of(launched, host.threads()) if self.parallel else 0
        self.record = np.array([len(order), neighbors, self.bytes, frame // 8, len(grid), self.image.arrays, codes,
                                self.codes[0], self.pairs.ctypes.data, len(self.pairs) // 4, otherwise,
                                not self.short, *launched], np.int64)       # the words that the machine's launch reads
        self.launch = machine().launch_arrays
        self.where = self.record.ctypes.data
        self.pack = Struct(f"{self.image.arrays}P").pack
        self.entry: int | None = None

    def load(self, key: str | None) -> bool:
        """Load the kernel from the cache; return whether the cache has all of its code."""
        try:
            self.image = find(key)
            self.words = self.linked_programs()
            return True
        except NotLoadable:
            return False

    def linked_programs(self) -> list[np.ndarray]:
        """Return the words of the programs with the addresses of this process; raise ``NotLoadable`` where code is
        missing."""
        addresses = np.array([self.address_of_target(target) for target in self.image.targets], np.int64)
        linked = []
        for program in self.image.programs:
            words = np.frombuffer(program.words, np.int64).copy()
            positions, numbers = np.frombuffer(program.relocations, np.int64).reshape(-1, 2).T
            words[positions] += addresses[numbers]
            linked.append(words)
        return linked

    def address_of_target(self, target: Target) -> int:
        match target:
            case int():
                return self.image.constants[target].ctypes.data
            case str():
                return self.hosts.address if self.hosts and target == PYTHON else machine().function(target)
            case batch, count, number:
                return find_batch(batch, count).addresses[number]

    @property
    def exchanges_data(self) -> bool:
        """Whether its programs exchange data with each other."""
        return self.hosts is not None and self.hosts.exchanges_data

    @property
    def address(self) -> int:
        """Return the address of the C function."""
        if self.entry is None:
            self.entry = thunk(self.where)
        return self.entry

    def __call__(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        if self.is_watched():
            status = machine().launch_watched(self.where, self.data(inputs, shared))
        else:
            status = self.launch(self.where, self.pack(*map(id, inputs), *map(id, shared)))
        if status:
            raise self.error(status)

    def is_watched(self) -> bool:
        """Whether a launch lets Python handle signals."""
        return not self.short and get_ident() == main_thread().ident

    # Programs are compiled for inputs of which none overlaps a written one. Each launch checks this. For other inputs
    # there is a second kernel, compiled when it is first needed.
    @exclusive_property
    def for_overlapping(self) -> "NativeKernel":
        """Compile the kernel for inputs that overlap."""
        return NativeKernel(self.captured, self.grid, may_alias=True)

    def launch_overlapping(self, data: int) -> int:
        """Launch the kernel for inputs that overlap; compiled code calls this."""
        try:
            kernel = self.for_overlapping
            launch = machine().launch_watched if kernel.is_watched() else machine().launch
            if status := launch(kernel.where, data):
                raise kernel.error(status)
            return 0
        except BaseException as error:              # an exception must not end in compiled frames; the caller raises it
            self.failures.append(error)
            return OVERLAP_FAILED

    def data(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> bytes:
        """Return the addresses of the arrays' elements as the C function reads them."""
        return self.pack(*(array.ctypes.data for array in (*inputs, *shared)))

    def on_threads(self, inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
        """Run each program on a separate thread, for kernels whose programs exchange data."""
        data = self.data(inputs, shared)
        if machine().overlap(self.where, data):
            self.for_overlapping.on_threads(inputs, shared)
            return

        def run_program(number: int) -> None:
            status = machine().launch_one(self.where, data, number)
            if status:
                raise self.error(status)
        from nki_mlir.targets.mesh import run_programs  # start-up: few kernels need it
        run_programs(run_program, int(self.record[0]), parallel=True)

    def error(self, status: int) -> BaseException:
        """Return the exception of a status."""
        if status == OVERLAP_FAILED and self.failures:
            return self.failures.pop()
        if status == INTERRUPTED:
            return machine().raised()
        site, excess = status & ((1 << SITE_BITS) - 1), status >> SITE_BITS
        if site == 0:
            return OutOfMemory(bytes=self.bytes)
        if excess:
            return self.image.sites[site - 1].error(excess, self.image.constants)
        failure = self.hosts.failure(site) if self.hosts is not None else None
        return failure or InternalError(f"a kernel returned the unknown status {status}")


def neighbors_of(grid: Sequence[int], threads: int) -> int:
    """Return how many neighboring programs along the last axis a thread runs in a row: at most a quarter of its
    programs.

    Programs that differ along the last axis often read neighboring columns of the same rows, and a core prefetches
    more columns than its program reads. Programs of a grid of one axis read other rows.
    """
    most = prod(grid) // (4 * threads) if len(grid) > 1 else 1
    return max(n for n in range(1, max(most, 1) + 1) if grid[-1] % n == 0)
