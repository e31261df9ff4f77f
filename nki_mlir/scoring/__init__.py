# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Judge candidate kernels against a reference without a device, in processes that cannot reach the judge.

A worker (``worker``) loads the reference. It forks two processes for each candidate: one runs the candidate's
Python on shapes alone and sends the captured kernel as text (``capture``), the other runs that text on arrays,
compiles and times it (``judge``). So no code of a candidate runs in a process that has an input or an expected
value.
"""
