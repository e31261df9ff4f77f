# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of signatures has what was read from the documents of every release, name by name."""

import json
import os
import re
from pathlib import Path

import pytest

from nki_mlir.language.signatures.table import GONE, RELEASES, histories, parsed, releases_with

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = Path(os.environ.get("NKI_MLIR_SHARED", ROOT.parent / "shared")) / "spec" / "releases.json"
pytestmark = pytest.mark.skipif(not DOCUMENT.is_file(), reason="the documents' facts are not on this machine")
READ = json.loads(DOCUMENT.read_text()) if DOCUMENT.is_file() else {"names": {}, "meta": {"releases": []}}


def short(release):
    return release.removesuffix(".0")


def order(release):
    return [int(part) for part in release.split(".")]


def test_releases_are_those_of_the_documents():
    assert RELEASES == tuple(short(r["release"]) for r in READ["meta"]["releases"])


def test_names_are_those_of_the_documents():
    assert histories().keys() == READ["names"].keys() and len(histories()) == 296


@pytest.mark.parametrize("name", READ["names"])
def test_history(name):
    entry = READ["names"][name]
    texts = {short(k): text for k, text in entry.items() if k[0].isdigit()}
    expected = texts | {short(r): GONE for r in entry.get("removed", ())}
    shortened = {release: text.split(" + ")[0] for release, text in histories()[name]}
    assert shortened == {r: t.replace("on a page only, no stub", "page") for r, t in expected.items()}
    assert [r for r, _ in histories()[name]] == sorted(shortened, key=order)
    for release, keywords in entry.get("described_not_in_signature", {}).items():
        if entry["kind"] == "function" and texts[short(release)].startswith("("):
            described = dict(histories()[name])[short(release)].partition(" + ")[2].split(", ")
            assert {k for k in keywords if k not in ("return", "dst", "out_tensor")} == {k for k in described if k}
    state, present = GONE, []
    for release in RELEASES:
        state = expected.get(release, state)
        present += [release] * (state != GONE)
    assert releases_with(name) == tuple(present)


@pytest.mark.parametrize("name", [n for n, e in READ["names"].items() if e["kind"] in ("function", "method")])
def test_parameters_are_read_as_they_are_written(name):
    for release, text in histories()[name]:
        if text.startswith("("):
            signature = parsed(release, text)
            written = text.partition(" + ")[0][1:].rpartition(")")[0]
            bare = re.sub(r"=(\([^)]*\)|\[[^\]]*\]|[^,]*)", "", written)
            names = [p.strip() for p in bare.split(",") if p.strip() and not p.strip().startswith("*")]
            assert [p.name for p in signature.parameters] == names
            after = [p.strip() for p in bare.split("*", 1)[1].split(",")] if "*" in bare else []
            assert {p.name for p in signature.parameters if p.keyword_only} == set(names) & set(after)
