# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The depth to which a text nests, and the size of its syntax tree: Python and the syntax library have limits."""

import ast
import io
import re
import tokenize

from nki_mlir.input_limits import SYNTAX_NODES

LEVELS = 3_000              # most levels of a syntax tree: Python 3.11 reads no more, the library takes seconds
NODE_BYTES = 20             # bytes of a source for each node of its syntax tree; most sources have fewer nodes
STRING_OR_COMMENT = re.compile(
    r"""#[^\n]*|'{3}(?:[^\\]|\\.)*?'{3}|"{3}(?:[^\\]|\\.)*?"{3}|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*\"""", re.DOTALL)
FORMATTED = re.compile(r"(?<![A-Za-z0-9_])(?:[fF][rR]?|[rR][fF])\Z")      # the prefix of a string
SPACES = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class NestsTooDeeply(Exception):
    """Python does not read a text because it nests too deeply, although its syntax is correct; ``line`` is where."""

    def __init__(self, line: int) -> None:
        super().__init__("the text nests more deeply than Python reads, which is about 3,000 operators, attributes or "
                         "branches in one statement, 200 parentheses within each other and 100 levels of indentation")
        self.line = line


def check_syntax(text: str, name: str) -> None:
    """Raise ``NestsTooDeeply`` if a text nests too deeply for Python, ``InputTooLarge`` if its syntax tree has too many
    nodes, and ``SyntaxError`` if it is wrong, or has too long an integer or a NUL byte. The syntax library has no such
    limits: it would overflow the stack and end the process, or take gigabytes."""
    SYNTAX_NODES.check(len(text) // NODE_BYTES, f"the file, with a node for {NODE_BYTES} bytes,", name)
    if len(text) > SYNTAX_NODES.value():
        SYNTAX_NODES.check(least_nodes(text), "the syntax tree of the file", name)
    try:
        tree = ast.parse(text)
        if deepest(tree)[0] > LEVELS:
            raise NestsTooDeeply(_longest_line(text))
        SYNTAX_NODES.check(sum(1 for _ in ast.walk(tree)), "the syntax tree of the file", name)
    except (RecursionError, MemoryError):
        raise NestsTooDeeply(_longest_line(text)) from None
    except SyntaxError as error:
        if (error.msg or "").startswith(("too many nested parentheses", "too many levels of indentation")):
            raise NestsTooDeeply(error.lineno or 1) from None
        raise
    except ValueError as error:
        raise SyntaxError(str(error)) from None


def least_nodes(text: str) -> int:
    """Return a lower bound for the number of nodes in the syntax tree of a text. It does not parse the text, because a
    parser takes a kilobyte for each node, and that of Python 3.11 quadratic time for formatted strings. It counts a
    node for each comma, four words or two lines outside of strings and comments, and two for each field of a formatted
    string."""
    fields = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal fields
        if FORMATTED.search(text, max(0, match.start() - 2), match.start()):
            fields += match[0].replace("{{", "").count("{")
        return ""
    code = STRING_OR_COMMENT.sub(replace, text)
    words, lines = (sum(1 for _ in re.finditer(pattern, code)) for pattern in (r"\w+", r"\S[^\n]*"))
    return 2 * fields + max(code.count(",") + code.count(";"), words // 4, lines // 2)


def deepest(tree: ast.AST) -> tuple[int, int]:
    """Return how deeply a syntax tree nests, and the line of the deepest node."""
    depth_and_line, waiting = (0, 1), list[tuple[ast.AST, int, int]]([(tree, 0, 1)])
    while waiting:
        node, depth, line = waiting.pop()
        line = getattr(node, "lineno", line)
        depth_and_line = max(depth_and_line, (depth, line))
        waiting += [(child, depth + 1, line) for child in ast.iter_child_nodes(node)]
    return depth_and_line


def _longest_line(text: str) -> int:
    """Return the first line of the statement with the most words, where an ``elif`` belongs to its ``if``."""
    longest, chains, column, is_new = (0, 1), dict[int, tuple[int, int]](), 0, True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in SPACES:
            is_new |= token.type == tokenize.NEWLINE
            continue
        line, start = token.start
        if is_new:
            is_new, column = False, start
            if token.string != "elif":
                chains[column] = 0, line
        words, first = chains.get(column, (0, line))
        chains[column] = words + 1, first
        longest = max(longest, (words + 1, -first))
    return abs(longest[1])
