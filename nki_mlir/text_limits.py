# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a text from a file, a config or an editor before MLIR's parser reads it: bounds its depth and integers.

The parser recurses once for each level of nesting and each operator of an affine expression, so a text of 20,000
levels overflows the stack and ends the process. It converts a decimal integer in quadratic time, and a layout of
StableHLO allocates as many dimensions as the largest number that it names. An alias of an attribute or type stands
for all that it names: 60 lines that each name the one above twice are 2^60 elements, and a chain of 20,000 is as
deep as brackets. Nothing can catch such a failure afterwards: ``check_text`` refuses these texts in linear scans before
the parser sees them.
"""

import math
import re
from array import array
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain, islice

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.input_limits import TEXT_BYTES
from nki_mlir.plain_text import CHUNK, PlainChunks, characters_of

DEPTH = 250                     # levels of brackets; the deepest module of the project has about 40
OPERATORS = 2_000               # operators between two separators: terms of one affine expression
DIGITS = 1_000                  # digits of an integer: the widest type that is printed in decimal has 39, for 128 bits
DIMENSIONS = 1_000              # largest number of a dimension in a layout of a convolution
RESULTS = 10_000                # results of an operation
HEXADECIMAL = 20_000            # digits of a hexadecimal integer, more than the widest type has
RANK = 1_000                    # dimensions of a type, or dimensions and symbols of an affine map
DIALECTS = 10_000               # dialects that a text names, known or not
DISTINCT = 10_000               # attributes ``distinct[N]<...>``, each of which MLIR keeps apart
BITS = 1_024                    # bits of an integer type: MLIR makes each element of a constant as wide as its type
LARGE = 4                       # digits of the least numbers that exceed BITS; those beyond RESULTS have one more
PART = 1 << 20                  # characters of a text that are searched at once
ALIASES = 100_000               # definitions of aliases
USES = 500_000                  # names of aliases, or of attributes and types that look like them, beside aliases
EXPANDED = 1_000_000            # attributes and types that the aliases of a text stand for; more in texts of that size

_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG_INTEGER = re.compile(rf"(?<![0-9])[0-9]{{{DIGITS + 1},}}")
_LONG_HEXADECIMAL = re.compile(rf"0x[0-9a-fA-F]{{{HEXADECIMAL + 1},}}")
_LONG_SHAPE = re.compile(rf"<\s*(?:(?:[0-9]+|\?)\s*x\s*){{{RANK + 1}}}")
_LONG_MAP = re.compile(rf"affine_(?:map|set)\s*<\s*(?:\((?:[^(),]*,){{{RANK}}}|\([^()]*\)\s*\[(?:[^],]*,){{{RANK}}})")
_DIALECT = re.compile(r"(?<![%^@\w$.-])([A-Za-z_][\w$]*)\.[A-Za-z_]")
_QUOTED_DIALECT = re.compile(r'"([A-Za-z_][\w$]*)\.[\w$.]*"\s*\(')
_DISTINCT = re.compile(r"\bdistinct\s*\[")
_UNALIGNED = re.compile(r'"0x0{8}')
_LAYOUT = re.compile(r"(?:\bdim_numbers|\bconv\s*<)[^{}:]*")
_NUMBER = re.compile(r"[0-9]+")
_OPERATOR = re.compile(r"\b(?:floordiv|ceildiv|mod|and)\b|[-+*]")
WORDS = b"floordiv", b"ceildiv", b"mod", b"and"
_RESULTS = re.compile(r"%[\w$.-]+[:#]([0-9]+)")
_WIDTH = re.compile(r"(?:\b|x)[us]?i([0-9]{4,})\b")
_ALIAS = re.compile(r"[!#][A-Za-z_$][\w$.-]*")
_DEFINED = re.compile(rf"({_ALIAS.pattern})\s*=")
# The text of an alias ends at the latest at the next operation outside of brackets.
_OPERATION = re.compile(rb'^[ \t]*(?:"[\w.]+"[ \t]*\(|%|(?:module|func|builtin)\b|[a-z]\w*\.\w)', re.MULTILINE)
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"([{<")], _STEPS[list(b")]}>")] = 1, -1
_SEPARATES = np.zeros(256, np.bool_)
_SEPARATES[list(b"][(){}<>,:;")] = True
_OPERATES = np.zeros(256, np.bool_)
_OPERATES[list(b"-+*")] = True
_IN_WORD = np.array([chr(character).isalnum() or character == ord("_") for character in range(256)])


class TextTooDeep(NkiMlirError):
    code = "NKI-TEXT-LIMIT"
    message = "{what} exceeds the limit of {limit}"
    why = "MLIR's parser recurses or allocates in proportion to this number, and a larger text could end the process"
    fix = "{fix}"


class TextNotUnicode(NkiMlirError):
    code = "NKI-TEXT-UNICODE"
    message = "the text has {character} alone, which is half of a surrogate pair"
    why = "no file can contain it, and MLIR's parser reads UTF-8"
    fix = "write the character itself, or both halves"


class ResourceAlignment(NkiMlirError):
    code = "NKI-TEXT-RESOURCE"
    message = "a resource is aligned to 0 bytes"
    why = "the first 8 digits of a resource are its alignment, and MLIR ends the process if it is 0"
    fix = "write an alignment of at least 1, as 0x01000000"


class StrayCharacter(NkiMlirError):
    code = "NKI-TEXT-CHARACTER"
    message = "a {character} makes the end of a string ambiguous"
    why = "MLIR has backslashes only in strings, and writes carriage returns in strings as \\0D"
    fix = "remove it, or write it in a string as \\5C or \\0D"


class AliasCycle(NkiMlirError):
    code = "NKI-ALIAS-CYCLE"
    message = "alias {alias} refers to {alias} again"
    why = "MLIR's parser would expand the alias without end"
    fix = "define aliases without a cycle"


def check_text(text: str, name: str = "<text>") -> None:
    """Raise ``TextTooDeep`` if MLIR's parser must not see ``text``; ``name`` is the file that the error names."""
    TEXT_BYTES.check(len(text), "the text", name)
    if not text.isascii() and (half := _SURROGATE.search(text)) is not None:
        raise TextNotUnicode(character=f"U+{ord(half[0]):X}").located(_location(text, name, half.start()))
    scan = _Scan(text, name)
    plain, level = scan.characters.tobytes().decode("latin-1"), scan.level
    if scan.digits > DIGITS and (integer := _LONG_INTEGER.search(plain)) is not None:
        raise _error(text, name, integer.start(), f"an integer of {len(integer[0])} digits", DIGITS,
                     "write the value as a hexadecimal string or with fewer digits")
    for layout in _LAYOUT.finditer(plain) if "dim_numbers" in plain or "conv" in plain else ():
        _check_each(_NUMBER.finditer(plain, layout.start(), layout.end()), text, name, "dimension number",
                    DIMENSIONS, "number the dimensions of the tensors from 0")
    if scan.has_result_number:
        _check_numbers(_RESULTS, plain, text, name, "result number", RESULTS, "divide the operation")
    if scan.has_width:
        _check_numbers(_WIDTH, plain, text, name, "integer width", BITS, "use a narrower type")
    if scan.longest > OPERATORS:                    # an operator is at least a character
        _check_operators(scan.characters, plain, text, name)
        _refuse(_LONG_HEXADECIMAL, plain, text, name, "an integer of many hexadecimal digits", HEXADECIMAL,
                "write fewer digits")
        _refuse(_LONG_SHAPE, plain, text, name, "a shape of many dimensions", RANK, "use fewer dimensions")
    if "affine_" in plain:
        _refuse(_LONG_MAP, plain, text, name, "an affine map of many dimensions or symbols", RANK, "use fewer of them")
    _check_names(plain, text, name)
    if "{-#" in plain and (resource := _UNALIGNED.search(text, plain.index("{-#"))) is not None:
        raise ResourceAlignment().located(_location(text, name, resource.start()))
    if "#" in plain or "!" in plain:
        _check_aliases(plain, level, text, name)


class _Scan:
    """The findings of one pass over a text, in chunks: its characters with blanks for strings, comments and arrows, the
    number of brackets that are open at each, its largest numbers and its longest part without a separator."""

    def __init__(self, text: str, name: str) -> None:
        source = characters_of(text)
        self.characters = np.empty_like(source)
        self.level = np.empty_like(source)
        self.digits = self.longest = 0
        self.has_result_number = self.has_width = False
        total, least, deepest, deep = 0, 0, 0, -1
        numbers, separated = 0, -1
        for chunk in PlainChunks(source):
            if chunk.stray >= 0:
                raise StrayCharacter(character="backslash" if text[chunk.stray] == '"' else "carriage return").located(
                    _location(text, name, chunk.stray - (text[chunk.stray] == '"')))
            end = chunk.first + chunk.characters.size
            self.characters[chunk.first:end] = chunk.characters
            steps = _STEPS[chunk.characters]
            level = np.cumsum(steps, dtype=np.int32) if steps.any() else steps.astype(np.int32)
            level += total
            total = int(level[-1])
            if int(level.min()) < least:                    # brackets that close none
                lows = np.minimum.accumulate(np.minimum(level, least))
                least = int(lows[-1])
                level -= lows
            else:
                level -= least
            if (highest := int(level.max())) > DEPTH and deep < 0:
                deep = chunk.first + int(np.argmax(level > DEPTH))
            deepest = max(deepest, highest)
            self.level[chunk.first:end] = np.minimum(level, DEPTH + 1)
            separators = np.flatnonzero(_SEPARATES[chunk.characters]) + chunk.first
            if separators.size:
                self.longest = max(self.longest, int(np.diff(separators, prepend=separated).max()) - 1)
                separated = int(separators[-1])
            numbers = self._add_numbers(numbers, end)
        self.longest = max(self.longest, source.size - separated - 1)
        if deep >= 0:
            raise _error(text, name, deep, f"nesting of {deepest:,} levels", DEPTH,
                         "nest regions, attributes, types and expressions less deeply")

    def _add_numbers(self, first: int, end: int) -> int:
        """Count the digits of the numbers between two characters. Return where the next call begins: at the last number
        if it may continue after ``end``, else at ``end``."""
        digit = self.characters[max(first, end - DIGITS - 2):end] - ord("0") <= 9
        continues = end < self.characters.size
        digits_at_end = 0 if not continues else int(np.argmin(digit[::-1])) if not digit.all() else digit.size
        before, digits = _large_numbers(self.characters[first:end])
        self.digits = max(self.digits, int(digits.max(initial=0)))
        self.has_result_number |= bool((((before == ord(":")) | (before == ord("#"))) & (digits > LARGE)).any())
        self.has_width |= bool((before == ord("i")).any())
        return max(first, end - digits_at_end - 1)


def _large_numbers(characters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the character before each number of at least ``LARGE`` digits (0 at the beginning), and the count of its
    digits."""
    digit = characters - ord("0") <= 9                          # smaller characters wrap around
    begins = digit.copy()                                       # whether LARGE digits begin at a character
    for distance in range(1, LARGE):
        begins[:-distance] &= digit[distance:]
        begins[-distance:] = False
    edges = np.flatnonzero(np.diff(begins, prepend=False, append=False))
    first, end = edges[::2], edges[1::2]
    return np.where(first > 0, characters[first - 1], 0), end - first + LARGE - 1


def _check_numbers(pattern: re.Pattern[str], plain: str, text: str, name: str, subject: str, limit: int,
                   fix: str) -> None:
    """Check the numbers that a pattern's group matches: the different ones first, which are few in most texts."""
    if any(int(digits) > limit for digits in _names(pattern, plain)):
        _check_each(pattern.finditer(plain), text, name, subject, limit, fix)


def _check_each(matches: Iterator[re.Match[str]], text: str, name: str, subject: str, limit: int, fix: str) -> None:
    for match in matches:
        digits = match[match.lastindex or 0]
        if int(digits) > limit:
            raise _error(text, name, match.start(match.lastindex or 0), f"{subject} {digits[:40]}", limit, fix)


def _check_aliases(plain: str, level: np.ndarray, text: str, name: str) -> None:
    """Check the number of aliases, and the expansion of each, with all that it names in turn: depth and size."""
    matches = list(islice(_DEFINED.finditer(plain), ALIASES + 1))
    if len(matches) > ALIASES:
        raise _error(text, name, matches[ALIASES].start(), f"the {ALIASES + 1:,}st alias", ALIASES,
                     "use fewer aliases, for example without locations")
    if not matches:
        return
    outer = level[np.fromiter((match.end() for match in matches), np.int64, len(matches)) - 1] == 0
    defined = [matches[number] for number in np.flatnonzero(outer).tolist()]
    if not defined:
        return
    starts = np.fromiter((match.start() for match in defined), np.int64, len(defined))
    ends = _ends(starts, characters_of(text), level)
    inner = np.maximum.reduceat(np.append(level, 0), np.column_stack((starts, ends)).ravel())[::2].tolist()
    numbers = {match[1]: number for number, match in enumerate(defined)}
    at, used = _uses(plain, numbers, text, name)
    sizes, depths = [1] * len(defined), list(inner)
    for number, target in _uses_in_order(at, used, defined, starts, ends, text, name):
        sizes[number] += sizes[target]
        depths[number] = max(depths[number], inner[number] + depths[target])
        if depths[number] > DEPTH:
            raise _error(text, name, int(starts[number]), f"nesting of {depths[number]:,} levels by aliases", DEPTH,
                         "nest attributes, types and locations less deeply")
        if sizes[number] > EXPANDED:
            break                       # larger numbers only take time
    counts = np.bincount(used[used >= 0], minlength=len(defined)).tolist()
    total = sum(size * count for size, count in zip(sizes, counts))
    limit = max(EXPANDED, 4 * used.size)
    if total > limit:
        largest = int(starts[int(np.argmax(np.array(sizes, float)))])
        raise _error(text, name, largest, f"what aliases stand for, {min(total, 10**12):,} attributes and types,",
                     limit, "use fewer aliases in the definition of an alias")


def _ends(starts: np.ndarray, characters: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return the end of the text of each alias: the next operation outside of brackets, or the next alias."""
    ends = np.append(starts[1:], characters.size)
    outside = np.where((level == 0) | ((level == 1) & (_STEPS[characters] > 0)), characters, ord(" ")).tobytes()
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist())):
        if (operation := _OPERATION.search(outside, start, end)) is not None:
            ends[number] = operation.start()
    return ends


def _uses(plain: str, numbers: dict[str, int], text: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return where the text has a name of an alias, and the alias's number or -1."""
    at, used = array("q"), array("q")
    for match in _ALIAS.finditer(plain):
        at.append(match.start())
        used.append(numbers.get(match[0], -1))
        if len(at) > USES:
            raise _error(text, name, match.start(), f"the {USES + 1:,}st use of an alias", USES, "divide the module")
    return np.frombuffer(at, np.int64), np.frombuffer(used, np.int64)


def _uses_in_order(at: np.ndarray, used: np.ndarray, defined: list[re.Match[str]], starts: np.ndarray,
                   ends: np.ndarray, text: str, name: str) -> Iterable[tuple[int, int]]:
    """Return pairs of numbers (alias, alias that its definition names). The pairs of a named alias precede the pairs of
    the aliases that name it."""
    number = np.searchsorted(starts, at, "right") - 1
    inside = (used >= 0) & (number >= 0) & (at < ends[number]) & (used != number)
    number, used = number[inside], used[inside]
    pairs = list(zip(number.tolist(), used.tolist()))
    if (used < number).all():
        return pairs
    names: dict[int, list[int]] = {}
    for alias, other in pairs:
        names.setdefault(alias, []).append(other)
    try:
        order = list(TopologicalSorter(names).static_order())
    except CycleError as error:
        first = defined[error.args[1][0]]
        raise AliasCycle(alias=first[1]).located(_location(text, name, first.start())) from None
    return [(alias, other) for alias in order for other in names.get(alias, ())]


def _check_operators(characters: np.ndarray, plain: str, text: str, name: str) -> None:
    """Check the number of operators between two separators, in chunks that carry the count from one to the next."""
    words = [np.frombuffer(word, np.uint8) for word in WORDS if word.decode() in plain]
    begin, count, most, largest = 0, 0, 0, 0
    for first in range(0, characters.size, CHUNK):
        chunk = characters[first:first + CHUNK]
        operators = _OPERATES[chunk]
        for word in words:
            operators |= _begins(word, characters, first, chunk.size)
        separators = np.flatnonzero(_SEPARATES[chunk])
        total = int(np.count_nonzero(operators))
        if not total and not separators.size:
            continue
        counts = np.diff(np.cumsum(operators, dtype=np.int32)[separators], prepend=-count)
        if separators.size and int(counts.max()) > most:
            number = int(np.argmax(counts))
            most, largest = int(counts[number]), begin if number == 0 else first + int(separators[number - 1])
        if separators.size:
            begin, count = first + int(separators[-1]), int(np.count_nonzero(operators[separators[-1]:]))
        else:
            count += total
    if count > most:
        most, largest = count, begin
    if most > OPERATORS:
        operator = _OPERATOR.search(plain, largest)
        raise _error(text, name, operator.start() if operator else largest, f"an expression of {most:,} operators",
                     OPERATORS, "divide the expression")


def _begins(word: np.ndarray, characters: np.ndarray, first: int, size: int) -> np.ndarray:
    """Return at which of ``size`` characters from ``first`` on the word begins as a complete word."""
    around = np.zeros(size + word.size + 1, np.uint8)           # with one character before and after
    part = characters[max(0, first - 1):first + size + word.size]
    around[(first == 0):(first == 0) + part.size] = part
    begins: np.ndarray = ~_IN_WORD[around[:size]] & ~_IN_WORD[around[word.size + 1:]]
    for at, letter in enumerate(word):
        begins &= around[at + 1:at + 1 + size] == letter
    return begins


def _refuse(pattern: re.Pattern[str], plain: str, text: str, name: str, construct: str, limit: int, fix: str) -> None:
    """Raise ``TextTooDeep`` where the text has what a pattern describes: MLIR reads it in quadratic time."""
    if (match := pattern.search(plain)) is not None:
        raise _error(text, name, match.start(), construct, limit, fix)


def _check_names(plain: str, text: str, name: str) -> None:
    """Check how many dialects and distinct attributes a text names: MLIR compares each with all earlier ones."""
    if text.count(".") > DIALECTS and len(
            _names(_DIALECT, plain, DIALECTS) | _names(_QUOTED_DIALECT, text, DIALECTS)) > DIALECTS:
        dialects: set[str] = set()
        for match in chain(_DIALECT.finditer(plain), _QUOTED_DIALECT.finditer(text)):
            dialects.add(match[1])
            if len(dialects) > DIALECTS:
                raise _error(text, name, match.start(), f"the {DIALECTS + 1:,}th dialect", DIALECTS,
                             "use fewer dialects")
    if "distinct" in plain and len(matches := list(islice(_DISTINCT.finditer(plain), DISTINCT + 1))) > DISTINCT:
        raise _error(text, name, matches[DISTINCT].start(), f"the {DISTINCT + 1:,}th distinct attribute", DISTINCT,
                     "use fewer distinct attributes")


def _names(pattern: re.Pattern[str], text: str, most: float = math.inf) -> set[str]:
    """Return the different texts that a pattern's group matches: few texts in many matches. Stop at more than
    ``most``."""
    names, begin = set[str](), 0
    while begin < len(text) and len(names) <= most:
        end = len(text) if len(text) - begin < 2 * PART else text.find("\n", begin + PART) % (len(text) + 1)
        names.update(pattern.findall(text, begin, end))
        begin = end
    return names


def _error(text: str, name: str, offset: int, construct: str, limit: int, fix: str) -> NkiMlirError:
    return TextTooDeep(what=construct, limit=limit, fix=fix).located(_location(text, name, offset))


def _location(text: str, name: str, offset: int) -> Location:
    return Location(name, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset) - 1)
