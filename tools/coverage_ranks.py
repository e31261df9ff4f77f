# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiny kernels of several ranks, and of the simulator's entry points, for ``docs/coverage.md``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from coverage_current import ISA, LANGUAGE, NKI, RNG, A, Sample, copied, output

from nki_mlir.language.current import collectives, nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.simulator import simulate_ranks
from tests.language_current import test_names as surface


@dataclass(frozen=True)
class OfRanks(Sample):
    """A kernel that runs once for each array, each time as another rank."""

    def kernel(self) -> Any:
        return self

    def run(self, arguments: tuple, keywords: dict, on: str) -> Any:
        return simulate_ranks(nki.jit(self.body), [(a,) for a in arguments], executor=on)

    def bind(self, arguments: tuple, *rest: Any) -> Any:
        return nki.jit(self.body).bind(arguments[:1], *rest)

    def specialize(self, bound: Any) -> Any:
        return nki.jit(self.body).specialize(bound)


@dataclass(frozen=True)
class Simulated(Sample):
    """A kernel that an entry point of the simulator runs: ``launch(kernel, arrays)``."""

    launch: Callable = nki.simulate

    def kernel(self) -> Any:
        return self

    def run(self, arguments: tuple, keywords: dict, on: str) -> Any:
        return self.launch(nki.jit(self.body))(*arguments)


PARTS = tuple(RNG.integers(0, 9, (4, 8, 8)).astype(np.float32))
GROUP = collectives.ReplicaGroup([[0, 1, 2, 3]])


def exchange(body: Callable, shape: Any = (8, 8)) -> OfRanks:
    """Return a kernel of ranks that runs ``body(src, dst)``."""
    def kernel(x):
        src = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
        dst, out = nl.zeros(shape, x.dtype, buffer=nl.private_hbm), output(shape)
        nisa.dma_copy(src, x)
        body(src, dst)
        nisa.dma_copy(out, dst)
        return out
    return OfRanks(kernel, PARTS)


def varying(name: str) -> OfRanks:
    def body(src, dst):
        counts = np.stack([np.full(4, 4), np.arange(4) * 4, np.zeros(4)]).astype(np.uint32)
        table = nl.ndarray((3, 4), nl.uint32, buffer=nl.private_hbm)
        nisa.dma_copy(table, nl.load(nl.shared_constant(counts)))
        getattr(collectives, name)([src.reshape((64,))], [dst], GROUP, table)
    return exchange(body, (64,))


def ring_place(src: Any, dst: Any) -> None:
    step = collectives.collective_permute_implicit_current_processing_rank_id(1, GROUP)
    tile = nl.zeros((1, 2), nl.int32)
    nisa.register_store(tile[:, 0:1], step)
    nisa.register_store(tile[:, 1:2], collectives.rank_id())
    nisa.dma_copy(dst[0:1, 0:2], tile)


nc = collectives
COLLECTIVES: dict[str, Sample] = {
    "ReplicaGroup": exchange(lambda s, d: nc.all_reduce([s], [d], nc.ReplicaGroup([[0, 1], [2, 3]]), nl.add)),
    "all_reduce": exchange(lambda s, d: nc.all_reduce([s], [d], GROUP, nl.add)),
    "all_gather": exchange(lambda s, d: nc.all_gather([s], [d], GROUP, 0), (32, 8)),
    "all_gather_v": varying("all_gather_v"), "all_to_all_v": varying("all_to_all_v"),
    "reduce_scatter": exchange(lambda s, d: nc.reduce_scatter([s], [d], GROUP, 0, nl.add), (2, 8)),
    "all_to_all": exchange(lambda s, d: nc.all_to_all([s], [d], GROUP, 0)),
    "collective_permute": exchange(lambda s, d: nc.collective_permute([s], [d], [(0, 2), (2, 1)])),
    "collective_permute_implicit": exchange(lambda s, d: nc.collective_permute_implicit([s], [d], GROUP)),
    "collective_permute_implicit_reduce": exchange(lambda s, d: nc.collective_permute_implicit_reduce(
        [s], [s], [d], GROUP, nl.add)),
    "collective_permute_implicit_current_processing_rank_id": exchange(ring_place), "rank_id": exchange(ring_place),
}

ENTRIES = {
    **{n: Simulated(copied, (A,), simulated="it is the simulator", launch=getattr(nki, n))
       for n in ("simulate", "cpu_simulate")},
}
NAMES = {"nki": dict.fromkeys([*NKI, *ENTRIES]),
         "language": dict.fromkeys([*surface.LANGUAGE, *surface.OTHER_LANGUAGE.split()]),
         "isa": dict.fromkeys([*surface.ISA, *surface.OTHER_ISA.split()]),
         "collectives": dict.fromkeys(["ReplicaGroup", *surface.COLLECTIVES])}
MODULES = {"nki": NKI | ENTRIES, "language": LANGUAGE, "isa": ISA, "collectives": COLLECTIVES}
