# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.compiler`` (``ncc``): buffers and compiler directives.

Directives are stored on the kernel; they do not change values.
"""

from collections.abc import Callable
from contextlib import nullcontext
from inspect import signature
from typing import Any, TypeVar

from nki_mlir.capture.builder import active
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.language import creation
from nki_mlir.language.beta.calls import of_class
from nki_mlir.language.creation import MemoryRegion, integer
from nki_mlir.language.direct_allocation import Allocation, psum_modulo, sbuf_modulo
from nki_mlir.language.kernel import unwrap
from nki_mlir.language.launching import directive

R = TypeVar("R")


class sbuf:
    """Allocation in SBUF: by the compiler, by a function, or in turn on a number of slots.

    Example:
        @nki.jit
        def copied(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            first = nl.ndarray(x.shape, dtype=x.dtype, buffer=sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, 1024)))
            second = nl.ndarray(x.shape, dtype=x.dtype, buffer=sbuf.mod_alloc(base_addr=2048))
            first[...] = nl.load(x)
            second[...] = nl.copy(first)
            nl.store(out, second)
            return out
        assert np.array_equal(copied(np.ones((4, 8), np.float32)), np.ones((4, 8)))
    """

    @staticmethod
    def auto_alloc() -> MemoryRegion:
        """Let the compiler choose the address: the same as ``nl.sbuf``."""
        return creation.sbuf

    @staticmethod
    @of_class
    def alloc(func: Callable[..., tuple[int, int]]) -> Allocation:
        """Return an allocator whose ``func(idx, pdim_size, fdim_size)`` gives (start partition, byte) for
        each block."""
        return Allocation(SBUF, with_named_sizes(func, "sbuf"))

    @staticmethod
    @of_class
    def mod_alloc(*, base_addr: int, base_partition: int = 0, num_par_tiles: tuple[int, ...] = (),
                  num_free_tiles: tuple[int, ...] = ()) -> Allocation:
        """Return an allocator that assigns blocks in turn to ``num_par_tiles`` x ``num_free_tiles`` slots."""
        return sbuf_modulo(base_addr, base_partition, num_par_tiles, num_free_tiles)


class AllocatorParameters(KernelError, TypeError):
    """A function that cannot take the arguments of an allocator."""

    code = "NKI-PARAMETER"
    message = "{memory}.alloc calls its function with idx=, pdim_size= and fdim_size=: {text}"
    fix = "give the function these parameters: lambda idx, pdim_size, fdim_size: ..."


def with_named_sizes(func: Callable[..., R], memory: str) -> Callable[..., R]:
    """Return a function for an allocator, after a check that it takes the allocator's arguments."""
    try:
        signature(func).bind(idx=(), pdim_size=1, fdim_size=1)
    except TypeError as error:
        raise AllocatorParameters(memory=memory, text=error).here() from None
    except ValueError:                      # a function of C has no signature
        pass
    return func


class psum:
    """Allocation in PSUM: by the compiler, by a function, or in turn on a number of banks.

    Example:
        @nki.jit
        def summed(x):
            out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, 0)))
            result = nl.ndarray((8, 8), dtype=nl.float32, buffer=psum.mod_alloc(base_bank=2))
            held = nl.ndarray((8, 8), dtype=nl.float32, buffer=sbuf.mod_alloc(base_addr=1024))
            tile[...] = nl.load(x)
            result[...] = nisa.nc_matmul(tile, tile)
            held[...] = nl.copy(result)
            nl.store(out, held)
            return out
        assert np.array_equal(summed(np.ones((4, 8), np.float32)), np.full((8, 8), 4.0))
    """

    @staticmethod
    def auto_alloc() -> MemoryRegion:
        """Let the compiler choose the bank: the same as ``nl.psum``."""
        return creation.psum

    @staticmethod
    @of_class
    def alloc(func: Callable[..., Any]) -> Allocation:
        """Return an allocator whose ``func(idx, pdim_size, fdim_size)`` gives (bank, start partition, byte) for each
        block."""
        return Allocation(PSUM, with_named_sizes(func, "psum"))

    @staticmethod
    @of_class
    def mod_alloc(*, base_bank: int, base_addr: int = 0, base_partition: int = 0, num_bank_tiles: tuple[int, ...] = (),
                  num_par_tiles: tuple[int, ...] = (), num_free_tiles: tuple[int, ...] = ()) -> Allocation:
        """Return an allocator that assigns blocks in turn to ``num_bank_tiles`` banks."""
        return psum_modulo(base_bank, base_addr, base_partition, num_bank_tiles, num_par_tiles, num_free_tiles)


class multi_buffer:
    """A directive of ``sequential_range``: rotate the tensors of the loop's body through ``factor`` buffers.
    It does not change values.

    Arguments:
        factor: how many buffers

    Errors:
        A factor that is not a positive integer is an error.

    Example:
        @nki.jit
        def doubled(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            for i in nl.sequential_range(2, directives=multi_buffer(2)):
                nl.store(out[2 * i:2 * i + 2, :], nl.load(x[2 * i:2 * i + 2, :]) * 2)
            return out
        assert np.array_equal(doubled(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __init__(self, factor: int = 2) -> None:
        self.factor = integer(factor, "the factor of multi_buffer", 1)


class no_reorder:
    """A directive of a loop, or a ``with`` block: instructions inside of it start in program order.

    Example:
        @nki.jit
        def doubled(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            with no_reorder():
                nl.store(out, nl.load(x) * 2)
            return out
        assert np.array_equal(doubled(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __enter__(self) -> None:
        properties = active("no_reorder").properties
        properties["no_reorder"] = properties.get("no_reorder", 0) + 1

    def __exit__(self, *failure: object) -> None:
        active("no_reorder").properties["no_reorder"] -= 1


class allocation_scope(nullcontext[None]):
    """A scope of allocations. It has no effect.

    Example:
        with allocation_scope():
            pass
    """


skip_middle_end_transformations = directive("skip_middle_end_transformations", unwrap)
enable_stack_allocator = directive("enable_stack_allocator", unwrap)
force_auto_alloc = directive("force_auto_alloc", unwrap)

__all__ = ["allocation_scope", "enable_stack_allocator", "force_auto_alloc", "multi_buffer", "no_reorder", "psum",
           "sbuf", "skip_middle_end_transformations"]
