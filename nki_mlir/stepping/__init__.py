# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Step through a run on any executor that runs operation by operation: decide where it stops, and what it shows."""
