# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measurements of the calibration kernels: the CSV that they print on a device, or the prediction of the model."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from nki_mlir.diagnostics import Location, NkiMlirError

COLUMNS = ("kernel", "reps", "elements", "ns")
KERNELS = ("vector_stream", "vector_chain", "scalar_stream", "gpsimd_stream", "tensor_stream", "transfers",
           "transfers_beside")
SHOWN = 80                      # most characters of a line in an error
LEAST, MOST = 1e-9, 1e15        # of the numbers of a row, whose squares a fit adds


class Measurement(NamedTuple):
    """The latency in ns of a kernel that executes an instruction ``reps`` times on ``elements`` elements of a
    partition."""

    kernel: str
    reps: int
    elements: int
    ns: float


class BadMeasurements(NkiMlirError):
    code = "NKI-CALIBRATE-CSV"
    message = "{text}"
    fix = "give the output of the kernels that nki-calibrate --kernels prints: kernel,reps,elements,ns"

    @classmethod
    def at_line(cls, file: str, line: int, text: str) -> "BadMeasurements":
        """Return the error of a line of a file."""
        error = cls(text)
        error.at = Location(file, line, 0)
        return error


def source_of(generation: str) -> Path:
    """Return the file with the kernels of a generation: text to print, not a module of the package."""
    return Path(__file__).parent / f"{generation}.txt"


def read_measurements(lines: Iterable[str], file: str) -> list[Measurement]:
    """Read the rows of a CSV, in any order and with repetitions. Raise ``BadMeasurements`` if one is malformed."""
    rows = csv.reader(lines)
    try:
        head = ",".join(next(rows, []))
        if tuple(name.strip() for name in head.split(",")) != COLUMNS:
            raise BadMeasurements.at_line(file, 1, f"the first line is {head[:SHOWN]!r}, not {','.join(COLUMNS)}")
        return [_measurement(row, file, rows.line_num) for row in rows if row]
    except csv.Error as error:              # a field of more than 131,072 characters
        raise BadMeasurements.at_line(file, rows.line_num, f"the line is not CSV, {error}") from None


def _measurement(row: list[str], file: str, line: int) -> Measurement:
    shown = ",".join(row)[:SHOWN]
    try:
        kernel, reps, elements, ns = (text.strip() for text in row)
        measurement = Measurement(kernel, int(reps), int(elements), float(ns))
    except ValueError:
        raise BadMeasurements.at_line(file, line, f"{shown!r} is not a measurement") from None
    if kernel not in KERNELS:
        raise BadMeasurements.at_line(file, line, f"there is no kernel {kernel[:SHOWN]!r} in the set")
    numbers = measurement[1:]
    if not all(number > 0 for number in numbers):
        raise BadMeasurements.at_line(file, line, f"{shown!r}: numbers are positive")
    if not all(LEAST <= number <= MOST for number in numbers):
        raise BadMeasurements.at_line(file, line, f"{shown!r}: numbers are from {LEAST:g} to {MOST:g}")
    return measurement


def csv_lines(measurements: Iterable[Measurement]) -> Iterator[str]:
    """Return the lines of the CSV."""
    yield ",".join(COLUMNS)
    for measurement in measurements:
        yield f"{measurement.kernel},{measurement.reps},{measurement.elements},{measurement.ns:.1f}"
