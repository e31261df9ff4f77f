# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Print how often random programs draw each name, parameter and form.

    python -m tests.random_programs.table [PROGRAMS]
"""

import sys

from rich.console import Console
from rich.table import Table

from .beta import BetaWriter
from .current import CurrentWriter
from .test_coverage import BETA, CURRENT, drawn


def main(programs: int) -> None:
    for title, writer, names in (("beta", BetaWriter, BETA), ("current", CurrentWriter, CURRENT)):
        counts = drawn(writer, programs)
        table = Table("name, parameter or form", "drawn", title=f"{programs} programs of the {title} generation")
        for row, count in [*counts.rows(names), *sorted(counts.forms.items())]:
            table.add_row(row, str(count))
        Console().print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
