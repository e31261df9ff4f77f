# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the device: what becomes of one that a kernel breaks, by ``NKI_MLIR_DEVICE_RULES``.

A rule is broken for certain, or contested: documents contradict each other there, or code that ran on devices breaks
it. Unset, the first are errors, the others warnings; what a kernel merely risks (too much memory at once, values
outside a function's domain) is a warning as well.
"""

from enum import Enum

from nki_mlir.diagnostics.errors import Location, NkiMlirError, warn_once
from nki_mlir.environment import EnvironmentVariable

VARIABLE = "NKI_MLIR_DEVICE_RULES"


class DeviceRules(Enum):
    OFF = "off"
    WARN = "warn"
    SPLIT = ""
    ERROR = "error"


class UnknownRulesLevel(NkiMlirError, ValueError):
    code = "NKI-DEVICE-RULES"
    message = "NKI_MLIR_DEVICE_RULES is '{found}'"
    fix = "set it to off, warn or error; unset, broken rules are errors and doubtful ones warnings"


class DeviceRuleWarning(UserWarning):
    """A rule of the device that a kernel may break."""


LEVEL, _levels = EnvironmentVariable(VARIABLE), {level.value: level for level in DeviceRules}


def device_rules() -> DeviceRules:
    """The level that the environment asks for."""
    found = LEVEL.text()
    if found not in _levels:
        raise UnknownRulesLevel(found=found)
    return _levels[found]


def report(error: NkiMlirError, level: DeviceRules, at: Location | None, contested: bool = True) -> None:
    """Raise the error of a broken rule, or warn of it, once a line; ``at`` is where the kernel breaks it."""
    if level is DeviceRules.OFF:
        return
    if level is DeviceRules.ERROR or (level is DeviceRules.SPLIT and not contested):
        raise error.located(at)
    _, fix = error.advice
    text = f"{error.headline} [{error.code}]" + (f"; {fix}" if fix else "")
    warn_once(text, DeviceRuleWarning, error.at or at)
