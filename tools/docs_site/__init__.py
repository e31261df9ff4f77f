# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The build of the documentation site, whose sources are in docs/site."""

import sys
from pathlib import Path

# Tools are scripts, which import each other by their file names.
sys.path.append(str(Path(__file__).resolve().parents[1]))
