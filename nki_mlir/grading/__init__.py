# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Grade submissions of an assignment: parts with cases, points and thresholds, which ``scoring`` judges."""
