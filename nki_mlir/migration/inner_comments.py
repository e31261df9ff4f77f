# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comments whose statement has another text or none: those between its lines, and those above it with empty lines."""

from collections.abc import Sequence

import libcst as cst


def inner_comments(node: cst.SimpleStatementLine) -> list[cst.Comment]:
    """Return the comments between the lines of a statement, in their order."""
    comments: list[cst.Comment] = []
    pending: list[cst.CSTNode] = list(node.body[::-1])
    while pending:
        part = pending.pop()
        if isinstance(part, cst.Comment):
            comments.append(part)
        pending += part.children[::-1]
    return comments


def lines_above(removed: Sequence[cst.EmptyLine], lines: Sequence[cst.EmptyLine], is_first: bool
                ) -> list[cst.EmptyLine]:
    """Return the lines above a statement that follows removed ones, whose lines are ``removed``: all comments, and an
    empty line where one of the two groups begins with one. ``is_first``: no statement of the block is left in front."""
    above, below = list(removed), list(lines)
    while above and above[-1].comment is None and below and below[0].comment is None:
        above.pop()
    if above and not any(line.comment for line in below):
        below = []                              # the comment belongs to the statement
    elif not any(line.comment for line in above) and above and not below:
        above = above[:1]
    result = [*above, *below]
    starts_empty = bool(removed) and removed[0].comment is None
    while is_first and result and result[0].comment is None and not starts_empty:
        result.pop(0)
    return result
