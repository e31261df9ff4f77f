# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings of the current generation, and the checks of arguments that raise them."""

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np

from nki_mlir.capture.builder import active, current
from nki_mlir.capture.errors import ZERO_STEP_FIX, unknown
from nki_mlir.capture.locations import user_location
from nki_mlir.diagnostics import KernelError, Location, NkiMlirError, warn_once
from nki_mlir.dialects.verifier import ONE_WIDTH, ShapeMismatch
from nki_mlir.language import older_forms
from nki_mlir.language.creation import fix_of_integer
from nki_mlir.language.framework_tensors import is_framework_tensor
from nki_mlir.language.signatures.kinds import is_shape
from nki_mlir.scalar.dtypes import NUMBER_CLASSES


class Advised(NkiMlirError):
    """An error that gets its advice where it is raised, and its code too if the rule is one of both generations."""

    why = "{why}"
    fix = "{fix}"

    def __init__(self, text: str, why: str = "", fix: str = "", code: str = "") -> None:
        super().__init__(text, why=why, fix=fix)
        if code:
            self.code = code                    # type: ignore[misc]


class NkiValidationError(Advised, AssertionError):
    """An operand or argument that the hardware or the language does not allow."""

    code = "NKI-VALIDATION"


class NkiIndexError(NkiValidationError, IndexError):
    """A subscript or view that reaches outside its tensor."""

    code = "err_tensor_access_out_of_bound"


class NkiTypeError(Advised, TypeError):
    """A value of a type that the parameter or operation does not accept."""

    code = "NKI-TYPE"


class NkiWarning(UserWarning):
    """Something that works here but not everywhere, or not in the same way."""


class OlderNkiForm(NkiWarning, older_forms.OlderFormWarning):
    """A form that the newest release does not have."""


def invalid(text: str, why: str = "", fix: str = "", code: str = "") -> NoReturn:
    raise NkiValidationError(text, why, fix, code).here()


def out_of_range(text: str, fix: str = "", code: str = "") -> NoReturn:
    raise NkiIndexError(text, fix=fix, code=code).here()


def require(holds: object, text: str, why: str = "", fix: str = "", code: str = "") -> None:
    """Raise ``NkiValidationError`` unless ``holds``. ``code`` is that of the beta generation's error if both have the
    rule."""
    if not holds:
        invalid(text, why, fix, code)


def core_rule(holds: object, error: type[KernelError], **values: object) -> None:
    """Raise the core's error, converted, unless ``holds``: for rules of both generations that no operation verifies."""
    if not holds:
        raise of_core(error(**values))


def device(holds: object, text: str, fix: str = "", code: str = "") -> None:
    """Report a broken rule of the device unless ``holds``: ``NKI_MLIR_DEVICE_RULES`` decides whether this warns or
    raises."""
    if not holds:
        active().report(NkiValidationError(text, fix=fix, code=code), uncertain=False)


def integer(value: Any, subject: str, code: str = "NKI-INTEGER") -> int:
    """Return ``value`` as an integer by Python's rule for indices, which rejects floats such as a quotient of ``/``."""
    try:
        return operator.index(value)
    except NkiMlirError:
        raise
    except TypeError:
        fix = "divide with //, or round with math.ceil or math.floor" if isinstance(value, float) else (
            fix_of_integer(value) or "give an integer")
        raise NkiTypeError(f"{subject}: expecting 'integer', got {value!r}", fix=fix, code=code).here() from None


def integers(value: Any, subject: str, fix: str = "give a tuple of integers") -> None:
    """Check that ``value`` is a tuple or a list of integers."""
    require(is_shape(value), f"{subject}: expecting 'sequence' of integers, got {value!r}", fix=fix)


def one_of(value: object, choices: Sequence[int], subject: str) -> None:
    """Check that ``value`` is one of ``choices``."""
    numbers = [str(n) for n in choices]
    require(value in choices, f"{subject} {value} is {'none of' if numbers[1:] else 'not'} {', '.join(numbers)}",
            fix=f"use {' or '.join(filter(None, (', '.join(numbers[:-1]), numbers[-1])))}")


def aligned_byte(byte: int, step: int, text: str) -> None:
    """Check that a byte address is a multiple of ``step``."""
    require(byte >= 0 and byte % step == 0, text, fix=f"use a multiple of {step}")


def dimension(dim: int, least: int, limit: int, rank: int, subject: str = "dimension") -> None:
    """Check that a dimension is at least ``least`` and less than ``limit``."""
    require(least <= dim < limit, f"{subject} {dim} of a tensor of {rank} dimensions", fix=f"use 0 to {rank - 1}")


def pair(value: Any, subject: str) -> tuple[int, int]:
    """Return ``value`` as a pair of integers, or raise an error."""
    require(isinstance(value, (tuple, list)) and len(value) == 2, f"{subject}: expecting 'pair', got {value!r}",
            fix="give two integers")
    first, second = (integer(n, subject) for n in value)
    return first, second


def pairs(pattern: object, subject: str) -> list[tuple[int, int]]:
    """Return an access pattern as (step, count) pairs, outermost first, or raise an error."""
    items = pattern if isinstance(pattern, (list, tuple)) else ()
    require(items and all(isinstance(p, (list, tuple)) and len(p) == 2 for p in items),
            f"{subject}: a pattern must be a list of [step, count] pairs, got {pattern}",
            fix="write for example [[64, 128], [1, 64]]")
    return [(integer(step, f"{subject} pattern"), integer(count, f"{subject} pattern")) for step, count in items]


def of_core(error: KernelError) -> NkiValidationError:
    """Convert an error of the core to ``NkiValidationError`` or ``NkiIndexError``, with the same code."""
    kind = NkiIndexError if isinstance(error, IndexError) else NkiValidationError
    return kind(error.headline, *error.advice, error.code).located(error.at or user_location())     # type: ignore[return-value]


INSTEAD = {             # names of the beta generation -> what to use in this one
    "loop_reduce": "keep a tile beside the loop and write it with nisa.tensor_tensor",
    "par_dim": "dimension 0 is the partition; leave it out",
    "static_cast": "copy to a tile of that dtype: nl.copy(x, dtype=...)",
    "atomic_rmw": "use nisa.dma_compute with .ap(vector_offset=...)",
    "all_reduce": "use all_reduce of nki.collectives",
}


def not_a_tensor(value: object, subject: str) -> NoReturn:
    """Raise the error of an operand that is not a tensor. A class may say what to pass instead of its values."""
    create = "create one with nl.ndarray(shape, dtype, buffer=nl.sbuf), or load it with nisa.dma_copy"
    if isinstance(value, NUMBER_CLASSES) and "dst" not in subject:
        create = f"fill a tile with the number, nisa.memset(tile, {value!r}), and pass the tile"
    if isinstance(value, np.ndarray) or is_framework_tensor(value):
        create = "pass the array to the kernel as an argument"
    elif hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, NUMBER_CLASSES):
        create = "pass a dense array with values to the kernel; kernel.lower takes arrays without values"
    if value is None:
        create += "; where a tensor is optional, test it with `is None` first"
    invalid(f"{subject}: expecting 'tensor', got '{type(value).__name__}'", fix=getattr(value, "pass_instead", create))


def unknown_name(owner: str, name: str, names: Iterable[str], functions: Iterable[str] = ()) -> AttributeError:
    """Return the error for a name that a module or tensor does not have, with what to use instead."""
    return unknown(owner, name, names, INSTEAD, functions)


def older(text: str, at: Location | None = None) -> None:
    """Warn that the newest release does not have a form that the kernel uses, where older forms are reported."""
    if older_forms.are_reported():
        warn(text, at, OlderNkiForm)


def warn(text: str, at: Location | None = None, category: type[NkiWarning] = NkiWarning) -> None:
    """Warn at the kernel's source line. The same warning is shown once per line."""
    builder = current.get()
    if builder is not None and builder.recorder is not None:
        if at is None:
            builder.recorder.warned(text)
        else:
            builder.recorder.repeatable = False
    warn_once(text, category, at or user_location())


def step_fix(step: int) -> str:
    """Return the fix for a slice whose step is not positive."""
    if step == 0:
        return ZERO_STEP_FIX
    return "go backwards with a pattern: tile.ap([[row, partitions], [-1, count]], offset=count - 1)"


def unequal_sizes(operand: str, shape: Sequence[int], on_chip: bool, first: str, first_shape: Sequence[int]
                  ) -> NkiMlirError:
    """Return the error for an operand whose number of elements differs from that of the first operand."""
    if not on_chip:
        return of_core(ShapeMismatch(what=f"{operand} has shape {[*shape]} in HBM, {first} has shape {[*first_shape]}",
                                     fix="copy it to a tile in SBUF first, with nisa.dma_copy"))
    return of_core(ShapeMismatch(what=f"{operand} has {prod(shape[1:])} elements per partition, {first} has "
                                      f"{prod(first_shape[1:])}", fix=ONE_WIDTH))
