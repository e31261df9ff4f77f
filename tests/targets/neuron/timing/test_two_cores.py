# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A launch on two cores is timed with both, which share HBM; programs that name no cores run on one."""

import numpy as np
import pytest

import nki_mlir
from nki_mlir.cli.run import main
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.launch_grid import cores_of
from nki_mlir.scoring.verdict import CandidateVerdict
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.profile import profile_of
from tests.targets.neuron.profile.kernels import ROOT, streams

ADD = "examples/current_tensor_add.py:add"
ARGUMENTS = "512x2048xf32", "512x2048xf32"


@beta.jit
def scaled(x):
    """Tile by tile: a program each."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 128, 128)
    nl.store(out[rows, :], nl.load(x[rows, :]) * 2.0)
    return out


def timing(grid, rows=512):
    return scaled[grid].lower(nki_mlir.spec((rows, 2048), "float32")).time()


@pytest.mark.parametrize("grid, cores", [
    (4, ()), ((2, 2), ()), (nl.nc(1), ()), (nl.nc(2), (0, 1)), ((2, nl.nc(2)), (0, 1, 0, 1)),
    ((nl.nc(2), 2), (0, 0, 1, 1)), (nl.nc(2) * 2, (0, 0, 1, 1)), (2 * nl.nc(2), (0, 1, 0, 1)),
    ((nl.spmd_dim(2, 3),), ())])
def test_the_grid_says_which_core_has_a_program(grid, cores):
    assert cores_of(grid) == cores


def test_two_cores_share_hbm():
    """Each moves half of the bytes; together they get twice one core's share of HBM, and no more."""
    one, two = (neuron.timed(streams(ADD, *ARGUMENTS, grid=grid)) for grid in ((), (2,)))
    assert (len(one.cores), len(two.cores)) == (1, 2)
    assert [core.hbm_bytes for core in two.cores] == [one.hbm_bytes // 2] * 2
    share = 362.0
    assert one.hbm_bytes / share <= one.total_ns - one.launch_ns
    assert two.hbm_bytes / (2 * share) <= two.total_ns - two.launch_ns < 0.65 * (one.total_ns - one.launch_ns)


def test_a_core_alone_gets_what_the_other_one_leaves():
    """All of the work is one core's: it takes as long as without the other one, whose engines do not stop it."""
    program, = streams(ADD, *ARGUMENTS)
    idle, = streams(ADD, "128x512xf32", "128x512xf32")
    alone, beside = neuron.timed([program]).total_ns, neuron.timed([program, idle]).total_ns
    assert alone / 1.05 <= beside <= alone


def test_beta_programs_run_on_the_cores_that_the_grid_names():
    one, two, four = timing(4), timing(nl.nc(2) * 2), timing(2 * nl.nc(2))
    assert [len(t.cores) for t in (one, two, four)] == [1, 2, 2]
    assert two.hbm_bytes == one.hbm_bytes and two.total_ns < one.total_ns


def test_every_output_says_that_there_are_two(capsys, tmp_path):
    command = [f"{ROOT / ADD}", *(f"--arg={text}" for text in ARGUMENTS), "--time", "--grid", "2"]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("add (trn2 on 2 cores): ")
    assert main([*command, "--profile", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("add (trn2 on 2 cores): ")
    profile = profile_of(streams(ADD, *ARGUMENTS, grid=(2,)))
    assert {track["core"] for track in profile["tracks"]} == {0, 1} and len(profile["timing"]["cores"]) == 2


def test_results_in_python_say_how_many_cores_there_are():
    assert repr(timing(nl.nc(2) * 2)).startswith("<time of scaled on trn2, 2 cores: ")
    assert repr(timing(4)).startswith("<time of scaled on trn2: ")
    x = np.ones((512, 64), np.float32)
    for grid, cores in ((nl.nc(2) * 2, 2), (4, 1)):
        measured = beta.benchmark(scaled)[grid]
        measured(x)
        assert (measured.benchmark_result.cores, measured.benchmark_result.full_results["cores"]) == (cores, cores)
    verdict = CandidateVerdict(candidate="a.py", verdict="right", total_time=2e-5, interval=[1.9e-5, 2.1e-5], cores=2)
    assert str(verdict).startswith("a.py: right, 20.0 us on the model of 2 cores (19.0-21.0, 80 of 100)")


def test_the_command_names_cores_of_beta_kernels(capsys, tmp_path):
    file = tmp_path / "scaled.py"
    file.write_text("import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef scaled(x):\n"
                    "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n    i = nl.program_id(0)\n"
                    "    nl.store(out[nl.ds(i * 128, 128), :], nl.load(x[nl.ds(i * 128, 128), :]))\n    return out\n")
    for grid, text in (("2", "scaled (trn2): "), ("nc(2)", "scaled (trn2 on 2 cores): ")):
        assert main([str(file), "--arg", "256x512xf32", "--time", "--grid", grid]) == 0
        assert capsys.readouterr().out.startswith(text)


def test_a_target_without_logical_cores_has_one():
    assert len(neuron.timed(scaled[nl.nc(2)].with_changes(target="trn1").lower(
        nki_mlir.spec((256, 512), "float32")).streams).cores) == 1
