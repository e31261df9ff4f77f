# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Details of rewritten texts: comments of statements that go, shapes of tiles that an instruction needs."""

from pathlib import Path

import pytest

from nki_mlir.migration.files import migrated

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, index):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
"""


def rewritten(folder: Path, body: str) -> list[str]:
    """Return the lines that the body of a kernel becomes."""
    file = folder / "kernel.py"
    file.write_text(HEADER + "".join(f"    {line}\n" for line in body.splitlines()) + "    return out\n")
    one, = migrated(file, "2.32")
    lines = one.new.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("    out = "))
    return [line.strip() for line in lines[start + 1:-1]]


def test_comments_of_removed_statements__stay_in_front_of_the_next(tmp_path):
    assert rewritten(tmp_path, """# rows
i_p = nl.arange(128)[:, None]
# columns
i_f = nl.arange(64)[None, :]
# all of it
t = nl.load(x[i_p, i_f])
nl.store(out[i_p, i_f], t)""") == [
        "# rows", "# columns", "# all of it", "t = nl.load(x[0:128, 0:64])", "nl.store(out, t)"]


@pytest.mark.parametrize(("count", "shape"), [("", "(128, 1, 16)"), (", num_elem_per_idx=2", "(128, 1, 16, 2)")])
def test_local_gather__has_16_results_for_each_column_of_indices(count, shape, tmp_path):
    lines = rewritten(tmp_path, f"t = nl.load(x)\ni = nl.load(index[0:128, 0:1])\nr = nisa.local_gather(t, i{count})")
    assert f"r = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.sbuf)" in lines
