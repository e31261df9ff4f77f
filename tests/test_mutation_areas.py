# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The areas of the table of mutants cover the package."""

from collections import Counter

from tools.mutation import AREAS, area_of, is_current, modules, reasons
from tools.seeding import PACKAGE, ROOT


def test_each_module_belongs_to_one_area() -> None:
    """An area names each module or a folder around it, and no two areas name the same."""
    files = {str(file.relative_to(ROOT / PACKAGE)) for file in (ROOT / PACKAGE).rglob("*.py")}
    assert sorted(files - {*modules()}) == []
    assert [part for part, areas in Counter(part for parts in AREAS.values() for part in parts).items()
            if areas > 1] == []
    assert {area_of(file) for file in files} == {*AREAS}


def test_areas_name_files_that_exist() -> None:
    """Each part of an area is a module or a folder with modules."""
    parts = [part for parts in AREAS.values() for part in parts]
    assert [part for part in parts if not (ROOT / PACKAGE / part).exists()] == []


def test_reasons_of_survivors_name_code_that_exists() -> None:
    """Code that has changed may have a mutant that a test finds: its reason no longer holds."""
    assert [change for change in reasons() if not is_current(change)] == []
    assert not is_current("scalar/alu.py: e.minui(b, e.const(b, 1)) -> (e.minui(e.const(b, 1), b))")
    assert not is_current("scalar/no_such_module.py: a == b -> (a != b)")


def test_the_nearest_folder_decides() -> None:
    """A module within a folder of another area belongs to the area that names more of its path."""
    assert area_of("capture/eager.py") == "executors"
    assert area_of("capture/races/overlaps.py") == "checkers"
    assert area_of("capture/tensor.py") == "front end"
    assert area_of("targets/runtime/jit.py") == "executors"
    assert area_of("targets/neuron/profile/document.py") == "times"
    assert area_of("elsewhere.py") == ""
