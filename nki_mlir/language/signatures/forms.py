# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of calls: how the arguments of a call bind to a signature, and where the function takes them."""

from typing import NamedTuple

from nki_mlir.language.signatures.kinds import REFUSED, Converter, ParameterKind
from nki_mlir.language.signatures.table import Signature


class BoundArgument(NamedTuple):
    """An argument of a call: its position or keyword, its parameter, and the conversion of its value."""

    at: int | str
    parameter: str                      # "": it is dropped
    convert: Converter | None
    kind: ParameterKind | None


class BindingForm(NamedTuple):
    """A way in which arguments bind to one signature."""

    signature: Signature
    arguments: tuple[BoundArgument, ...]
    is_in_order: bool                   # each positional argument has its position in the function, too
    direct: bool                        # each keyword has its name there, too, and in the newest signature
    crosses: bool                       # the signature is the other generation's

    def by_name(self, positional: tuple[object, ...], keywords: dict[str, object]) -> dict[str, object]:
        """Return the arguments of a call by the signature's names, in its order."""
        named = dict(zip(self.signature.positional, positional)) | keywords
        return {name: named[name] for name in dict.fromkeys((*self.signature.names, *named)) if name in named}

    def as_function_takes(self, values: list[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        """Return the values of the arguments as the function takes them: positional ones, and keywords."""
        if not self.is_in_order:
            return (), {a.parameter: v for a, v in zip(self.arguments, values) if a.parameter}
        return (tuple(v for a, v in zip(self.arguments, values) if isinstance(a.at, int)),
                {a.parameter: v for a, v in zip(self.arguments, values) if isinstance(a.at, str) and a.parameter})


class BindingPlan(NamedTuple):
    """The forms that calls of one layout bind to, best first, and the checks by which a call is in the newest form."""

    forms: tuple[BindingForm, ...]
    is_newest: bool
    positional: tuple[tuple[int, Converter], ...]
    keywords: tuple[tuple[str, Converter], ...]

    def converted(self, arguments: tuple[object, ...], keywords: dict[str, object]
                  ) -> tuple[tuple[object, ...], dict[str, object]] | None:
        """Return the arguments of a call as the function takes them; None if one of them does not fit the newest
        form."""
        for at, convert in self.positional:
            value = arguments[at]
            if (result := convert(value)) is not value:
                if result is REFUSED:
                    return None
                arguments = (*arguments[:at], result, *arguments[at + 1:])
        for name, convert in self.keywords:
            value = keywords[name]
            if (result := convert(value)) is not value:
                if result is REFUSED:
                    return None
                keywords = keywords | {name: result}
        return arguments, keywords
