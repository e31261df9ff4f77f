# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wrapper of every beta function: it binds calls in any release's form and converts their arguments."""

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from nki_mlir.capture.builder import active
from nki_mlir.capture.errors import unknown
from nki_mlir.capture.index import Index
from nki_mlir.capture.locations import user_location
from nki_mlir.capture.mask import Mask
from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError, NkiMlirError, warn_once
from nki_mlir.language import assignment
from nki_mlir.language.creation import MakesTensors, located_dtype, plain_shape
from nki_mlir.language.framework_tensors import HostArray, is_framework_tensor
from nki_mlir.language.older_forms import OlderFormWarning
from nki_mlir.language.signatures import kinds
from nki_mlir.language.signatures.binding import Function, Generation, R, bound
from nki_mlir.language.signatures.kinds import ParameterKind
from nki_mlir.language.signatures.parameter_names import call_of, form_of
from nki_mlir.language.signatures.table import names_in
from nki_mlir.scalar.dtypes import FLOAT32


class BadParameter(KernelError, TypeError):
    code = "NKI-PARAMETER"
    message = "{function}: {parameter} is {found}; it takes {what}"
    fix = "call it as {form}"


class ConvertedTile(KernelError, TypeError):
    code = "NKI-PARAMETER"
    message = "{function} takes an array of numbers, got a tile of shape {shape}"
    fix = "convert a tile with nl.copy(tile, dtype=nl.bfloat16), or another dtype"


class BadCall(BadParameter):
    message = "{what}"


class Beta(Generation):
    """The binding of calls for the package ``neuronxcc.nki``."""

    def word(self, kind: ParameterKind) -> str:
        return kind.description

    def refuse(self, function: Function, parameter: str, kind: ParameterKind, value: object) -> None:
        if not kind.description:
            return
        if kind.is_tile:
            active(function.imported_name)          # outside of kernels there are no tiles: that is the error
            if isinstance(value, np.ndarray) or is_framework_tensor(value):
                raise HostArray.of(value).here()
        if kind is kinds.DTYPE and kinds.names_dtype(value):
            located_dtype(value)
        if kind in (kinds.SHAPE, kinds.TILE_SHAPE):
            plain_shape(value)
        if kind is kinds.ARRAY and isinstance(value, View):
            raise ConvertedTile(function=function.title, shape=value.shape).here()
        error = BadParameter(function=function.title, parameter=parameter, found=shown(value), what=kind.description,
                             form=form_of(function.title, function.__signature__),
                             fix=getattr(type(value), "pass_instead", ""))
        raise error.here()

    def unbound(self, function: Function, text: str) -> NkiMlirError:
        return BadCall(what=text, form=call_of(function.title, function.__signature__)).here()

    def cross(self, function: Function, arguments: dict[str, Any]) -> object:
        """Make a call in a form of the current generation: assign the result to ``dst``, or return it if the call has
        no ``dst``. ``function`` is the function of that name in this generation."""
        remaining, dst = dict(arguments), arguments.get("dst")
        remaining.pop("name", None)
        if dst is not None and "dst" not in function.parameters:
            del remaining["dst"]
        else:
            dst = None
        if function.title in LOOPS:
            return function.function(*bounds_of(**arguments))
        if function.title in OTHERWISE:
            remaining = OTHERWISE[function.title](dst, remaining)
        result = function.call_by_keyword(remaining)
        if dst is None:
            return result
        assignment.assign(dst, result)
        return None

    def report(self, text: str) -> None:
        warn_once(text, OlderFormWarning, user_location())


BETA = Beta("beta", {"np": np, "bool": bool, "float32": FLOAT32.numpy})
BETA.values.tiles = (View,)


def shown(value: object) -> str:
    """Return the text of a rejected value, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, View):
        return f"a tile of shape {value.shape}"
    if isinstance(value, Mask):
        return value.described
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) < 60 else f"of type {type(value).__name__}"


# Names that public code uses and no page describes, with what to use instead.
INVENTED = {"builtin_custom_op": "write what it computes with instructions of nisa: it calls a function that the "
            "vendor's tools compiled for the GpSimd cores, of releases 2.20 to 2.26",
            "outer_product": "nl.multiply broadcasts a [P, 1] tile and a [1, F] one", "compile": "decorate the kernel "
            "with nki.jit and call it", "kernel": "decorate the kernel with nki.jit"}


def missing_from(owner: str, names: dict[str, object]) -> Callable[[str], NoReturn]:
    """Return the ``__getattr__`` of a module, which raises the error of an unknown name with a suggestion."""
    def missing(name: str) -> NoReturn:
        listed: Any = names.get("__dir__", lambda: list(names))
        raise unknown(owner, name, listed(), INVENTED)
    return missing


def of_class(function: Callable[..., R]) -> Callable[..., R]:
    """Decorate a function in a class of ``nki.compiler``, so that it is callable in every release's form."""
    return bound(function, f"nki.compiler.{function.__qualname__}", BETA)


def bind_module(names: dict[str, object], module: str) -> None:
    """Make the functions that a module has, and that any release had, callable in every release's form."""
    released = {*names_in(module)}
    for name, value in names.items():
        if name in released and inspect.isfunction(value):
            names[name] = bound(value, f"{module}.{name}", BETA)
        elif isinstance(value, MakesTensors):
            value.copy_documentation(bound(value.function, f"{module}.{name}", BETA))


# -- calls in the current generation's forms ---------------------------------------------------------------------------
def filled(dst: Any, arguments: dict[str, object]) -> dict[str, object]:
    """Return the arguments of ``memset``, with the shape and the dtype of the destination."""
    return {"shape": dst.shape, "dtype": dst.dtype, **arguments}


def pattern(dst: Any, arguments: dict[str, Any]) -> Index:
    """Return offset + p * channel_multiplier + the sum of step * i, over the shape of the destination."""
    pairs = arguments.pop("pattern")
    counts = [dst.shape[0], *(count for _, count in pairs)]
    axes = (arguments.pop("channel_multiplier", 0), *(step for step, _ in pairs))
    return Index.of(arguments.pop("offset", 0)).with_axes(tuple(axes), tuple(counts))


def counted(dst: Any, arguments: dict[str, object]) -> dict[str, object]:
    """Return the arguments of ``iota``, with an index expression in place of the pattern."""
    return {"expr": pattern(dst, arguments), "dtype": dst.dtype, **arguments}


def selected(dst: object, arguments: dict[str, object]) -> dict[str, object]:
    """Return the arguments of ``affine_select``, with a condition in place of the pattern and ``cmp_op``."""
    form, compare = pattern(dst, arguments), getattr(arguments.pop("cmp_op", None), "nki_token", "equal")
    return {"pred": {"equal": form == 0, "greater": form > 0, "greater_equal": form >= 0, "less": form < 0,
                     "less_equal": form <= 0}[compare], **arguments}


def added(dst: object, arguments: dict[str, object]) -> dict[str, object]:
    """Check that ``nc_matmul`` overwrites the destination: loops of this generation stay rolled, so that one call may
    be both the first product of a sum and a later one."""
    if arguments.pop("accumulate", None) is not False:
        raise BadCall(what="nc_matmul() with dst needs accumulate=False here, and overwrites dst; "
                           "write dst += nc_matmul(stationary, moving) for a sum", form="nc_matmul(stationary, moving)"
                      ).here()
    return arguments


def bounds_of(start: object, stop: object = None, step: object = None) -> list[object]:
    """Return the bounds of a loop as its function takes them, all by position."""
    bounds = [0, start] if stop is None else [start, stop]
    return bounds if step is None else [*bounds, step]


LOOPS = ("affine_range", "sequential_range", "static_range")
OTHERWISE = {"memset": filled, "iota": counted, "affine_select": selected, "nc_matmul": added}
