# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa.constants`` and ``neuronxcc.nki.isa.neuron_isa``: enumerations, old names of instructions."""

from nki_mlir.language.beta import isa
from nki_mlir.language.beta.enums import dge_mode, engine, nc_version, oob_mode, reduce_cmd

dma_copy = vars(isa)["dma_copy"]

__all__ = ["dge_mode", "dma_copy", "engine", "nc_version", "oob_mode", "reduce_cmd"]
