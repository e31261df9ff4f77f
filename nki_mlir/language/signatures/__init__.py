# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every release's kernels may call, and how: one table of signatures, one binder, one check per kind of parameter.

``isa.txt``, ``language.txt`` and ``others.txt`` are the history of each public name. ``table`` reads them and has what
kernels pass beyond it, ``kinds`` says what a parameter takes, ``binding`` makes a call in any release's form one in the
newest form.
"""
