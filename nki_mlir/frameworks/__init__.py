# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls kernels as custom operators of JAX and PyTorch.

``jax``, ``torch``, ``torch_xla``: calls with their arrays; ``torch_device``: PyTorch's device "neuron";
``torch_stablehlo``, ``stablehlo``: programs with kernels as StableHLO, and running them; ``recovery``: kernels out of
modules; ``framework_kernel``: other frameworks. ``jax_neuronx`` and ``torch_neuronx`` are the vendor's names.
"""
