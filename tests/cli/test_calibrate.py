# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-calibrate``: the machine's numbers are fitted on what a device measured; here the model is the device."""

import functools
import io
import json
import re

import numpy as np
import pytest

from nki_mlir.calibration import prediction
from nki_mlir.calibration.fit import fit, least_squares
from nki_mlir.calibration.measurements import (
    BadMeasurements,
    Measurement,
    csv_lines,
    read_measurements,
    source_of,
)
from nki_mlir.calibration.prediction import kernels_of
from nki_mlir.cli.calibrate import GENERATIONS, main
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.emission import Emission

# A prediction takes seconds; tests share it.
predicted = functools.cache(prediction.predicted)


@pytest.fixture
def measured():
    """What the model says of the current generation's kernels on trn2."""
    return predicted("current", "trn2")


TIMES = 4               # as the printed programs have it


def noisy(measurements, noise, times=1, draw=None):
    """Each measurement some times, with relative noise."""
    draw = draw or np.random.default_rng(7)
    return [one._replace(ns=one.ns * float(np.exp(draw.normal(0.0, noise)))) for one in measurements for _ in range(times)]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_kernels_import_standard_names_only(generation, capsys):
    assert main(["--kernels", generation]) == 0
    text = capsys.readouterr().out
    assert text == source_of(generation).read_text()
    assert f"\nTIMES = {TIMES} " in text
    nki = "nki" if generation == "current" else "neuronxcc.nki"
    assert set(re.findall(r"^(?:import|from) ([\w.]+)", text, re.M)) == {nki, f"{nki}.isa", f"{nki}.language", "numpy"}


def test_both_generations_are_the_same_kernels(measured, monkeypatch):
    """In the case of each kernel and size that repeats its instructions least often."""
    beta = kernels_of("beta")
    least = {}
    for number, (kernel, reps, elements, dtype) in enumerate(beta.CASES):
        least.setdefault((kernel.__name__, elements, str(dtype)), []).append((reps, number))
    numbers = sorted(min(cases)[1] for cases in least.values())
    monkeypatch.setattr(beta, "CASES", [beta.CASES[k] for k in numbers])
    monkeypatch.setattr(prediction, "kernels_of", lambda generation: beta)
    current = [measured[k] for k in numbers]
    # queues of transfers before and behind differ
    assert prediction.predicted("beta", "trn2") == [one._replace(ns=pytest.approx(one.ns, rel=0.01)) for one in current]


@pytest.mark.share(3)
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_prediction_gives_the_numbers_of_the_machine(measured, target):
    rows = measured if target == "trn2" else predicted("current", target)
    for one in fit(rows, machine_named(target)).constants:
        # what is outside of the instructions grows with their number, too
        assert one.fitted == pytest.approx(one.ours, rel=0.02), one.name


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_with_noise_the_numbers_are_back_within_two_percent(measured, target):
    """1% of noise, each case measured as often as the printed program does."""
    rows = measured if target == "trn2" else predicted("current", target)
    machine, draw, runs = machine_named(target), np.random.default_rng(7), 100
    fits = [fit(noisy(rows, 0.01, TIMES, draw), machine).constants for _ in range(runs)]
    unsure = {"trn1": {"vector tensor_scalar: fixed part", "scalar activation: fixed part"},       # a fifth of an instruction
              "trn2": {"tensor product: fixed part"}}[target]                                   # four cycles of 68
    for each_run in zip(*fits):
        name = each_run[0].name
        # what is promised
        near = sum(one.fitted == pytest.approx(one.ours, rel=0.02) for one in each_run)
        determined = sum(one.determined for one in each_run)
        # the errors that the fit states hold; what it calls determined is
        assert sum(abs(one.fitted - one.ours) <= 2 * one.error for one in each_run) >= 0.85 * runs, name
        assert (determined <= 0.05 * runs) if name in unsure else (determined >= 0.95 * runs), name
        assert name in unsure or near >= 0.75 * runs, (name, near)
    assert len(fits[0]) == 13 and len({one.name for one in fits[0]}) == 13


@pytest.mark.share(3)
@pytest.mark.parametrize("target, least", [("trn1", 17), ("trn2", 20)])      # of trn1 the standard error is 0.9%
def test_a_file_of_the_default_mode_gives_the_issue_of_a_transfer(target, least, tmp_path, capsys, monkeypatch):
    """Three engines trigger transfers there, so that these follow each other three times as fast."""
    transfers = "transfers", "transfers_beside"
    rows = [*predicted("current", target), *predicted("current", target, False, transfers)]
    shared = [one for k, one in enumerate(rows) if one.kernel not in transfers or k >= len(rows) - 12]  # 8 and 4 cases
    machine, draw = machine_named(target), np.random.default_rng(11)

    def issue_of(measurements):
        result = fit(measurements, machine)
        assert result.issuers == 3
        return next(one for one in result.constants if one.name == "transfer issue")
    issue = issue_of(shared)
    assert issue.fitted == pytest.approx(issue.ours, rel=0.01)          # imbalance of the three: half of a trigger
    noisy_fits = [issue_of(noisy(shared, 0.01, TIMES, draw)).fitted for _ in range(20)]
    assert sum(fitted == pytest.approx(issue.ours, rel=0.02) for fitted in noisy_fits) >= least     # what is promised
    file = tmp_path / "default.csv"
    file.write_text("\n".join(csv_lines(shared)))
    assert main([str(file), "--target", target]) == 0
    assert "\ntransfers_beside shows that 3 engines triggered transfers in turn: a trigger takes 3 times" in capsys.readouterr().out
    # a release without that kernel, which merges no loads at a distance
    monkeypatch.setattr(prediction.neuron, "emission", lambda as_written: Emission(merge_loads=False))
    old = [one for one in shared if one.kernel not in transfers] + prediction.predicted(
        "current", target, False, ("transfers",))
    issue = next(one for one in fit(old, machine).constants if one.name == "transfer issue")
    # as above, of trn1
    assert issue.fitted == pytest.approx(issue.ours / 3, rel=0.1)


def test_a_number_that_the_noise_hides_is_said_to_be_open(measured, tmp_path, capsys):
    file = tmp_path / "device.csv"
    file.write_text("\n".join(csv_lines(noisy(measured, 0.01, TIMES))) + "\n")
    assert main([str(file)]) == 0
    hidden = [line for line in capsys.readouterr().out.splitlines() if line.endswith("not determined: the noise hides it")]
    assert [line.partition("  ")[0] for line in hidden] == ["tensor product: fixed part"]
    assert main([str(file), "--json"]) == 0
    constants = json.loads(capsys.readouterr().out)["constants"]
    assert [one["name"] for one in constants if not one["determined"]] == ["tensor product: fixed part"]


def test_another_device_is_told_from_ours(measured, tmp_path, capsys):
    """Transfers move at half the rate; what does not depend on them is as it was."""
    slow = [one._replace(ns=2 * one.ns) if one.kernel == "transfers" and one.elements > 64 else one for one in measured]
    file = tmp_path / "device.csv"
    file.write_text("\n".join(csv_lines(noisy(slow, 0.002, 3))) + "\n")
    assert main([str(file), "--json"]) == 0
    constants = {one["name"]: one for one in json.loads(capsys.readouterr().out)["constants"]}
    rate = constants["transfer rate of a core"]
    # 0.2% of noise
    assert rate["differs"] and rate["fitted"] == pytest.approx(rate["ours"] / 2, rel=0.02)
    # 0.2% of noise
    assert constants["vector tensor_scalar: each element"]["fitted"] == pytest.approx(0.5, rel=0.02)
    assert main([str(file)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("transfer rate"))
    assert re.search(r"386\.4\d+ +19\d\.\d+ \+- +\d\.\d+  -(49|50)\.\d%$", line)


def test_a_prediction_can_be_read_again(measured, capsys, monkeypatch):
    monkeypatch.setattr("nki_mlir.calibration.prediction.predicted", predicted)
    assert main(["--predict", "current"]) == 0
    text = capsys.readouterr().out
    # a digit is csv_lines
    assert read_measurements(text.splitlines(), "-") == [one._replace(ns=pytest.approx(one.ns, abs=0.06)) for one in measured]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["-"]) == 0 and "transfer issue" in capsys.readouterr().out


@pytest.mark.parametrize("text, error", [
    ("a,b\n", "device.csv:1:1: error: the first line is 'a,b', not kernel,reps,elements,ns"),
    ("7" * 3000, f"device.csv:1:1: error: the first line is '{'7' * 80}', not kernel,reps,elements,ns"),
    ("kernel,reps,elements,ns\nvector_chain,1,2\n", "device.csv:2:1: error: 'vector_chain,1,2' is not a measurement"),
    ("kernel,reps,elements,ns\nother,1,2,3\n", "device.csv:2:1: error: there is no kernel 'other' in the set"),
    ("kernel,reps,elements,ns\ntransfers,1,2,-3\n", "device.csv:2:1: error: 'transfers,1,2,-3': numbers are positive"),
    *((f"kernel,reps,elements,ns\ntransfers,{row}\n", f"device.csv:2:1: error: '{f'transfers,{row}'[:80]}': numbers are from 1e-09 to 1e+15")
      for row in ("1,2,1e20", "1,2,1e-320", "1000000000000000000000,2,3", "1,1" + "0" * 400 + ",3")),
    ("kernel,reps,elements,ns\nvector_stream,1,200,3\n",
     "device.csv:1:1: error: 1 row of vector_stream cannot determine its cost: measure every case")])
def test_what_is_no_measurement_is_an_error(text, error, tmp_path, capsys):
    file = tmp_path / "device.csv"
    file.write_text(text)
    assert main([str(file)]) == 1
    assert f"{error} [NKI-CALIBRATE-CSV]" in (said := capsys.readouterr().err)
    assert "\n  fix: give the output of the kernels" in said


@pytest.mark.parametrize("unit, ratio", [(1e-3, "0.001"), (1e-6, "1e-06"), (1e3, "1e+03")])
def test_times_in_another_unit_are_an_error(measured, unit, ratio, tmp_path, capsys):
    file = tmp_path / "device.csv"
    rows = [f"{one.kernel},{one.reps},{one.elements},{one.ns * unit}" for one in measured]
    file.write_text("\n".join(["kernel,reps,elements,ns", *rows]))
    assert main([str(file)]) == 1
    assert (f"device.csv:1:1: error: instructions take {ratio} times as long as on trn2: the column ns has another unit, or the "
            "target is another one [NKI-CALIBRATE-CSV]") in capsys.readouterr().err


def test_times_that_do_not_grow_are_an_error(measured, tmp_path, capsys):
    file = tmp_path / "device.csv"
    file.write_text("\n".join(csv_lines(one._replace(ns=1000.0) for one in measured)))
    assert main([str(file)]) == 1
    assert ("device.csv:1:1: error: vector_stream of 1 element takes 1000 ns with 384 repetitions, 1000 ns with 32: time grows "
            "with repetitions [NKI-CALIBRATE-CSV]") in capsys.readouterr().err


def test_a_time_that_exceeds_the_others_by_far_is_an_error(measured, tmp_path, capsys):
    file, (first, second, *others) = tmp_path / "device.csv", measured
    file.write_text("\n".join(csv_lines([first, second._replace(ns=1e15), *others])))
    assert main([str(file)]) == 1
    assert re.match(r".*device\.csv:1:1: error: \d+ rows of \w+ cannot determine its cost", capsys.readouterr().err)


def test_a_spreadsheet_may_have_written_the_file(measured, tmp_path, capsys):
    text = "\n".join(csv_lines(measured))
    (tmp_path / "plain.csv").write_text(text)
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert main([str(tmp_path / "plain.csv")]) == 0
    plain = capsys.readouterr().out
    assert main([str(tmp_path / "marked.csv")]) == 0
    assert capsys.readouterr().out == plain


def test_an_optimizing_compiler_does_not_change_the_instructions():
    """The default mode, which fuses instructions where it can, executes as many on an engine as the program says."""
    for generation in GENERATIONS:
        module = kernels_of(generation)
        for kernel, engine, count in ((module.vector_stream, "vector", 8), (module.vector_chain, "vector", 1),
                                      (module.scalar_stream, "scalar", 8), (module.gpsimd_stream, "gpsimd", 8)):
            few, many = (kernel.lower(np.zeros((128, 64), np.float32), reps).time().figures()["instructions_per_engine"][engine]
                         for reps in (4, 12))
            assert many - few == 8 * count, (generation, kernel.__name__)


def test_json_needs_a_file(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--kernels", "beta", "--json"])
    assert "--json prints a fit: give FILE.csv" in capsys.readouterr().err


def test_rows_may_be_repeated_and_empty_lines_are_none():
    rows = ["kernel, reps, elements, ns", "transfers, 1, 2, 3.5", "", "transfers,1,2,3.5"]
    assert read_measurements(rows, "-") == [Measurement("transfers", 1, 2, 3.5)] * 2


@pytest.mark.parametrize("seed", range(8))
def test_least_squares__of_exact_times_are_the_coefficients(seed):
    """Random laws of two to four positive features, and as many or more rows."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(2, 5))
    law = draw.uniform(0.5, 4, count)
    features = draw.uniform(1, 9, (count + seed % 3, count))
    rows = [Measurement("k", number, 1, float(line @ law)) for number, line in enumerate(features)]
    fitted = least_squares("k", rows, lambda row: features[row.reps], "-")
    np.testing.assert_allclose(fitted.values, law, rtol=1e-8)
    assert fitted.residual < 1e-8 and (fitted.errors < 1e-6).all()


@pytest.mark.parametrize("features", [
    [(1, 0), (2, 0), (3, 0)],           # the second feature is 0 in every row
    [(1, 2), (2, 4), (3, 6)],           # one is a multiple of the other
    [(1, 2)],                           # fewer rows than coefficients
    [],
])
def test_least_squares__of_rows_that_do_not_decide_them_is_an_error(features):
    rows = [Measurement("k", number, 1, 5.0 + number) for number in range(len(features))]
    with pytest.raises(BadMeasurements, match=rf"{len(rows)} rows? of k cannot determine its cost: measure every case"):
        least_squares("k", rows, lambda row: features[row.reps], "-")
