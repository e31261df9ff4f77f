# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands: nki-opt, nki-run, nki-translate. Imports are lazy, so that ``--help`` answers at once."""
