# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads a module with another code than its file has."""

from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType


class Finder:
    """Finds a module and loads it with another code."""

    def __init__(self, name: str, file: str, code: CodeType) -> None:
        self.name, self.file, self.code = name, file, code

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        return spec_from_file_location(name, self.file, loader=_Loader(name, self.file, self.code))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, file: str, code: CodeType) -> None:
        super().__init__(name, file)
        self.code = code

    def get_code(self, fullname: str) -> CodeType:
        return self.code
