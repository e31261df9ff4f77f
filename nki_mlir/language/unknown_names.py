# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The error of a name that a module or tensor does not have, with the one that was meant, at the user's line."""

from collections.abc import Iterable, Mapping

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frontend.locations import user_location

ALIKE = 0.65                    # of difflib: ``sofmax`` is ``softmax``, and no ``max8``


class UnknownName(NkiMlirError, AttributeError):
    code = "NKI-NAME"
    message = "{owner} has no attribute '{missing}'{meant}"
    fix = "dir() of it lists what there is"

    @property
    def name(self) -> str:
        """The error's own. Python sets the attribute that was asked for, and would print its suggestion once more."""
        return self.code

    @name.setter
    def name(self, asked: str) -> None:
        pass


def unknown(owner: str, name: str, names: Iterable[str], instead: Mapping[str, str]) -> AttributeError:
    """The error; ``instead`` says of some names what to use for them. Python itself asks for names with underscores."""
    if name.startswith("_"):
        return AttributeError(f"{owner} has no attribute '{name}'")
    from difflib import get_close_matches  # start-up: needed where it is asked for
    near = get_close_matches(name, [n for n in names if not n.startswith("_")], 1, ALIKE)
    meant = instead.get(name) or (f"did you mean {near[0]}?" if near else "")
    made = UnknownName(owner=owner, missing=name, meant=f"; {meant}" if meant else "")
    made.located(user_location())
    return made
