# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The image of a native kernel: all of its parts except addresses, as the cache on disk stores it.

A process that finds an image runs no passes and assembles nothing. The key of an image is a digest of everything that
determines its programs: the captured modules, the launch, and the host with its threads.
"""

import hashlib
import io
import marshal
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nki_mlir import cache_entries
from nki_mlir.bindings import Module, operations_of
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.targets.cpu.pipeline import PIPELINE
from nki_mlir.targets.runtime import host, object_cache
from nki_mlir.targets.runtime.object_file import NotLoadable

PYTHON = "python"           # the target that is called back (host_operations.py), which only this process has
WITHOUT_REFERENCES = 2      # the version of marshal's format in which equal images are equal bytes
SITE_BITS, MOST_EXCESS = 15, 65535      # in a status: the bits of the failed check's number, and the largest excess
MOST_BYTES = cache_entries.MOST_BYTES >> 4

# A target is a function of the machine by name, a constant by number, or a routine by the key of its batch, the number
# of functions in the batch, and its index among them.
Target = str | int | tuple[str, int, int]


class Site(NamedTuple):
    """An operation that can fail, and the values of its error."""

    at: Location | None
    rule: str
    values: tuple[Any, ...] = ()

    def error(self, excess: int, constants: Sequence[np.ndarray]) -> NkiMlirError:
        """Return the error of a check that failed by an excess."""
        return self._error_of(excess, constants).located(self.at)

    def _error_of(self, excess: int, constants: Sequence[np.ndarray]) -> NkiMlirError:
        match self.rule, self.values:
            case "bounds", (tensor, extent, itemsize, upper):
                from nki_mlir.dialects.verifier import OutOfBounds  # start-up: kernels that run have no errors
                by = -(-excess // itemsize)
                low, high = (0, extent - 1 + by) if upper else (-by, extent - 1)
                return OutOfBounds(tensor=tensor or "a buffer", dim="0 (flat)", low=low, high=high, extent=extent)
            case "row", (record, *sizes):
                from nki_mlir.dialects.nisa.indirect import no_row  # start-up: kernels that run have no errors
                row, start = constants[record].view(np.int64).tolist()
                return no_row(row, *sizes).counted_from(start)
        from nki_mlir.targets.interpreter.execute import MaskTooWeak  # start-up: kernels that run have no errors
        return MaskTooWeak(excess=excess)


class ProgramImage(NamedTuple):
    """The program of one module. Its words have 0 or an offset where the address of a target goes."""

    words: bytes
    relocations: bytes                  # pairs: a word, the number of a target
    frame_bytes: int
    memory: int
    cost: float                         # estimated nanoseconds of one run


class KernelImage(NamedTuple):
    programs: tuple[ProgramImage, ...]
    targets: tuple[Target, ...]
    constants: tuple[np.ndarray, ...]
    sites: tuple[Site, ...]
    arrays: int                         # inputs and shared outputs
    parallel: bool                      # whether a program uses the pool
    pairs: tuple[int, ...]              # arrays that must not overlap: a number, bytes, another number, bytes
    unbounded: bool                     # whether a loop runs very often, or as often as data decide
    merged: int                         # programs along the grid's last axis that one program of the image runs


def key_of(modules: Sequence[Module], launch: object) -> str | None:
    """Return the key of an image in the cache; None if there is no cache, or if a module has code of a plugin."""
    foreign = {name for name, cls in REGISTRY.items() if not cls.__module__.startswith("nki_mlir.")}
    if object_cache.folder() is None or (foreign and any(operations_of(m, foreign.__contains__) for m in modules)):
        return None
    digest = hashlib.sha256(repr((launch, host.threads(), host.cache_bytes(), host.chosen_caches(), PIPELINE)).encode())
    for module in modules:
        text = io.BytesIO()
        module.operation.write_bytecode(text)           # with source locations, which errors name
        digest.update(hashlib.sha256(text.getvalue()).digest())
    return object_cache.key_of(digest.digest())


def store(key: str | None, image: KernelImage) -> None:
    """Add an image to the cache, unless it is large, or needs code of this process."""
    if key is None or PYTHON in image.targets or sum(c.nbytes for c in image.constants) > MOST_BYTES:
        return
    sites = tuple((site.at and tuple(site.at), *site[1:]) for site in image.sites)
    plain: Any = (tuple(map(tuple, image.programs)), image.targets, tuple(c.tobytes() for c in image.constants), sites,
             image.arrays, image.parallel, image.pairs, image.unbounded, image.merged)
    object_cache.store(key, marshal.dumps(plain, WITHOUT_REFERENCES))


def find(key: str | None) -> KernelImage:
    """Return the image of a key; raise ``NotLoadable`` if the cache has none."""
    content = object_cache.find(key) if key is not None else None
    if content is None:
        raise NotLoadable("the cache has no image")
    try:
        programs, targets, constants, sites, *fields = marshal.loads(content)
        return KernelImage(
            tuple(ProgramImage(*program) for program in programs), targets,
            tuple(np.frombuffer(c, np.uint8).copy() for c in constants),
            tuple(Site(at and Location(*at), *values) for at, *values in sites), *fields)
    except (EOFError, ValueError, TypeError) as error:
        raise NotLoadable(str(error)) from None
