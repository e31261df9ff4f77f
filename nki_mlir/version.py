# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The version of the package: CHANGELOG.md says what changed with each."""

__version__ = "0.1.0"
