# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Races between iterations of parallel loops and between programs: what is touched, what overlaps, what is said."""
