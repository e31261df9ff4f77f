# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is around every function of the beta generation: calls in any release's form, values that parameters take."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.diagnostics.errors import warn_once
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.errors import unknown
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.tensor import View
from nki_mlir.language.creation import MakesTensors, located_dtype, plain_shape
from nki_mlir.language.operations import HostArray
from nki_mlir.language.signatures import kinds
from nki_mlir.language.signatures.binding import BindingForm, Function, R, bound
from nki_mlir.language.signatures.generation import Generation
from nki_mlir.language.signatures.kinds import ParameterKind
from nki_mlir.language.signatures.table import histories
from nki_mlir.scalar.dtypes import FLOAT32


class BadParameter(KernelError, TypeError):
    code = "NKI-PARAMETER"
    message = "{function}: {parameter} is {found}, it takes {what}"
    fix = "call it as {form}"


class BadCall(BadParameter):
    message = "{what}"


class OlderFormWarning(UserWarning):
    """A call in a form that the newest release does not have, where ``NKI_MLIR_STRICT`` asks for it."""


class Beta(Generation):
    """The package ``neuronxcc.nki``."""

    def word(self, kind: ParameterKind) -> str:
        return kind.what

    def refuse(self, function: Function, parameter: str, kind: ParameterKind, value: object) -> None:
        if not kind.what:
            return
        if kind.is_tile:
            active(f"nl.{function.title}")          # outside of kernels there are no tiles: that is the error
            if isinstance(value, np.ndarray):
                raise HostArray(shape=value.shape).here()
        if kind is kinds.DTYPE:
            located_dtype(value)
        if kind in (kinds.SHAPE, kinds.TILE_SHAPE):
            plain_shape(value)
        error = BadParameter(function=function.title, parameter=parameter, found=shown(value), what=kind.what,
                             form=form_of(function))
        raise error.here()

    def unbound(self, function: Function, text: str) -> NkiMlirError:
        return BadCall(what=text, form=form_of(function)).here()

    def cross(self, function: Function, form: BindingForm, arguments: dict[str, object]) -> object:
        destinations: Any = importlib.import_module("nki_mlir.language.beta.destinations")
        return destinations.call(function, arguments)

    def report(self, text: str) -> None:
        warn_once(text, OlderFormWarning, user_location())


BETA = Beta("beta", {"np": np, "bool": bool, "float32": FLOAT32.numpy})
BETA.values.tiles = (View,)


def form_of(function: Function) -> str:
    return f"{function.title}({', '.join(parameter_text(p) for p in function.shown().parameters.values())})"


def shown(value: object) -> str:
    """A value that is not taken, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, View):
        return f"a tile of shape {value.shape}"
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def parameter_text(parameter: inspect.Parameter) -> str:
    """A parameter as documents write it."""
    if parameter.default is parameter.empty:
        return parameter.name
    default = parameter.default
    return f"{parameter.name}={getattr(default, '__name__', None) or default!s}"


# Names that public code has and no release: what is meant.
INVENTED = {"outer_product": "nl.multiply broadcasts a [P, 1] tile and a [1, F] one", "compile": "decorate the kernel "
            "with nki.jit and call it", "kernel": "decorate the kernel with nki.jit"}


def missing_from(owner: str, names: dict[str, object]) -> Callable[[str], NoReturn]:
    """The ``__getattr__`` of a module: the error of a name that it does not have, with the one that was meant."""
    def missing(name: str) -> NoReturn:
        listed: Any = names.get("__dir__", lambda: list(names))
        raise unknown(owner, name, listed(), INVENTED)
    return missing


def of_class(function: Callable[..., R]) -> Callable[..., R]:
    """Decorator of a function in a class of ``nki.compiler``."""
    return bound(function, f"nki.compiler.{function.__qualname__}", BETA)


def bind_module(names: dict[str, object], module: str) -> None:
    """Make the functions that a module has, and that any release had, callable in every release's form."""
    known = {name.rpartition(".")[2] for name in histories() if name.rpartition(".")[0] == module}
    for name, value in names.items():
        if name in known and inspect.isfunction(value):
            names[name] = bound(value, f"{module}.{name}", BETA)
        elif isinstance(value, MakesTensors):
            value.hold(bound(value.function, f"{module}.{name}", BETA))
