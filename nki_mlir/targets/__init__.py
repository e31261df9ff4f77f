# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The targets: the interpreter, the CPU and the NeuronCore."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nki_mlir.bindings import Module
    from nki_mlir.dialects.kernel_function import KernelFunction
    from nki_mlir.dialects.late_operations import LateOperations


class CapturedVariant(Protocol):
    """A module, and the programs of the grid that it is for."""

    @property
    def module(self) -> "Module":
        """The module at the level at which the kernel was captured."""

    @property
    def partial_module(self) -> "Module":
        """The module, which may lack the operations of its function."""

    @property
    def signature(self) -> "KernelFunction":
        """The kernel as its function's attributes describe it, which may lack its operations."""

    @property
    def late(self) -> "LateOperations | None":
        """The operations that the module lacks until ``module`` is read."""


class CapturedKernel(Protocol):
    """A captured kernel, which each target loads: modules by the ``(axis, program id)`` pairs of the programs that they
    are for."""

    @property
    def variants(self) -> Mapping[tuple[tuple[int, int], ...], CapturedVariant]:
        """The variants; one with an empty key serves all programs."""

    def variant_for(self, point: tuple[int, ...]) -> CapturedVariant:
        """Return the variant of one program."""
