# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds and loads the extensions of plugins: operations, passes, pipelines, targets and executors.

A plugin is a package. An installed one is found by its entry points in the groups ``nki_mlir.ops``, ``.passes``,
``.pipelines``, ``.targets`` and ``.executors``; otherwise the user names a module, whose table ``NKI_MLIR_PLUGIN``
lists the extensions. An extension is imported at first use, after its version of the interface is compared.
"""

import importlib
import os
import reprlib
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nki_mlir.alone import keep_last_collection
from nki_mlir.diagnostics import NkiMlirError, text_of

API_VERSION = 1
EXECUTORS = ("eager", "interpreter", "jit", "isa")
GROUPS = ("ops", "passes", "pipelines", "targets", "executors")
PREFIX = "nki_mlir."
TABLE, VERSION = "NKI_MLIR_PLUGIN", "NKI_MLIR_API"      # names in a plugin's modules
SWITCH = "NKI_MLIR_PLUGINS"                             # off: installed plugins are not looked for


class BrokenPlugin(NkiMlirError):
    code = "NKI-PLUGIN"
    message = "{what} of plugin {origin} cannot be loaded: {text}"
    fix = "fix or uninstall the plugin; NKI_MLIR_PLUGINS=off ignores installed plugins"


class AbsentPlugin(BrokenPlugin):
    fix = "run the command in the directory that has {origin}, or add that directory to PYTHONPATH"


class NoPluginTable(BrokenPlugin):
    fix = ("write {what} into {origin}, for example {what} = {{'passes': {{'mine': '{origin}.passes'}}}}; "
           "docs/plugins.md")


class PluginVersion(NkiMlirError):
    code = "NKI-PLUGIN-VERSION"
    message = "plugin {origin} is for version {found} of the plugin interface; this is version {version}"
    why = "the interface for plugins has a version (docs/plugins.md)"
    fix = "update the package to this version, and write NKI_MLIR_API = {version} into {package}"


class SameName(NkiMlirError):
    code = "NKI-PLUGIN-NAME"
    message = "{what} '{name}' comes from {one} and from {other}"
    fix = "rename one of the two, or uninstall a plugin"


class Extension(NamedTuple):
    """An extension of a plugin: its group and name, its module or module:attribute, and the plugin's name."""

    group: str
    name: str
    value: str
    origin: str

    @property
    def module(self) -> str:
        return self.value.partition(":")[0]


_loaded: list[Extension] = []           # extensions of plugins that were loaded by name


def of(group: str) -> dict[str, Extension]:
    """Return the extensions of a group, by name."""
    extensions: dict[str, Extension] = {}
    for extension in (*installed(), *_loaded):
        if extension.group == group:
            first = extensions.setdefault(extension.name, extension)
            if first.value != extension.value:
                raise SameName(what=f"{PREFIX}{group}", name=extension.name, one=first.origin, other=extension.origin)
    return extensions


@cache
def installed() -> tuple[Extension, ...]:
    """Return the entry points of installed packages, the first on the path of each name.

    It reads their files: importing Python's module for entry points takes longer than all of this.
    """
    if os.environ.get(SWITCH) == "off":
        return ()
    files: dict[str, Path] = {}
    for folder in sys.path:
        for name in sorted(_listed(folder)):
            if name.endswith((".dist-info", ".egg-info")):
                files.setdefault(name.partition("-")[0].lower(), Path(folder, name, "entry_points.txt"))
    return tuple(extension for origin, file in files.items() if file.is_file()
                 for extension in _entries(file.read_text(encoding="utf-8", errors="replace"), origin))


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder or ".")
    except OSError:                                 # archives, and missing files
        return []


def _entries(text: str, origin: str) -> Iterator[Extension]:
    group = ""
    for line in text.splitlines():
        if line.startswith("["):
            group = line.strip().strip("[]")
        elif group.startswith(PREFIX) and group.removeprefix(PREFIX) in GROUPS and "=" in line:
            name, _, value = (part.strip() for part in line.partition("="))
            yield Extension(group.removeprefix(PREFIX), name, value, origin)


def add(module: str) -> list[Extension]:
    """Load a plugin that need not be installed: import its module, and add the extensions in its table."""
    imported = _imported(module, f"module {module}", module)
    if not hasattr(imported, TABLE):
        raise NoPluginTable(what=TABLE, origin=module, text="the module has no such table")
    extensions = list(_of_table(getattr(imported, TABLE), module))
    _loaded.extend(extension for extension in extensions if extension not in _loaded)
    return extensions


def _of_table(table: object, module: str) -> Iterator[Extension]:
    if not isinstance(table, Mapping) or not all(isinstance(entries, Mapping) and all(
            isinstance(text, str) for item in entries.items() for text in item) for entries in table.values()):
        raise BrokenPlugin(what=TABLE, origin=module, text="it must map each group to a dict of names and modules, got "
                                                           f"{reprlib.repr(table)}")
    for group, entries in table.items():
        if group not in GROUPS:
            raise BrokenPlugin(what=f"group {group!r} in {TABLE}", origin=module,
                               text=f"groups are {', '.join(GROUPS)}")
        for name, value in entries.items():
            yield Extension(group, name, value, module)


def load(extension: Extension) -> Any:
    """Return the module or object of an extension."""
    subject = f"{PREFIX}{extension.group} '{extension.name}'"
    loaded = _imported(extension.module, subject, extension.origin)
    for part in extension.value.split(":")[1:]:
        if not hasattr(loaded, part):
            raise BrokenPlugin(what=subject, origin=extension.origin, text=f"module {extension.module} has no '{part}'")
        loaded = getattr(loaded, part)
    return loaded


def load_module(module: str) -> object:
    """Return a module in a package of passes: of a plugin, if one has that package."""
    for extension in of("passes").values():
        if module.startswith(f"{extension.module}."):
            return _imported(module, f"{PREFIX}passes '{extension.name}'", extension.origin)
    return importlib.import_module(module)


def _imported(module: str, subject: str, origin: str) -> object:
    """Import a plugin's module after a check of its package's version; any failure is reported as the plugin's."""
    if not isinstance(module, str):
        type_name = type(module).__name__
        raise BrokenPlugin(what=subject, origin=origin, text=f"the name of a module is a text, got {type_name}")
    package = module.partition(".")[0]
    keep_last_collection()
    try:
        version = getattr(importlib.import_module(package), VERSION, None)
        if version != API_VERSION:
            raise PluginVersion(origin=origin, found="none" if version is None else version, version=API_VERSION,
                                package=package)
        return importlib.import_module(module)
    except (NkiMlirError, KeyboardInterrupt):
        raise
    except BaseException as error:                  # such as SystemExit
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == package == origin
        raise (AbsentPlugin if is_absent else BrokenPlugin)(
            what=subject, origin=origin, text=f"{type(error).__name__}: {text_of(error)}") from error
