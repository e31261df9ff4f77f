# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write ``docs/numerics.md``: the error of each scalar function and conversion on each executor.

The figures come from ``bench/numeric_errors.json``, which ``make numerics`` measures. ``--check`` writes nothing
and exits with status 1 if the page differs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.mathematics import MATH

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "numeric_errors.json"
PAGE = ROOT / "docs" / "numerics.md"
EXECUTORS = ("eager", "interpreter", "jit", "isa")
# The error bound of NumPy's functions of float32, with which eager, interpreter and simulator compute.
OF_NUMPY = 4.0

Errors = Mapping[str, float | None]

HEAD = """# Numbers

This page says how far each function and conversion is from the exact value, on each executor, and in which order sums
are added. `tools/numerics.py` (`make docs`) writes it from `bench/numeric_errors.json`; `make numerics` measures the
errors again, which takes some 20 minutes.

Errors are in units in the last place (ulp) of the result's dtype, against formulas in float64: a correctly rounded
result has at most 0.5, an exact one 0. The arguments are {values:,} values of float32 (edges, random bits, numbers of
usual sizes) and all values of the narrower dtypes; for functions of two numbers, all pairs of 8-bit values. Infinity
counts as the next value after the largest. NaN must be where the formula has it. The sign of a zero does not count.

A single figure is the error of all four executors; four figures belong to `eager`, `interpreter`, `jit` and `isa`.
`eager`, `interpreter` and the simulator compute with NumPy, `jit` with expansions of the scalar library. The
measurements used NumPy {numpy} on {machine}{simd}: NumPy chooses the form of a function by the processor.
"""
ORDER = """
## The order of sums

By default the executors add sums and products of matrices in the order that is fastest on the host, in blocks and lanes
of vectors. Two executors may then round differently. `NKI_MLIR_SUMS=device`, which you set before the process runs
kernels, selects the order of the device, as far as documents describe it:

- a sum, product, difference or mean along the free dimension combines the elements of a lane one after the other, in
  float32;
- `nc_matmul` instructions that accumulate add their results in PSUM one after the other, in the order of the tensor
  engine's stream; each result is a float32;
- for the sum within an instruction, documents give no order. nki_mlir adds in the order of the rows of the array, from
  partition 0 on, and rounds each product to float32 before it adds it.

All executors then compute the same bits. Native code adds in lanes, so with this option the executor `jit` runs kernels
on the interpreter; calls within programs of JAX and PyTorch on the CPU do not change.
"""


def text_of(number: float | None) -> str:
    if number is None:
        return "refused"
    return f"{number:.3g}" if number < 1000 else f"{number:.2g}"


def cell(errors: Errors | None) -> str:
    """Return a single figure if the executors agree, else one for each."""
    if errors is None:
        return ""
    texts = [text_of(errors[on]) for on in EXECUTORS if on in errors]
    return texts[0] if len(set(texts)) == 1 else " · ".join(texts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines) + "\n"


def bound(name: str) -> str:
    """Return the error bound that the library guarantees for its expansion."""
    entry = ACTIVATIONS.get(name) or ALU.get(name) or MATH[name]
    allowed = getattr(entry, "absolute", 0.0)
    ulp = entry.ulp if not (name in ALU and name not in ACTIVATIONS and entry.ulp == 0) else 0.5
    return f"{ulp:g}" + (f" + {allowed:.1e}" if allowed else "")


def functions(errors: Mapping[str, Mapping[str, Errors]]) -> str:
    """Return the table of a group of functions, with a column for each dtype."""
    dtypes = list(dict.fromkeys(d for by in errors.values() for d in by))
    return table(["function", "bound", *dtypes],
                 [[f"`{name}`", bound(name), *(cell(by.get(d)) for d in dtypes)] for name, by in errors.items()])


def bits(errors: Mapping[str, Mapping[str, Errors]]) -> str:
    """Return the table of the functions of bits: their difference from the exact integers."""
    dtypes = list(dict.fromkeys(d for by in errors.values() for d in by))
    return table(["function", *dtypes],
                 [[f"`{name}`", *(cell(by.get(d)) for d in dtypes)] for name, by in errors.items()])


def conversions(errors: Mapping[str, Mapping[str, Errors]]) -> str:
    """Return the table of conversions, with a row for each source dtype."""
    dtypes = list(dict.fromkeys(d for by in errors.values() for d in by))
    return table(["from \\ to", *errors], [[f"`{d}`", *(cell(by.get(d)) for by in errors.values())] for d in dtypes])


def page() -> str:
    document: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    errors, host = document["errors"], document["host"]
    simd = " with AVX-512" if host["avx512"] else ""
    parts = [HEAD.format(values=document["values"], numpy=host["numpy"], machine=host["machine"], simd=simd), ORDER]
    parts.append(f"""
## Functions of one number

"Bound" is the error that the library guarantees for its expansion in float32. A second number is an absolute error that
is allowed in addition near zeros of a function that float32 cannot represent. NumPy's functions have errors
of at most {OF_NUMPY:g}. The engines compute tiles of narrower dtypes in float32 and round once more.

{functions(errors["one"])}
`average` is half of the sum as it is rounded.

## Functions of two numbers, and selection

{functions(errors["two"])}
## Functions of bits

The table compares the results with exact integers; 0 means that they are equal.

{bits(errors["bits"])}
## Functions that only graphs have

Programs of JAX and PyTorch use these functions, here on float32; on instruction streams each takes several
instructions. `copysign` is exact, and `quotient` divides integers and drops the remainder.

{table(["function", "bound", "jit", "isa"],
       [[f"`{name}`", bound(name), *(text_of(by[on]) for on in ("jit", "isa"))]
        for name, by in document["graphs"].items()])}
## Conversions

Errors of conversions to integers are absolute: 0.5 is rounding to nearest. As the engines do, a conversion rounds an
integer that the float dtype cannot represent to float32 first, so a bfloat16 result may be slightly more than half a
unit off.

{conversions(errors["conversions"])}""")
    return "".join(parts)


def main() -> None:
    new_page = page()
    if "--check" in sys.argv[1:]:
        sys.exit(int(new_page != PAGE.read_text(encoding="utf-8")))
    PAGE.write_text(new_page, encoding="utf-8")


if __name__ == "__main__":
    main()
