# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What passes and executors ask of operations beside their values: engines, costs, axes, tiles that they read."""

from .facts import FILE, facts


def test_facts_of_all_operations() -> None:
    """A new or changed operation changes ``facts.txt``: ``python -m tests.dialects.facts`` writes it."""
    assert facts() == FILE.read_text()
