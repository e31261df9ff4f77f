# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Command lines of Python programs that do not search the current directory for modules.

``python -c`` and ``python -m`` search it first, so a file ``json.py`` beside the user's files would run. ``-P`` and
``PYTHONSAFEPATH`` prevent it from Python 3.11 on only.
"""

import sys

LEAVE_CURRENT_DIRECTORY = "import sys; sys.path[:] = filter(None, sys.path)"        # sys is built in


def module_command(module: str) -> list[str]:
    """Return the command that runs an installed module as ``python -m`` does; arguments may follow."""
    run = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-c", f"{LEAVE_CURRENT_DIRECTORY}; {run}"]
