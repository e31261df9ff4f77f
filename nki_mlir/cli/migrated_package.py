# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A copy of a package for ``nki-migrate --check``: it has the new forms of the modules that a file imports, and no
others.

The checked file is migrated together with the modules that its import statements name. A module whose name is known
only at run time (``importlib.import_module``) is migrated when Python looks for it.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from nki_mlir.language.signatures.table import RELEASES
from nki_mlir.migration.files import migrated
from nki_mlir.migration.import_graph import reachable_files, with_package_renamed


class MigratedPackage(MetaPathFinder):
    """Writes new forms of a package's files to a folder, as a package of another name."""

    def __init__(self, old: Path, directory: Path) -> None:
        self.old, self.name = old, f"{old.name}_migrated"
        self.new = directory / self.name
        self.migrated_files: set[Path] = set()
        self.reported: set[tuple[Path, int]] = set()

    def migrate(self, file: Path, text: str | None = None) -> Path:
        """Write the new forms of a file and of the modules that it imports; return the file's. ``text`` is the file's
        new form, if it exists already."""
        files, calls = reachable_files(file, self.old)
        for call in calls:
            if f"'{self.old.name}." in call.text and (call.file, call.line) not in self.reported:
                self.reported.add((call.file, call.line))
                print(f"{call.file}:{call.line}: not followed: {call.text} imports the old form of a module, because "
                      "it has the name of the package", file=sys.stderr)
        for result in migrated(self.old, RELEASES[-1], [f for f in files if f not in self.migrated_files]):
            self._write(result.path, text if text is not None and result.path == file else result.new)
        self.migrated_files |= {*files}
        return self.new / file.relative_to(self.old)

    def _write(self, file: Path, text: str) -> None:
        copy = self.new / file.relative_to(self.old)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(with_package_renamed(text, self.old.name, self.name), encoding="utf-8")
        for other in file.parent.iterdir():             # files of data, which modules find beside themselves
            if other.suffix != ".py" and other.is_file() and not (copy.parent / other.name).exists():
                (copy.parent / other.name).symlink_to(other)

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
                  ) -> ModuleSpec | None:
        """Migrate a module of the package that Python looks for and that no text named, so that Python finds it."""
        head, *parts = fullname.split(".")
        if head != self.name or not parts:
            return None
        module = self.old.joinpath(*parts)
        if module.is_dir():
            self.new.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file() and file not in self.migrated_files:
                self.migrate(file)
                importlib.invalidate_caches()
        return None
