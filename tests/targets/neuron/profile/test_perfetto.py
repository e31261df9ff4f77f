# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The trace: valid events of Chrome's JSON form, with the slices, arrows and counters of the document."""

import gzip
import json

import pytest

from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.perfetto import trace
from tests.targets.neuron.profile.kernels import streams


@pytest.fixture(scope="module")
def profile():
    return profile_of(streams("examples/matmul.py:matmul_tiled", "256x256xbf16", "256x1024xbf16"))


@pytest.fixture(scope="module")
def events(profile):
    return json.loads(gzip.decompress(trace(profile)))["traceEvents"]


def test_slices_are_those_of_the_document(profile, events):
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(profile["slices"]["begin"])
    assert [e["ts"] * 1e3 for e in complete] == pytest.approx(profile["slices"]["begin"])
    assert all(e["dur"] >= 0 and e["args"]["instruction"] for e in complete)
    assert any(e["name"] == "MATMUL matmul.py:33" for e in complete), {e["name"] for e in complete}


def test_slices_of_a_thread_do_not_overlap(events):
    until = {}
    for e in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        thread = e["pid"], e["tid"]
        assert e["ts"] >= until.get(thread, 0.0) - 1e-9
        until[thread] = e["ts"] + e["dur"]


def test_threads_have_names(profile, events):
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {"tensor", "sync"} <= set(names.values()) and any(n.startswith("q") for n in names.values())
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xsf"} <= names.keys()
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["core 0"]


def test_arrows_come_in_pairs_and_begin_in_slices(profile, events):
    starts, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys() and len(starts) == len(profile["edges"]) > 0
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for one in (*starts.values(), *ends.values()):
        assert (one["pid"], one["tid"], one["ts"]) in slices
    assert all(starts[k]["ts"] <= ends[k]["ts"] for k in starts)


def test_counters(profile, events):
    counted = {e["name"] for e in events if e["ph"] == "C"}
    assert counted == {"SBUF bytes", "PSUM bytes", "HBM GB/s", "speed of the tensor engine"}
    sbuf = [e["args"]["bytes"] for e in events if e["name"] == "SBUF bytes"]
    assert max(sbuf) == profile["memory"]["cores"][0]["sbuf"]["peak"]


def test_the_same_profile_is_the_same_file(profile):
    assert trace(profile) == trace(profile)
