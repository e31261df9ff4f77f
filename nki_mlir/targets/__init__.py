# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What executes or emits: the interpreter, the CPU and the Neuron target."""
