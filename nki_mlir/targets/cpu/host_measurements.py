# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measurements of this host, memoized in the cache of compiled code.

Not every processor gains by an instruction that it has: the product of pairs of bfloat16 runs at twice the rate of
multiply-adds on some processors, and at a fraction of that rate on others. Caches of one size differ in bandwidth by a
factor of several. Measurements affect only speed, except for pairs, whose products are added in another order: a
product of bfloat16 may differ in its last bit from host to host.
"""

import ctypes
import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.cpu.code_forms import with_form, with_instructions
from nki_mlir.targets.cpu.contraction import RegisterTile, TileProduct, product_of_panels, tiles
from nki_mlir.targets.cpu.lanes import FITTED
from nki_mlir.targets.cpu.product_blocks import Rates
from nki_mlir.targets.cpu.routines import Routine, compiled
from nki_mlir.targets.cpu.tile_registers import PANEL, TileRegisterProduct
from nki_mlir.targets.runtime import host, object_cache
from nki_mlir.targets.runtime.host import Caches
from nki_mlir.waist.nest import Nest, Operand, Step

if TYPE_CHECKING:
    from nki_mlir.targets.cpu.tabulated import TabulatedFunction

ROUNDS = 20
DEPTH, PANELS = 512, (16, 8)        # sizes of the timed product, whose factors fit the second cache
LINE = 1024                         # least columns of its result: many results have rows of whole pages
CLOSE = 0.97                        # rates above this share of the best rate count as equal
ARGUMENTS = 1 << 13                 # arguments of a timed function: they and its table fit the first cache
SIZES = range(17, 27)               # binary logarithms of the bytes that are read to find the sizes of caches
MOST_READ = 128 << 20              # bytes of the array that measures memory
LEAST_FIRST = 32 << 10              # assumed bytes of the first cache, whose size these loads do not reveal
FALLS = 0.7                         # an array exceeds a cache if the rate of reading falls below this share


def caches() -> Caches:
    """Return the caches that ``NKI_MLIR_CACHES`` lists, else those that the system reports, else those that the rate of
    reading memory reveals."""
    return host.chosen_caches() or host.reported_caches() or Caches(*map(int, memoized("caches")))


def rates() -> Rates:
    """Return the rates at which one thread reads the third cache and memory, and multiplies."""
    return Rates(*memoized("rates"))


def fastest_tiles() -> list[RegisterTile]:
    """List the register tiles of this host, the fastest first. Of tiles that are about equally fast, the first of
    ``tiles`` comes first: its panels take whole vectors to pack."""
    rates_of = dict(zip(tiles(), memoized("tiles")))
    best = max(rates_of.values())
    return sorted(rates_of, key=lambda tile: min(rates_of[tile], CLOSE * best), reverse=True)


def words_of_unit(unit: str) -> float:
    """Return the words per second that "float32", "pairs" or "amx" multiplies and adds; for the last two, a word is two
    bfloat16. The host must have the unit.
    """
    return max(memoized("tiles")) if unit == "float32" else memoized(unit)[0]


def rate_of_unit(unit: str) -> float:
    """Return the multiply-adds of bfloat16 per second."""
    return words_of_unit(unit) * (1 if unit == "float32" else 2)


def gain_of_table(function: "TabulatedFunction") -> float:
    """Return the ratio of a function's time to the time of lookups in its table."""
    return _gain_of_table(function.over(ARGUMENTS), function.lookups(ARGUMENTS), function.alone)


def gain_of_fit(function: "TabulatedFunction") -> float:
    """Return the ratio of a function's time to the time of its polynomials, which it must have."""
    from nki_mlir.targets.cpu.fitted import fit_of, lookups, name_of  # start-up: most kernels have no such function
    fit = fit_of(function.alone)
    assert fit is not None
    return _gain_of_table(function.over(ARGUMENTS), lookups(ARGUMENTS, name_of(function, fit)), function.alone)


def gain_of_halves() -> float:
    """Return the ratio of the times in which code with registers of 64 and of 32 bytes adds arrays in memory."""
    return memoized("halves")[0]


@cache
def _gain_of_table(function: Nest, lookups: Nest, alone: Nest) -> float:
    from nki_mlir.targets.cpu.fitted import fit_of  # start-up: most kernels have no such function
    from nki_mlir.targets.cpu.tabulated import table_of  # start-up
    name = lookups.steps[0].name
    fit = fit_of(alone) if name.startswith(FITTED) else None

    def measure() -> list[float]:
        source, target = (operand.dtype.numpy for operand in function.operands)
        arguments = np.random.default_rng(0).standard_normal(ARGUMENTS, np.float32).astype(source)
        results, table = np.zeros(ARGUMENTS, target), table_of(alone) if fit is None else fit.table
        return [_seconds(function, [arguments, results]) / _seconds(lookups, [arguments, table, results])]
    return measured_once(f"{name} for {function}", measure)[0]


@cache
def memoized(measurement: str) -> list[float]:
    """Return the result of a measurement of this module in an earlier process, or measure and store it."""
    measures: dict[str, Callable[[], Sequence[float]]] = {
        "caches": measured_caches, "rates": _rates, "tiles": _tiles, "pairs": _pairs, "amx": _amx, "halves": _halves}
    return measured_once(measurement, measures[measurement])


def measured_once(measurement: str, measure: Callable[[], Sequence[float]]) -> list[float]:
    """Return the figures of a measurement that the cache on disk keeps for this host, or measure them."""
    key = object_cache.key_of(f"{measurement} of {host.model()}, on written pages".encode())
    content = object_cache.find(key)
    if content is None:
        content = json.dumps([*measure()]).encode()
        object_cache.store(key, content)
    figures: list[float] = json.loads(content)
    return figures


def measured_caches(rate: Callable[[int], float] | None = None) -> Caches:
    """Return the sizes of caches: up to each of them the rate of reading an array is constant, and beyond it is the
    next cache's."""
    ends, best, read = [LEAST_FIRST], 0.0, rate or read_rate
    of_sizes = [(1 << n, read(1 << n)) for n in SIZES]
    for (size, rate_here), (_, next_rate) in pairwise(of_sizes):
        best = max(best, rate_here)
        if next_rate < FALLS * best:
            ends.append(size)
            best = 0.0
    ends += [usual for usual in (1 << 20, host.MOST_CACHE, 4 * host.MOST_CACHE) if usual > ends[-1]]
    return Caches(*ends[:3])


def _rates() -> list[float]:
    sizes = min((caches().second + caches().third) // 2, 4 * caches().second), min(4 * caches().third, MOST_READ)
    return [*map(read_rate, sizes), max(memoized("tiles"))]


def _tiles() -> list[float]:
    return [multiply_adds(tile, False) for tile in tiles()]


def _pairs() -> list[float]:
    return [max(multiply_adds(tile, True) for tile in tiles())]


def _amx() -> list[float]:
    down, across = PANELS
    product = TileRegisterProduct(down, across, DEPTH, across * PANEL, True)
    sizes = down * DEPTH * PANEL, across * DEPTH * PANEL, down * across * PANEL ** 2
    return [down * across * PANEL ** 2 * DEPTH / _seconds(product, [aligned_zeros(size) for size in sizes])]


def _halves() -> list[float]:
    count = min(2 * caches().third, MOST_READ) // (3 * FLOAT32.itemsize)
    nest = Nest((count,), frozenset(), (Operand(FLOAT32, (1,)),) * 2, 0, (Operand(FLOAT32, (1,)),),
                (Step("alu", FLOAT32, (0, 1), "add"),), (3,))
    arrays = [aligned_zeros(count) for _ in range(3)]
    return [_seconds(nest, arrays) / _seconds(with_form(nest, "halves"), arrays)]


def read_rate(size: int) -> float:
    """Return the bytes per second at which an array of ``size`` bytes is read repeatedly."""
    count = size // FLOAT32.itemsize
    nest = Nest((count,), frozenset({0}), (Operand(FLOAT32, (1,)),), 0, (Operand(FLOAT32, (0,)),),
                (Step("alu", FLOAT32, (1, 0), "add"),), (2,))
    return size / _seconds(nest, [aligned_zeros(count), aligned_zeros(1)])


def multiply_adds(tile: RegisterTile, pairs: bool) -> float:
    """Return the multiply-adds per second of a product of panels in these tiles; that of a pair counts once."""
    (down, across), rows, width = PANELS, tile.panel, tile.width
    line = max(across * width, LINE)
    nest = product_of_panels(PANELS, (rows, width), DEPTH, line)
    sizes = down * DEPTH * rows, across * width * DEPTH, down * rows * line
    seconds = _seconds(TileProduct(nest, True, pairs, tile), [aligned_zeros(size) for size in sizes])
    return down * rows * across * width * DEPTH / seconds


def aligned_zeros(count: int) -> np.ndarray:
    """Allocate float32 zeros that start where buffers of programs do: at a multiple of a cache line.

    The function writes them once: otherwise all pages are the system's page of zeros, which stays in the caches.
    """
    zeros = np.full(count + host.LINE // FLOAT32.itemsize, 0, np.float32)
    return zeros[-zeros.ctypes.data % host.LINE // FLOAT32.itemsize:][:count]


def _seconds(routine: Routine, arrays: Sequence[np.ndarray]) -> float:
    """Return the least time of several calls of a routine."""
    words = (ctypes.c_int64 * len(arrays))(*(array.ctypes.data for array in arrays))
    routine = with_instructions(routine) if isinstance(routine, Nest) else routine
    batch, number = compiled([routine])[routine]
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(batch.addresses[number])
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        function(ctypes.addressof(words))
        times.append(time.perf_counter() - started)
    return min(times)
