# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The calls that kernels of every release may make: one table of signatures, one binder, one check per kind of
parameter.

``language/entries``, ``isa.txt``, ``language.txt`` and ``others.txt`` have the history of each public name. ``table``
reads them and lists further calls that kernels use, ``kinds`` defines the values that a parameter accepts, ``binding``
converts a call in any release's form to the newest form.
"""
