# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generalized IoU of 1024 x 256 pairs: the C++ operator in both builds, beside the NKI kernel and the libraries."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import giou as example
from case import Case, case

from cases.boxes import pairs
from nki_mlir import customop

SOURCES = Path(example.__file__).parent / "custom_operators"


@case("custom_operator")
def operators() -> Case:
    case_of_boxes = pairs(1024, 256)
    folder = tempfile.TemporaryDirectory()          # lives as long as the operators

    def operator(checked: bool) -> Any:
        library = customop.load("giou" + "_checked" * checked, [SOURCES / "giou.cpp"], [SOURCES / "giou_shape.cpp"],
                                folder.name, multicore=True, checked=checked)
        boxes = [x.reshape(1024, 256, 4) for x in case_of_boxes.arrays]
        return lambda: (folder, library.giou(*boxes))[1]
    return replace(case_of_boxes, more={"C++ operator": lambda: operator(False),
                                        "C++, checked": lambda: operator(True)})
