# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles as tables of the vendor's schema: what belongs together has one sum, what is not known is null."""

import re
import sys
from itertools import pairwise

import pytest

from nki_mlir.cli.run import main
from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary
from nki_mlir.targets.neuron.profile.vendor_tables import NoParquet, vendor_tables, write_tables
from tests.targets.neuron.profile.kernels import ROOT, streams

MATMUL = "examples/matmul.py:matmul_tiled"


@pytest.fixture(scope="module")
def profile():
    return profile_of(streams(MATMUL, "256x256xbf16", "256x1024xbf16"))


@pytest.fixture(scope="module")
def tables(profile):
    return vendor_tables(profile)


def test_sums_of_the_tables_are_those_of_the_summary(profile, tables):
    summary, rows = tables["Summary"][0], tables["Instruction"]
    assert summary.items() <= vendor_summary(profile).items() and len(rows) == profile["timing"]["instructions"]
    for name in ("hbm_read_bytes", "hbm_write_bytes"):
        assert sum(row[name] or 0 for row in rows) == summary[name]
    assert sum(row["raw_flops"] or 0 for row in rows) == summary["hardware_flops"]
    assert sum(row["opcode"] == "MATMUL" for row in rows) == summary["matmul_instruction_count"]
    assert max(row["end_ts"] for row in rows) <= tables["Metadata"][0]["last_hw_timestamp"]
    moved = tables["DmaPacketAggregated"]
    assert sum(row["transfer_bytes"] for row in moved) == summary["dma_transfer_total_bytes"]


def test_readers_find_the_shape_of_a_product(tables):
    row = next(row for row in tables["Instruction"] if row["opcode"] == "MATMUL")
    k, m = map(int, re.search(r"(\d+)\*(\d+)\s*$", row["operands"]).groups())
    n = int(re.search(r"src=\S+\[[\d,\-]+\]\[(\d+),", row["operands"])[1])
    assert row["raw_flops"] == 2 * k * m * n and row["engine"] == "Tensor" and row["tensor_instruction_type"] == "REGULAR"
    assert re.search(r"examples/matmul\.py:\d+$", row["bir_debug_info_source_location"])


def test_each_transfer_has_the_instruction_that_triggers_it(tables):
    instructions = {row["id"]: row for row in tables["Instruction"]}
    triggers = [row for row in tables["Flow"] if row["dependency_type"] == "DGE_TRIGGER"]
    assert sorted(row["out_id"] for row in triggers) == [row["id"] for row in tables["DmaPacketAggregated"]]
    for row in triggers:
        own = instructions[row["in_id"]]
        assert own["hbm_read_bytes"] or own["hbm_write_bytes"]
        assert row["gap_time"] >= 0


def test_engines_are_active_where_their_instructions_run(tables):
    for engine in ("tensor", "sync"):
        spans = [(row["start_ts"], row["end_ts"]) for row in tables["ActiveTime"] if row["engine"] == engine]
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        ran = sum(row["duration_ns"] for row in tables["Instruction"] if row["engine"].lower() == engine)
        assert sum(end - begin for begin, end in spans) == ran


def test_what_is_not_known_is_null(tables):
    assert tables["Summary"][0]["mfu_hlo_estimated_percent"] is None
    assert tables["Instruction"][0]["crc_in"] is None and tables["Metadata"][0]["runtime_version"] is None
    assert tables["Metadata"][0]["is_simulation"] is True and tables["Metadata"][0]["profile_schema_version"] == "7.4.0"
    assert tables["Warning"][0]["message"].startswith("simulated")
    described = {(row["table_name"], row["field_name"]) for row in tables["SchemaFields"]}
    assert described == {(name, field) for name, rows in tables.items() if rows and name != "SchemaFields" for field in rows[0]}


def test_the_command_writes_them(tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    command = [f"{ROOT / MATMUL}", "--arg=256x256xbf16", "--arg=256x1024xbf16", "--time", "--profile", str(tmp_path)]
    assert main([*command, "--format", "neuron-explorer"]) == 0
    folder = tmp_path / "profiles" / "global" / "matmul_tiled@latest"
    assert f"wrote {folder / 'Summary.parquet'}" in capsys.readouterr().out
    summary, = parquet.read_table(folder / "Summary.parquet").to_pylist()
    rows = parquet.read_table(folder / "Instruction.parquet").to_pylist()
    assert summary["mfu_hlo_estimated_percent"] is None
    assert sum(row["raw_flops"] or 0 for row in rows) == summary["hardware_flops"] == 2 * 256 * 256 * 1024


def test_without_pyarrow_it_is_an_error(profile, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NoParquet) as error:
        write_tables(profile, tmp_path)
    assert str(error.value) == ("error: tables of the vendor's schema need pyarrow, which is not installed [NKI-PROFILE-PARQUET]\n"
                                "  fix: pip install 'nki_mlir[profile]'")


def test_a_format_is_of_a_profile(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([f"{ROOT / MATMUL}", "--time", "--format", "neuron-explorer"])
    assert "--format is of what --profile writes" in capsys.readouterr().err
