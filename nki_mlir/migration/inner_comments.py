# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comments between the lines of a statement, which stand above the statement if its text is new."""

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
