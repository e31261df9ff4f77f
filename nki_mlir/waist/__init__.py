# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The level in the middle: loop nests as linalg.generic on tiles; its writer, its reader, and records of both."""
