# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The levels of passes and the defaults of their options."""

from .pass_facts import FILE, facts


def test_facts_of_all_passes() -> None:
    """A changed default changes ``pass_facts.txt``: ``python -m tests.passes.pass_facts`` writes it."""
    assert facts() == FILE.read_text()
