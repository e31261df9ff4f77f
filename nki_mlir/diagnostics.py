# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings: base classes of named errors with a rule, values and a fix, their text, and how broken rules of
the device are reported.

An error is one class in the file of its area with ``code``, ``message``, ``why`` and ``fix`` templates. It is raised
with values, never with a ready string, so that a test can compare the complete text.
"""

import linecache
import re
import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from string import Formatter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from nki_mlir.environment import EnvironmentVariable
from nki_mlir.files import is_known_source


class Location(NamedTuple):
    """A position in a source file: line from 1, column from 0 as Python counts them; line 0 is the file as a whole."""

    file: str
    line: int
    column: int
    end_column: int | None = None
    origin: str = ""            # of a linked program: the graph's operation or the kernel, as in "kernel softmax"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column + 1}" if self.line else self.file


def line_prefix(at: Location | None) -> str:
    """Return the start of a note about a line, ``file:line: ``; "" without a line."""
    return f"{at.file}:{at.line}: " if at is not None and at.line else ""


# The warnings that were shown, as Python records them for a module.
shown: dict[str | tuple[str, type[Warning], int], int] = {}


def warn_once(text: str, category: type[Warning], at: Location | None) -> None:
    """Warn at the kernel's line; the same warning is shown once a line."""
    location = at or Location("<unknown>", 0, 0)
    warnings.warn_explicit(with_singulars(text), category, location.file, location.line, registry=shown)


def kernel_line() -> Location | None:
    """Return the location of the kernel that runs now; ``capture.locations`` sets its function here."""
    return None


LONGEST = 2_000                 # characters of a line of an error: names and attributes of a file may have millions


def shortened(text: str) -> str:
    """Return the text with the middle of each long line left out."""
    if len(text) <= LONGEST:
        return text
    return "\n".join(line if len(line) <= LONGEST else f"{line[:LONGEST // 2]} ... {line[-LONGEST // 4:]}"
                     for line in text.split("\n"))


# Characters that move a terminal's cursor or change the order of the characters around them.
_UNPRINTABLE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str) -> str:
    """Return the text with escapes for what would change the terminal that shows it: texts quote names and strings of
    inputs."""
    return re.sub(_UNPRINTABLE, lambda match: repr(match[0])[1:-1], text)


# Nouns that texts count: templates have their plurals. A phrase is before its noun, which also begins it.
_SINGULARS = {
    "tiles that are live at once take": "tile that is live takes", "axes": "axis", "indices": "index", "copies": "copy",
    **{f"{noun}s": noun for noun in (
        "argument array byte bit character choice column core digit dimension element engine input instruction "
        "iteration kernel line operand operation operator output parameter partition product program queue rank "
        "register result row second semaphore slice source step stream subscript tensor test tile transfer value "
        "variable").split()}}
_ONE = re.compile(rf"(?<![\w.,:-])(?<!to )(?<!and )1 ({'|'.join(_SINGULARS)})\b")


def with_singulars(text: str) -> str:
    """Return the text with the singular of each counted noun after the number 1: 1 element, 2 elements."""
    return _ONE.sub(lambda match: f"1 {_SINGULARS[match[1]]}", text)


def text_of(error: BaseException) -> str:
    """Return the text of an exception of user code, whose ``__str__`` may raise another one."""
    try:
        return str(error)
    except Exception as another:
        return f"(no text: its __str__ raises {type(another).__name__})"


class _ShortValues(Formatter):
    """Formats numbers of too many digits as their size, and values that contain one as their type."""

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return format(value, format_spec)
        except Exception as error:
            size = "" if not isinstance(error, ValueError) else f" of {int.bit_length(value):,} bits" if isinstance(
                value, int) else " with a number of too many digits"
            return f"<{type(value).__name__}{size}>"

    def convert_field(self, value: Any, conversion: Any) -> Any:
        try:
            return super().convert_field(value, conversion)
        except Exception:
            return f"<{type(value).__name__}>" if conversion and not isinstance(value, int) else self.format_field(
                value, "")


_SHORT_VALUES = _ShortValues()


def value_text(value: object, convert: Callable[[object], str] = str) -> str:
    """Return the text of a user's value in an error; its type if ``str`` or another conversion fails: the value is
    nested too deep, has too many digits, or its class raises an exception."""
    try:
        return convert(value)
    except Exception:
        return _SHORT_VALUES.format_field(value, "")


class NkiMlirError(Exception):
    """Base of all errors for users. ``values`` fill the templates; ``at`` is the location, if it is known."""

    code: ClassVar[str] = ""
    message: ClassVar[str] = "{text}"
    why: ClassVar[str] = ""
    fix: ClassVar[str] = ""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give a class without a docstring its templates as text: ``help()`` would show its base's docstring."""
        super().__init_subclass__(**keywords)
        if cls.__doc__ is None and cls.message is not NkiMlirError.message:
            text = f"{cls.message} [{cls.code}]" + f"\n  why: {cls.why}" * bool(cls.why) + (
                f"\n  fix: {cls.fix}" * bool(cls.fix))
            type.__dict__["__doc__"].__set__(cls, text)         # an assignment also looks for changed methods: 15 us

    def __init__(self, *arguments: object, **values: Any) -> None:
        if arguments:
            values.setdefault("text", arguments[0])
        super().__init__(*arguments)
        self.values = values
        self.at: Location | None = None

    def located(self, at: Location | None) -> "NkiMlirError":
        """Return the same error with a location, unless it has one."""
        self.at = self.at or at
        return self

    def here(self) -> "NkiMlirError":
        """Return the same error at the kernel's line."""
        return self.located(kernel_line())

    @property
    def headline(self) -> str:
        """The broken rule, with its values."""
        return self._filled(self.message)

    @property
    def advice(self) -> tuple[str, str]:
        """The reason for the rule, and the fix: those of the class, unless ``values`` have a more precise ``fix``."""
        if fix := self.values.get("fix"):
            return self.values.get("why", self.why), with_singulars(fix)
        return self._filled(self.why), self._filled(self.fix)

    def _filled(self, template: str) -> str:
        """Return a template with the values. The size of a number replaces more digits than Python prints: a message of
        megabytes would help nobody, and take minutes. The type replaces a value that has no text."""
        try:
            text = template.format(**self.values)
        except Exception:
            text = _SHORT_VALUES.vformat(template, (), self.values)
        return with_singulars(text)

    @property
    def name(self) -> str:
        """The documented name of the error (the vendor's if there is one)."""
        return self.code

    def __str__(self) -> str:
        position = f"{self.at}: " if self.at else ""
        code = f" [{self.code}]" if self.code else ""
        lines = [f"{position}error: {shortened(self.headline)}{code}"]
        if self.at:
            lines += excerpt(self.at)
        lines += [f"  {label}: {shortened(text)}" for label, text in zip(("why", "fix"), self.advice) if text]
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        """Return the text that frameworks show of an error that they wrap in another one."""
        return f"{type(self).__name__}({self.headline!r}, {self.code!r})"


class KernelError(NkiMlirError, SyntaxError):
    """A mistake in a kernel. ``SyntaxError`` is the Python class that the documents give most named errors.

    ``fields``: if an operation's class raised the error, the buffers of its tiles by field.
    """

    fields: Mapping[str, object] = MappingProxyType({})

    @property
    def msg(self) -> str:                       # type: ignore[override]
        """The text, which ``traceback`` (and with it pytest, logging, notebooks) reads here for a SyntaxError."""
        return str(self)


class Unsupported(NkiMlirError):
    """A feature that this toolchain does not support, with a replacement."""

    code = "NKI-UNSUPPORTED"
    message = "{feature} is not supported"
    fix = "{instead}"


class InternalError(NkiMlirError):
    """A defect of the toolchain itself, never of a kernel."""

    code = "NKI-INTERNAL"
    message = "internal error: {text}"
    fix = "please report it with the kernel or module that led here"


EXCERPT = 200  # columns of a source line that an error shows: in a longer line, those around the error's column


def excerpt(at: Location) -> list[str]:
    """Return the source line, and a line with a caret under the expression; [] for a source that cannot be shown."""
    try:
        text = linecache.getline(at.file, at.line).rstrip("\n") if is_known_source(at.file) else ""
    except (LookupError, UnicodeError):     # the file declares a codec that is no encoding of texts, or not its own
        return []
    if not text.strip():
        return []
    number = f"{at.line:5d}"
    width = max(1, (at.end_column or at.column + 1) - at.column)
    width = min(width, max(1, len(text) - at.column))
    first = max(0, at.column - EXCERPT // 2) if len(text) > EXCERPT else 0
    shown_text = text[first:first + EXCERPT]
    width = min(width, max(1, len(shown_text) - (at.column - first)))
    return [f"{number} | {shown_text}", f"{' ' * len(number)} | {' ' * (at.column - first)}{'^' * width}"]


# -- rules of the device -----------------------------------------------------------------------------------------------
# ``NKI_MLIR_DEVICE_RULES`` says how a broken rule is reported. A rule is uncertain if documents contradict each other,
# or code that ran on devices breaks it. By default, breaking a certain rule is an error; breaking an uncertain one is a
# warning, and so is a mere risk (too much memory at once, values outside a function's domain).

class DeviceRules(Enum):
    OFF = "off"
    WARN = "warn"
    SPLIT = ""
    ERROR = "error"


class UnknownRulesLevel(NkiMlirError, ValueError):
    code = "NKI-DEVICE-RULES"
    message = "NKI_MLIR_DEVICE_RULES cannot be '{found}'"
    fix = ("set it to off, warn or error; by default a broken rule is an error, or a warning if the documents "
           "contradict each other")


class DeviceRuleWarning(UserWarning):
    """Warns of a rule of the device that a kernel may break."""


LEVEL, _levels = EnvironmentVariable("NKI_MLIR_DEVICE_RULES"), {level.value: level for level in DeviceRules}


def device_rules() -> DeviceRules:
    """Return the level that ``NKI_MLIR_DEVICE_RULES`` sets; raise ``UnknownRulesLevel`` for any other text."""
    level = LEVEL.text()
    if level not in _levels:
        raise UnknownRulesLevel(found=level)
    return _levels[level]


def report(error: NkiMlirError, level: DeviceRules, at: Location | None, uncertain: bool = True) -> None:
    """Raise the error of a broken rule, or warn of it, once a line; ``at`` is the location in the kernel."""
    if level is DeviceRules.OFF:
        return
    if level is DeviceRules.ERROR or (level is DeviceRules.SPLIT and not uncertain):
        raise error.located(at)
    _, fix = error.advice
    text = f"{error.headline} [{error.code}]" + (f"; {fix}" if fix else "")
    warn_once(text, DeviceRuleWarning, error.at or at)
