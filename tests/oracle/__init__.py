# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An evaluator of NKI on NumPy alone, written from the documents of the language: a definition that can be run.

It shares nothing with ``nki_mlir``, so that what both say is known twice. There is nothing symbolic in it: loops run,
``nl.arange`` is an array of integers, a mask an array of booleans, a view an array of the places that it shows, and
each element that an access touches is looked at.

- ``dtypes``: element types, and the one conversion between them.
- ``arithmetic``: the operators of the engines on arrays of float32, or of integers where they are exact.
- ``memory``: ``Storage`` (bytes, and who wrote each element) and ``View`` (storage, and the element at each place).
- ``program``: the program of the grid that runs: ``current()``; loops, meetings with other programs, findings.
- ``source``: what Python itself cannot do in a kernel's source, rewritten: ``and`` of masks, annotations, names.
- ``kernel``: ``run(kernel, arguments, generation=...)`` -> results, findings, what was printed.
- ``beta``: the modules that a kernel of ``neuronxcc.nki`` imports. Another generation is a package like it:
  ``MODULES`` (import path -> module), ``Tensor`` (a ``View`` with the operators of its language).

A function of a language reads its operands (``x.read(mask)``: elements, checked), computes, and returns a tile
(``fresh(values, dtype, mask)``) or writes to one (``dst.write(values, mask)``): ``beta/elementwise.py`` shows it.
"""

from .kernel import Outcome, run

__all__ = ["Outcome", "run"]
