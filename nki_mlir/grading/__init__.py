# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grades submissions of an assignment: parts with cases, points and thresholds, which ``scoring`` judges."""
