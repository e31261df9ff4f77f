# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How the last result was made: what an assignment that follows at once needs to know."""

from dataclasses import dataclass
from typing import Literal

from nki_mlir.dialects.op import Op
from nki_mlir.frontend.builder import Views, lift_to, plain_mask
from nki_mlir.frontend.index import Mask
from nki_mlir.frontend.tensor import View


@dataclass(slots=True)
class LastResult:
    """How the last result was made, so that an assignment that follows at once can have it written elsewhere.

    ``result`` is what the kernel holds: ``operand`` without the axes ``dropped``.
    """

    result: View
    operand: View
    op: Op | None                  # the last one by then: its own, or one before it where the mask is False
    cls: type[Op]
    views: Views
    mask: object                 # False where it was false everywhere
    attributes: dict[str, object]
    explicit_dtype: bool
    dropped: tuple[int, ...] = ()

    @property
    def is_masked(self) -> bool:
        """Whether some of the result is not written."""
        return (self.mask is not None or self.attributes.get("mode") == "skip"
                or any(v is not None and v.mask is not None for v in self.views.values()))

    def where_written(self) -> Mask | Literal[False] | None:
        """The mask on the axes of ``operand``: it leaves out the results that nothing goes into."""
        mask = plain_mask(self.mask)
        if self.op is None or mask is False or (mask is not None and mask.negated) or not self.is_masked:
            return mask
        iteration = self.op.iteration()
        terms = list(mask.spread(iteration.extents).terms) if mask is not None else []
        for name, view in self.views.items():
            if view is not None and view.mask is not None:
                lift = lift_to(iteration, name)
                terms += [(lift(e), equal) for e, equal in view.mask.terms]
        own = iteration.axes["dst"]
        kept = {k for k, n in zip(own, self.operand.shape) if k not in iteration.reduced or n == iteration.extents[k]}
        written = Mask(tuple(terms))
        for axis in range(len(iteration.extents)):
            if axis not in kept and written.terms:
                written = written.anywhere_along(axis)
        terms = [(e.with_axes(tuple(e.axes[k] for k in own), self.operand.shape), equal) for e, equal in written.terms]
        return Mask(tuple(terms)) if terms else None
