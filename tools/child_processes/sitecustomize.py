# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets a process that a test starts load a mutant (``direct_mutants.py``).

Python imports this module at its start. ``NKI_MLIR_MUTANT`` has the name of the changed module, its file, and the file
of its changed text.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools.changed_modules import Finder

del sys.path[0]
module, source, text = os.environ["NKI_MLIR_MUTANT"].split(os.pathsep)
changed = compile(Path(text).read_bytes(), source, "exec", dont_inherit=True)
sys.meta_path.insert(0, Finder(module, source, changed))
