# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stand-ins for the vendor's executables, which programs start by name: they read and write files of this package.

The times that they print come from the model (``source``), never from a device. Output for programs goes to standard
output, everything else to standard error, as public parsers of the vendor's tools expect.
"""

# Name of an executable -> the module whose ``main`` it is.
EXECUTABLES = {
    "neuron-profile": "nki_mlir.cli.standins.neuron_profile",
    "neuron-explorer": "nki_mlir.cli.standins.neuron_profile",
    "neuron-bench": "nki_mlir.cli.standins.neuron_bench",
    "neuron-ls": "nki_mlir.cli.standins.neuron_ls",
    "neuronx-cc": "nki_mlir.cli.standins.neuronx_cc",
}
