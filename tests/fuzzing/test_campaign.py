# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A few random inputs of each entry: `make fuzz` gives them many. What fails comes again with the seed and number said."""

import os
from pathlib import Path

import pytest

from . import campaign
from .campaign import ENTRIES, Outcome, batch, drawn, outcome


@pytest.mark.parametrize("entry", ENTRIES)
def test_inputs_end_as_a_result_or_an_error_of_ours(entry, tmp_path):
    outcomes = batch(entry, 0, 0, 8, tmp_path)
    assert len(outcomes) == 8 and not [one for one in outcomes if one.stage == "failed"]
    assert sum(one.stage in ("read", "executed") for one in outcomes) >= 2


CORPUS = sorted(file for file in (Path(__file__).parent / "corpus").rglob("*") if file.is_file())


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name} {file.name}")
def test_inputs_that_failed_once_do_so_no_more(file, tmp_path):
    content = file.read_bytes() if file.parent.name == "binary" else file.read_text()
    assert outcome(file.parent.name, content, tmp_path).stage in ("refused", "read", "executed")


def test_an_input_comes_again_by_its_number():
    assert drawn("nisa", 1, 5) == drawn("nisa", 1, 5) != drawn("nisa", 1, 6)


@pytest.mark.parametrize("what, message", [
    (lambda drawn, folder: os.abort(), "the process ended with -6"),
    (lambda drawn, folder: [][0], "IndexError: list index out of range")])
def test_what_ends_the_process_and_what_raises_are_failures(what, message, tmp_path, monkeypatch):
    monkeypatch.setitem(campaign.ENTRIES, "broken", (lambda rng, pool: "", what))
    last = batch("broken", 0, 0, 3, tmp_path)[-1]
    assert isinstance(last, Outcome) and last.stage == "failed" and message in last.rule


def test_a_second_run_counts_on_from_the_first(tmp_path):
    file = tmp_path / "counts.json"
    assert campaign.Counts.read(file, None) is None
    for inputs in (3, 5):
        counts = campaign.Counts.read(file, 7) or campaign.Counts(7, {"configs": campaign.Tally()}, file)
        campaign.campaign(["configs"], counts, inputs, 600, 1)
        tally = campaign.Counts.read(file, None).tallies["configs"]
        assert tally.tried == tally.following == inputs and tally.seconds > 0
        assert tally.rules.total() == tally.stages["refused"] and "" not in tally.rules
    with pytest.raises(SystemExit, match="counts inputs of seed 7, not 8"):
        campaign.Counts.read(file, 8)
