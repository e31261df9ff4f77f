# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A plugin of nki_mlir, as docs/plugins.md describes it. Kernels import its instruction from here."""

from typing import Any

NKI_MLIR_API = 1                # the version of the interface that it is written for

# The entry points of pyproject.toml, for use without an installation: nki-opt --load-plugin nki_mlir_example.
NKI_MLIR_PLUGIN = {
    "ops": {"example": "nki_mlir_example.ops"},
    "passes": {"example": "nki_mlir_example.passes"},
    "pipelines": {"example-cleanup": "nki_mlir_example.pipelines:CLEANUP"},
    "targets": {"trn2_small": "nki_mlir_example.targets:TRN2_SMALL"},
    "executors": {"example-checked": "nki_mlir_example.executors:checked"},
}


def __getattr__(name: str) -> Any:
    """Create the instruction at its first use, so that the commands need not load the language."""
    if name != "clamp":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from nki_mlir_example import instructions
    return instructions.clamp
