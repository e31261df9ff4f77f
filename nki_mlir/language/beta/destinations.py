# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls in the current generation's forms in kernels of this one: the result goes to a destination that is given."""

from typing import Any

from nki_mlir.frontend.index import Index
from nki_mlir.language import assignment
from nki_mlir.language.beta.calls import BadCall
from nki_mlir.language.signatures.binding import Function


def call(function: Function, arguments: dict[str, Any]) -> object:
    """``dst`` = what the function of that name gives for the other arguments."""
    given, dst = dict(arguments), arguments.get("dst")
    given.pop("name", None)
    if dst is not None and "dst" not in function.parameters:
        del given["dst"]
    else:
        dst = None
    if function.title in OTHERWISE:
        given = OTHERWISE[function.title](dst, given)
    made = function.call_own(given)
    if dst is None:
        return made
    assignment.assign(dst, made)
    return None


def filled(dst: Any, given: dict[str, object]) -> dict[str, object]:
    """``memset``: a tile like the destination."""
    return {"shape": dst.shape, "dtype": dst.dtype, **given}


def pattern(dst: Any, given: dict[str, Any]) -> Index:
    """offset + p * channel_multiplier + the sum of step * i, over the shape of the destination."""
    pairs = given.pop("pattern")
    counts = [dst.shape[0], *(count for _, count in pairs)]
    axes = (given.pop("channel_multiplier", 0), *(step for step, _ in pairs))
    return Index.of(given.pop("offset", 0)).with_axes(tuple(axes), tuple(counts))


def counted(dst: Any, given: dict[str, object]) -> dict[str, object]:
    """``iota``: its expression."""
    return {"expr": pattern(dst, given), "dtype": dst.dtype, **given}


def selected(dst: object, given: dict[str, object]) -> dict[str, object]:
    """``affine_select``: its condition."""
    form, compare = pattern(dst, given), getattr(given.pop("cmp_op", None), "nki_token", "equal")
    return {"pred": {"equal": form == 0, "greater": form > 0, "greater_equal": form >= 0, "less": form < 0,
                     "less_equal": form <= 0}[compare], **given}


def added(dst: object, given: dict[str, object]) -> dict[str, object]:
    """``nc_matmul``: whether it adds to the destination has to be said, for loops are not unrolled here."""
    if given.pop("accumulate", None) is not False:
        raise BadCall(what="nc_matmul() with dst overwrites it here, for which it has accumulate=False; "
                           "write dst += nc_matmul(stationary, moving) for a sum", form="nc_matmul(stationary, moving)"
                      ).here()
    return given


OTHERWISE = {"memset": filled, "iota": counted, "affine_select": selected, "nc_matmul": added}
