# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The seeded faults fit the front end as it is; `make faults` hunts them."""

from tools.seeding import ROOT

from .faults import FAULTS


def test_each_fault_has_its_place():
    assert {f.title: (ROOT / "nki_mlir" / f.file).read_text().count(f.old) for f in FAULTS} == dict.fromkeys(
        (f.title for f in FAULTS), 1)
    assert len(FAULTS) >= 60 and all(f.old != f.new for f in FAULTS)
