# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings of the current generation: one class for what an instruction does not allow."""

import operator
import os
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import unknown
from nki_mlir.capture.locations import user_location
from nki_mlir.diagnostics import KernelError, Location, NkiMlirError, warn_once
from nki_mlir.language.signatures.kinds import is_shape


class Advised(NkiMlirError):
    """An error whose advice is given where it is raised, and its code where a rule of both generations broke."""

    why = "{why}"
    fix = "{fix}"

    def __init__(self, text: str, why: str = "", fix: str = "", code: str = "") -> None:
        super().__init__(text, why=why, fix=fix)
        if code:
            self.code = code                    # type: ignore[misc]


class NkiValidationError(Advised, AssertionError):
    """An operand or parameter that the hardware or the language does not allow."""

    code = "NKI-VALIDATION"


class NkiIndexError(NkiValidationError, IndexError):
    """A subscript or view that leaves its tensor."""

    code = "err_tensor_access_out_of_bound"


class NkiTypeError(Advised, TypeError):
    """A value of a kind that the language does not take there."""

    code = "NKI-TYPE"


class NkiWarning(UserWarning):
    """Something that works here but not everywhere, or not in the same way."""


def invalid(text: str, why: str = "", fix: str = "", code: str = "") -> NoReturn:
    raise NkiValidationError(text, why, fix, code).here()


def out_of_range(text: str, fix: str = "", code: str = "") -> NoReturn:
    raise NkiIndexError(text, fix=fix, code=code).here()


def require(holds: object, text: str, why: str = "", fix: str = "", code: str = "") -> None:
    """A rule of this generation; one that the other generation has as well has its code."""
    if not holds:
        invalid(text, why, fix, code)


def core_rule(holds: object, error: type[KernelError], **values: object) -> None:
    """A rule of both generations where no operation states it: the error is the core's, with its code and fix."""
    if not holds:
        raise of_core(error(**values))


def device(holds: object, text: str, fix: str = "", code: str = "") -> None:
    """A rule of the device: what becomes of a kernel that breaks it is ``NKI_MLIR_DEVICE_RULES``'s to say."""
    if not holds:
        active().report(NkiValidationError(text, fix=fix, code=code), contested=False)


def integer(value: Any, what: str, code: str = "NKI-INTEGER") -> int:
    """An integer: Python's rule for lengths and indices, which a quotient of ``/`` breaks."""
    try:
        return operator.index(value)
    except NkiMlirError:
        raise
    except TypeError:
        fix = "divide with //, or round with math.ceil or math.floor" if isinstance(value, float) else "give an integer"
        raise NkiTypeError(f"{what}: expecting 'integer', got {value!r}", fix=fix, code=code).here() from None


def integers(value: Any, what: str, fix: str = "give a tuple of integers") -> None:
    """Lengths, ranks or channels are a tuple or a list of integers."""
    require(is_shape(value), f"{what}: expecting 'sequence' of integers, got {value!r}", fix=fix)


def one_of(value: object, choices: Sequence[int], what: str) -> None:
    """A number is one of a few."""
    numbers = [str(n) for n in choices]
    require(value in choices, f"{what} {value} is {'none of' if numbers[1:] else 'not'} {', '.join(numbers)}",
            fix=f"use {' or '.join(filter(None, (', '.join(numbers[:-1]), numbers[-1])))}")


def aligned_byte(byte: int, step: int, text: str) -> None:
    """An address is a multiple of the size of what begins there."""
    require(byte >= 0 and byte % step == 0, text, fix=f"use a multiple of {step}")


def dimension(dim: int, least: int, limit: int, rank: int, what: str = "dimension") -> None:
    """The number of a dimension is from ``least`` to below ``limit``."""
    require(least <= dim < limit, f"{what} {dim} of a tensor of {rank} dimensions", fix=f"use 0 to {rank - 1}")


def pair(value: Any, what: str) -> tuple[int, int]:
    """Two integers."""
    require(isinstance(value, (tuple, list)) and len(value) == 2, f"{what}: expecting 'pair', got {value!r}",
            fix="give two integers")
    first, second = (integer(n, what) for n in value)
    return first, second


def pairs(pattern: object, what: str) -> list[tuple[int, int]]:
    """The (step, count) pairs of a pattern, outermost first."""
    items = pattern if isinstance(pattern, (list, tuple)) else ()
    require(items and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in items),
            f"{what}: a pattern is a list of [step, count] pairs, got {pattern}",
            fix="write for example [[64, 128], [1, 64]]")
    return [(integer(step, f"{what} pattern"), integer(count, f"{what} pattern")) for step, count in items]


def of_core(error: KernelError) -> NkiValidationError:
    """An error of the core as one of this generation, with the code that the other generation has for it."""
    kind = NkiIndexError if isinstance(error, IndexError) else NkiValidationError
    return kind(error.headline, *error.advice, error.code).located(error.at or user_location())     # type: ignore[return-value]


INSTEAD = {             # names of the beta generation
    "loop_reduce": "keep a tile beside the loop and write it with nisa.tensor_tensor",
    "par_dim": "dimension 0 is the partition; leave it out",
    "static_cast": "copy to a tile of that dtype: nl.copy(x, dtype=...)",
    "atomic_rmw": "use nisa.dma_compute with .ap(vector_offset=...)",
    "all_reduce": "use all_reduce of nki.collectives",
    # methods of arrays
    "T": "use nl.transpose(t) or nisa.nc_transpose; in HBM, t.permute((1, 0))",
}


def unknown_name(owner: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error of a name that a module or tensor does not have, with the one that was meant."""
    return unknown(owner, name, names, INSTEAD)


def older(text: str, at: Location | None = None) -> None:
    """A warning of a form that the newest release does not have, where ``NKI_MLIR_STRICT`` asks for it."""
    if os.environ.get("NKI_MLIR_STRICT"):
        warn(text, at)


def warn(text: str, at: Location | None = None) -> None:
    """A warning at the kernel's line; the same one is shown once a line."""
    warn_once(text, NkiWarning, at or user_location())
