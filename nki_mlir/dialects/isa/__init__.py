# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``isa`` dialect: programs of instruction streams, as records and as MLIR."""
