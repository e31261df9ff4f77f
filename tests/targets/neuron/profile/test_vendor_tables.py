# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles as tables of the vendor's schema: what belongs together has one sum, what is not known is null."""

import re
import sys
from itertools import pairwise

import pytest

from nki_mlir.cli.run import main
from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.document import covered
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary
from nki_mlir.targets.neuron.profile.vendor_tables import NoParquet, parquet_bytes, vendor_tables, write_tables
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
        instruction = instructions[row["in_id"]]
        assert instruction["hbm_read_bytes"] or instruction["hbm_write_bytes"]
        assert row["gap_time"] >= 0


def test_engines_are_active_where_their_instructions_run(tables):
    for engine in ("tensor", "sync"):
        spans = [(row["start_ts"], row["end_ts"]) for row in tables["ActiveTime"] if row["engine"] == engine]
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        ran = sum(row["duration_ns"] for row in tables["Instruction"] if row["engine"].lower() == engine)
        assert sum(end - begin for begin, end in spans) == ran


def test_active_times_of_the_summary_are_those_of_the_table(tables):
    """Control instructions count, too: the table has the union of all."""
    summary = tables["Summary"][0]
    for engine in ("tensor", "vector", "scalar", "gpsimd", "sync"):
        active = sum(row["duration_ns"] for row in tables["ActiveTime"] if row["engine"] == engine)
        ran = sum(row["duration_ns"] for row in tables["Instruction"] if row["engine"].lower() == engine)
        assert round(summary[f"{engine}_engine_active_time"] * 1e9) == active <= ran
        assert round(summary[f"{engine}_engine_instruction_time"] * 1e9) == ran


def test_a_gather_reads_the_rows_that_it_moves():
    tables = vendor_tables(profile_of(streams("tests/targets/neuron/profile/vendor_kernels.py:gathered", "4096x256xf32", "128x1xi32")))
    summary = tables["Summary"][0]
    assert summary["hbm_read_bytes"] == 128 * 256 * 4 + 128 * 4 and summary["hbm_write_bytes"] == 128 * 256 * 4
    assert summary["mbu_estimated_percent"] < 1.0


def test_packets_are_the_parts_of_transfers(profile, tables):
    summary, transfers = tables["Summary"][0], {row["id"]: row for row in tables["DmaPacketAggregated"]}
    packets = {number: [row for row in tables["DmaPacket"] if row["packet_aggregation_id"] == number] for number in transfers}
    for number, transfer in transfers.items():
        parts = packets[number]
        assert [row["packet_idx"] for row in parts] == list(range(len(parts)))
        assert sum(row["transfer_bytes"] for row in parts) == transfer["transfer_bytes"]
        assert max(row["end_ts"] for row in parts) == transfer["end_ts"]
        kinds = {row["queue_type"] for row in parts}
        assert kinds == {transfer["queue_type"]} <= {"hardware_dynamic", "software_dynamic"}
    assert {len(parts) for parts in packets.values()} == {16}
    spans = [(row["start_ts"], row["end_ts"]) for row in tables["DmaPacket"]]
    assert covered(spans) == round(summary["dma_active_time"] * 1e9)
    kinds = "static", "software_dynamic", "hardware_dynamic"
    assert sum(summary[f"{kind}_dma_packet_count"] for kind in kinds) == len(tables["DmaPacket"])
    assert sum(summary[f"{kind}_dma_size_percent"] for kind in kinds) == pytest.approx(1.0)


def test_transfers_are_pending_from_their_trigger_to_their_end(tables):
    transfers, rows = tables["DmaPacketAggregated"], tables["PendingDma"]
    assert [row["timestamp"] for row in rows] == sorted({row["timestamp"] for row in rows})
    for row in rows:
        when = row["timestamp"]
        assert row["value"] == sum(one["trigger"] <= when < one["end_ts"] for one in transfers)
    assert rows[-1]["value"] == 0 and max(row["value"] for row in rows) > 1


def test_a_queue_has_a_number_and_a_name(tables):
    queues = {(row["queue_idx"], row["queue_name"]) for row in tables["DmaPacketAggregated"]}
    numbers, names = {number for number, _ in queues}, {name for _, name in queues}
    assert len(queues) == len(numbers) == len(names) > 1 and all(type(number) is int for number in numbers)


def test_tensors_have_what_is_loaded_of_them(tables):
    rows = {row["variable_name"]: row for row in tables["TensorInfo"]}
    assert {name: (row["type"], row["format"], row["shape"], row["size"]) for name, row in rows.items()} == {
        "input0": ("IN", "bfloat16", "[256, 256]", 1 << 17), "input1": ("IN", "bfloat16", "[256, 1024]", 1 << 19),
        "output0": ("OUT", "bfloat16", "[256, 1024]", 1 << 19)}
    assert [row["load_to_sbuf_repeat_factor"] for row in rows.values()] == [1.0, 1.0, 0.0]
    named = [row for row in tables["DmaPacketAggregated"] if row["variable"] == "input0"]
    assert sum(row["transfer_bytes"] for row in named) == rows["input0"]["load_to_sbuf_total_size_bytes"]
    assert {row["source"] for row in named} == {"[[INPUT]]"} and {row["write_num_sbuf_partitions"] for row in named} == {128}


def test_usage_over_time_is_of_what_is_held(profile, tables):
    memory = profile["memory"]
    for table, space in (("SbufUsage", "sbuf"), ("PsumUsage", "psum")):
        room = memory["bytes_per_partition"][space] * memory["partitions"]
        assert max(row["avg_util_percent"] for row in tables[table]) == pytest.approx(memory["cores"][0][space]["peak"] / room)
        assert tables[table][-1]["avg_util_percent"] == 0.0
    assert max(row["bank_0_util_percent"] for row in tables["PsumUsage"]) == 1.0
    assert tables["HbmUsage"][-1]["total_transfer_bytes"] == profile["timing"]["hbm_bytes"]
    assert {row["partition"] for row in tables["SbufAllocation"]} == {0, 32, 64, 96}


def test_the_ramp_is_a_limit_of_the_tensor_engine(profile, tables):
    (ramp,), summary = profile["limited"], vendor_summary(profile)
    limited = sum(ramp["end"]) - sum(ramp["begin"])
    assert limited > 0 and [(row["k"], row["n"], row["type"]) for row in tables["Throttle"]] == [(1, 2, "activity_1")] * len(ramp["end"])
    assert summary["throttle_active_nc0_time_ns"] == round(limited)
    assert summary["throttle_avg_util_limit_nc0_percent"] == pytest.approx(1 - limited / 2 / profile["timing"]["total_ns"])
    assert not any(name.startswith("throttle") for name in tables["Summary"][0])


def test_operations_of_float32_count_four_times():
    summary = vendor_summary(profile_of(streams(MATMUL, "128x128xf32", "128x512xf32")))
    assert summary["adjusted_hardware_flops"] == 4 * summary["hardware_flops"] == 4 * 2 * 128 * 128 * 512


def test_the_table_of_a_thinned_profile_has_no_packets(profile):
    rows = vendor_tables(profile | {"packets": {}})
    assert not rows["DmaPacket"] and rows["Summary"][0]["dma_packet_time"] is None
    assert any("no table DmaPacket, Flow" in row["message"] for row in rows["Warning"])


def test_transfers_have_the_patterns_of_both_sides(tables):
    row = next(row for row in tables["DmaPacketAggregated"] if row["variable"] == "input1")
    assert (row["read_shape"], row["read_steps"], row["write_shape"]) == ("[128, 512]", "[1024, 1]", "[128, 512]")
    assert row["read_offset"].startswith("b") and row["write_offset"].startswith("0x")
    assert row["is_transpose_mode"] is False and row["transpose_element_size"] is None


def test_instructions_have_what_their_transfers_wait_for(tables):
    transfers = {row["in_id"]: tables["DmaPacketAggregated"][row["out_id"]] for row in tables["Flow"]
                 if row["dependency_type"] == "DGE_TRIGGER"}
    for row in tables["Instruction"]:
        moved = transfers.get(row["id"])
        assert (moved is None) == (row["dma_trigger_start_ts"] is None) == (row["weight_queue_bytes"] is None)
        if moved is not None:
            assert (row["dma_trigger_start_ts"], row["dma_trigger_end_ts"]) == (moved["trigger"], moved["completion"])
            assert abs(row["dma_trigger_end_ts"] + row["dma_wait_time_ns"] - moved["start_ts"]) <= 1       # ns are rounded
    assert sum(row["psum_read_sbuf_write_bytes"] for row in tables["Instruction"]) == (
        tables["Summary"][0]["psum_read_sbuf_write_bytes"]) > 0


def test_transposes_of_the_dma_engines_have_their_shapes():
    rows = vendor_tables(profile_of(streams("tests/targets/neuron/profile/vendor_kernels.py:transposed", "128x256xbf16")))
    row = next(row for row in rows["DmaPacketAggregated"] if row["is_transpose_mode"])
    assert (row["transpose_element_size"], row["transpose_from_shape"], row["transpose_to_shape"]) == (
        2, "[128, 128]", "[128, 128]")


def test_functions_and_fast_modes_are_those_of_the_instructions():
    rows = vendor_tables(profile_of(streams("tests/targets/neuron/profile/vendor_kernels.py:fast", "128x512xbf16")))["Instruction"]
    assert {row["scalar_activation_fn"] for row in rows if row["opcode"] == "ACTIVATE"} == {"EXP"}
    modes = {row["opcode"]: row["performance_mode"] for row in rows if row["engine"] == "Vector"}
    assert modes["TENSOR_SCALAR"] == "4x" and modes["TENSOR_TENSOR"] == "2x"


def test_a_trace_counts_instructions_updates_and_packets(tables):
    summary = tables["Summary"][0]
    assert summary["event_count"] == len(tables["SemaphoreUpdate"]) > 0
    assert summary["trace_count"] == len(tables["Instruction"]) + summary["event_count"] + len(tables["DmaPacket"])
    assert (summary["cc_op_count"], summary["cc_op_time"]) == (0, 0.0) and not tables["CcOp"]


def test_collectives_and_barriers_have_rows():
    tables = vendor_tables(profile_of(streams("examples/current_all_reduce.py:matmul_of_ranks", "128x128xf32", "128x512xf32")))
    row, = tables["CcOp"]
    assert (row["operation"], row["num_elements"], row["dtype"], row["input_size"], row["replica_group"]) == (
        "ALL_REDUCE", 128 * 512, "fp32", 4 * 128 * 512, "[[0, 1, 2, 3]]")
    assert tables["Summary"][0]["cc_op_count"] == 1
    assert abs(tables["Summary"][0]["cc_op_time"] * 1e9 - row["duration_ns"]) <= 1       # as above
    tables = vendor_tables(profile_of(streams("examples/current_two_cores.py:centered", "128x512xf32", grid=(2,))))
    assert {row["pcore_idx"] for row in tables["CoreBarriers"]} == {0, 1}
    assert len({row["end_ts"] for row in tables["CoreBarriers"]}) == 1


def test_columns_have_types_and_units(tables, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    fields = {(row["table_name"], row["field_name"]): row for row in tables["SchemaFields"]}
    assert fields["Instruction", "start_ts"]["field_unit"] == "ns" and fields["Instruction", "crc_in"]["field_example"] is None
    assert {row["field_type"] for row in fields.values()} == {"int64", "float64", "string", "bool"}
    (tmp_path / "Instruction.parquet").write_bytes(parquet_bytes(tables["Instruction"]))
    kinds = {field.name: str(field.type) for field in parquet.read_table(tmp_path / "Instruction.parquet").schema}
    assert kinds == {field: row["field_type"] for (table, field), row in fields.items() if table == "Instruction"}
    assert kinds["raw_hlo_id"] == kinds["crc_in"] == "int64" and kinds["performance_mode"] == "string"


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
    assert "--format selects what --profile writes" in capsys.readouterr().err


def test_queues_and_the_execution_are_those_of_the_transfers(profile, tables):
    moved = {(row["queue_idx"], row["queue_name"], row["queue_type"]) for row in tables["DmaPacketAggregated"]}
    assert {(row["idx"], row["name"], row["type"]) for row in tables["DmaQueuesInfo"]} == moved and len(moved) > 1
    assert len(tables["DmaQueuesInfo"]) == len(moved) and tables["DmaQueuesInfo"][0]["engine_idx"] is None
    assert tables["ExecutionInfo"] == [{"execution_index": 0, "neff_name": None, "execution_start_ts": 0,
                                        "execution_end_ts": round(profile["timing"]["total_ns"]),
                                        "num_subgraphs": None, "row_count": None}]
    assert {tables["Metadata"][0][f"{engine}_engine_num_channels"] for engine in ("vector", "scalar", "gpsimd")} == {128}


def test_the_ramp_is_modeled_where_nothing_is_limited(profile):
    rows = vendor_tables(profile | {"limited": []})["Warning"]
    assert [row["message"] for row in rows if "throttling" in row["message"]] == [
        "of throttling the ramp of the tensor engine is modeled, not limits of power and heat"]
