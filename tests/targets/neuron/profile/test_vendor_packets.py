# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of packets, pending transfers and limits, and the types of columns, against counts over all times."""

import random
from collections import defaultdict

import pytest

from nki_mlir.targets.neuron.profile.vendor_packets import OF_TRANSFER, packet_rows, pending_rows, throttle_tables
from nki_mlir.targets.neuron.profile.vendor_schema import FLOATS, INTEGERS, TABLES, TEXTS, schema_rows, type_of

SEEDS = range(12)


def transfers_of(draw: random.Random) -> list[dict[str, object]]:
    transfers = []
    for number in range(draw.randint(1, 6)):
        trigger = draw.randint(0, 30)
        transfers.append({"trigger": trigger, "end_ts": trigger + draw.randint(0, 12), "pcore_idx": draw.randint(0, 1),
                          "read_bytes": draw.randint(0, 999), "write_bytes": draw.randint(0, 999), "queue_idx": number,
                          "queue_name": f"q{number}", "queue_type": "dma", "variable": f"v{number}"})
    return transfers


@pytest.mark.parametrize("seed", SEEDS)
def test_pending_rows__count_the_transfers_under_way(seed):
    """At each time, the last row of a core says how many transfers have started and not ended."""
    transfers = transfers_of(random.Random(seed))
    rows = pending_rows(transfers)
    assert [(row["pcore_idx"], row["timestamp"]) for row in rows] == sorted(
        {(t["pcore_idx"], t[end]) for t in transfers for end in ("trigger", "end_ts")})
    for core in (0, 1):
        for time in range(45):
            pending = sum(t["pcore_idx"] == core and t["trigger"] <= time < t["end_ts"] for t in transfers)
            assert ([0] + [row["value"] for row in rows if row["pcore_idx"] == core and row["timestamp"] <= time])[-1] == pending
    assert pending_rows([*transfers, {**transfers[0], "trigger": None}]) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_packets__have_all_bytes_of_their_transfer(seed):
    """Engines share the bytes of a transfer; the last one has what remains."""
    draw = random.Random(seed)
    transfers, ids = transfers_of(draw), {}
    packets = {name: [] for name in ("slice", "first", "engines", "begin", "end", "share")}
    expected = []
    for number, transfer in enumerate(transfers):
        ids[100 + number] = number
        several = draw.randint(1, 3)                            # groups of engines
        sizes = [draw.randint(1, 4) for _ in range(several)]
        first, begin = draw.randint(0, 3), draw.uniform(0, 50)
        for size in sizes:
            end = begin + draw.choice([0, draw.uniform(1, 9)])
            for values in zip(packets.values(), (100 + number, first, size, begin, end, 1 / sum(sizes))):
                values[0].append(values[1])
            expected += [(number, engine, round(begin), round(end)) for engine in range(first, first + size)]
            first += size
    rows = packet_rows({"packets": packets}, transfers, ids)
    assert [(r["packet_aggregation_id"], r["engine_idx"], r["start_ts"], r["end_ts"]) for r in rows] == expected
    assert [row["id"] for row in rows] == [*range(len(rows))]
    by_transfer = defaultdict(list)
    for row in rows:
        by_transfer[row["packet_aggregation_id"]].append(row)
        assert row["duration_ns"] == row["end_ts"] - row["start_ts"]
        assert row["transfer_bytes"] == max(row["read_bytes"], row["write_bytes"])
        assert row["throughput"] == (row["transfer_bytes"] / row["duration_ns"] * 1e9 if row["duration_ns"] else None)
    for number, of_one in by_transfer.items():
        assert [row["packet_idx"] for row in of_one] == [*range(len(of_one))]
        for name in ("read_bytes", "write_bytes"):
            total = transfers[number][name]
            assert sum(row[name] for row in of_one) == total
            assert all(0 <= row[name] and abs(row[name] - total / len(of_one)) <= len(of_one) for row in of_one)
        assert all(row[name] == transfers[number][name] for row in of_one for name in OF_TRANSFER)
    assert packet_rows({"packets": {}}, transfers, ids) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_throttle__is_the_time_within_limits(seed):
    """Each limit of a core is a row; the sums are those of its rows before they are rounded."""
    draw, total, limits = random.Random(seed), 1000.0, []
    for core in range(draw.randint(1, 2)):
        times = sorted(draw.uniform(0, total) for _ in range(2 * draw.randint(0, 3)))
        limits.append({"core": core, "speed": 1 / draw.randint(2, 4), "begin": times[::2], "end": times[1::2]})
    tables = throttle_tables({"timing": {"total_ns": total}, "limited": limits})
    assert [(r["pcore_idx"], r["timestamp"], r["timestamp"] + r["duration"], r["k"] / r["n"], r["type"])
            for r in tables["Throttle"]] == [
        (limit["core"], round(begin), round(end), limit["speed"], "activity_1")
        for limit in limits for begin, end in zip(limit["begin"], limit["end"])]
    for limit in limits:
        kinds = [row for row in tables["ThrottleSummary"] if row["nc_idx"] == limit["core"]]
        assert [row["throttle_type"] for row in kinds] == ["all", "activity_1"]
        limited = sum(end - begin for begin, end in zip(limit["begin"], limit["end"]))
        for row in kinds:
            assert row["throttle_active_time_ns"] == round(limited)
            assert row["throttle_active_time_percent"] == pytest.approx(limited / total)
            assert row["max_achievable_util_with_throttling_percent"] == pytest.approx(
                (total - limited + limited * limit["speed"]) / total)


@pytest.mark.parametrize("field", ["other", "x_ts", "y_percent", "hlo_name"])
def test_type_of_a_column__is_that_of_its_values(field):
    """Whatever its name says; numbers of both types are floats, and values of other types are texts."""
    for values, name in (([1, 2], "int64"), ([1, None], "int64"), ([0.5, None], "float64"), ([1, 0.5], "float64"),
                         (["a"], "string"), ([True, False, None], "bool"), ([(1, 2)], "string")):
        assert type_of(field, [{field: value} for value in values]) == name


def test_type_of_a_column_without_values__is_that_of_its_name():
    for names, of_names in ((FLOATS, "float64"), (INTEGERS, "int64"), (TEXTS, "string"), (["something"], "string")):
        for name in names:
            for rows in ([], [{name: None}]):
                assert type_of(name, rows) == of_names


def test_schema__has_a_row_for_each_column_of_tables_with_rows():
    rows = schema_rows({"Throttle": [{"timestamp": None, "k": 1, "x": None}, {"timestamp": 7, "k": 2, "x": None}],
                        "Warning": [], "Flow": [{"hlo_name": None}]})
    assert [(row["table_name"], row["field_name"], row["field_type"], row["field_unit"], row["field_example"])
            for row in rows] == [("Throttle", "timestamp", "int64", "ns", "7"), ("Throttle", "k", "int64", None, "1"),
                                 ("Throttle", "x", "string", None, None), ("Flow", "hlo_name", "string", None, None)]
    assert [row["table_description"] for row in rows] == [TABLES["Throttle"]] * 3 + [TABLES["Flow"]]
    assert all(row["field_required"] is None and row["field_format"] is None for row in rows)
