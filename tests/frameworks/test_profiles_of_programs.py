# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Profiles of linked JAX and PyTorch programs: what ran when is grouped by operation of the graph and by kernel."""

import gzip
import json
from pathlib import Path

import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli import run
from nki_mlir.dialects.isa.module import load_isa, read_program, write_program
from nki_mlir.dialects.mlir_ops import new_context
from nki_mlir.frameworks.stablehlo import linked_streams
from nki_mlir.targets.neuron.codegen.emission import Emission

from . import kernels


def profile_of_file(text, folder):
    """The profile that the command writes of a program, and the events of its trace."""
    file = folder / "program.mlir"
    file.write_text(text)
    assert run.main([str(file), "--time", "--profile", str(folder / "profile"), "--json"]) == 0
    profile = json.loads((folder / "profile" / "profile.json").read_text())
    return profile, json.loads(gzip.decompress((folder / "profile" / "trace.json.gz").read_bytes()))["traceEvents"]


def names(profile):
    return [group["name"] for group in profile["groups"]]


def located(program):
    return [i.location for stream in program.streams.values() for i in stream]


def check_sums(profile):
    timing, path = profile["timing"], profile["path"]
    for engine, busy in timing["busy_ns"].items():
        assert busy + sum(timing["stall_ns"][engine].values()) == pytest.approx(timing["total_ns"])
    assert path["begin"][1:] == path["end"][:-1] and path["end"][-1] == timing["total_ns"]


def of_jax(debug_info):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def program(x, w):
        h = jnp.tanh(x @ w)
        h = kernels.scaled(h, 2.0)
        h = h + 1.0
        return jnp.sum(kernels.scaled(h, 2.0), axis=1)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((32, 16), (16, 64))]
    return program, jax.jit(program).trace(*shapes).lower(lowering_platforms=("neuron",)).as_text(debug_info=debug_info)


@pytest.mark.jax
def test_of_a_jax_program(tmp_path):
    _, text = of_jax(False)
    profile, events = profile_of_file(text, tmp_path)
    at = {what: next(n for n, line in enumerate(text.splitlines(), 1) if f"stablehlo.{what}" in line)
          for what in ("dot_general", "tanh", "add", "reduce")}
    first, second = (n for n, line in enumerate(text.splitlines(), 1) if "custom_call" in line)
    # The scalar engine loads the functions of tanh while its operand is computed.
    assert names(profile) == [f"tanh program.mlir:{at['tanh']}", f"dot_general program.mlir:{at['dot_general']}",
                              f"kernel scaled program.mlir:{first}", f"add program.mlir:{at['add']}",
                              f"kernel scaled program.mlir:{second}", f"reduce program.mlir:{at['reduce']}"]
    assert [group["kernel"] for group in profile["groups"]] == [False, False, True, False, True, False]
    begins = [group["begin"] for group in profile["groups"]]
    assert begins == sorted(begins) and begins[0] == profile["timing"]["launch_ns"]
    engines = {row["line"]: row["engine_ns"] + row["transfer_ns"] for row in profile["lines"]}
    lines = [int(name.rpartition(":")[2]) for name in names(profile)]
    assert sorted(lines) == sorted(engines)
    assert [group["ns"] for group in profile["groups"]] == pytest.approx([engines[line] for line in lines])
    assert profile["files"][str(tmp_path / "program.mlir")] == text.splitlines()
    check_sums(profile)
    begun = [(e["name"], e["ts"] * 1e3) for e in events if e["ph"] == "b"]
    assert begun == [(group["name"], group["begin"]) for group in profile["groups"]]
    assert len([e for e in events if e["ph"] == "e"]) == len(begun)


@pytest.mark.jax
def test_lines_are_the_users_where_the_program_knows_them(tmp_path):
    program, text = of_jax(True)
    first = program.__code__.co_firstlineno
    profile, _ = profile_of_file(text, tmp_path)
    assert [name.replace("test_profiles_of_programs.py:", "") for name in names(profile)] == [
        f"tanh {first + 1}", f"dot_general {first + 1}", f"kernel scaled {first + 2}", f"add {first + 3}",
        f"kernel scaled {first + 4}", f"reduce {first + 4}"]
    assert profile["files"].keys() == {__file__}


@pytest.mark.jax
def test_streams_keep_what_they_are_of():
    program, = linked_streams(of_jax(False)[1], Emission(), "graph.mlir")
    context = new_context()
    load_isa(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        write_program(module, program)
        again = read_program(module)
    assert located(again) == located(program)
    origins = {at.origin for at in located(program) if at}
    assert origins >= {"dot_general", "tanh", "kernel scaled", "add", "reduce"}


@pytest.mark.torch
def test_of_a_pytorch_program(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_mlir")
    from nki_mlir.frameworks.torch_stablehlo import stablehlo_of

    class Model(torch.nn.Module):
        def forward(self, x, w):
            return kernels.scaled(torch.tanh(x @ w), 2.0) + x

    text = stablehlo_of(Model().eval(), torch.zeros(32, 32), torch.zeros(32, 32))
    profile, _ = profile_of_file(text, tmp_path)
    # Operands are loaded, and tables of functions, while something before them runs: which group begins first is free.
    assert sorted(name.rpartition(" ")[0] for name in names(profile)) == ["add", "dot_general", "kernel scaled", "tanh"]
    returned = Model.forward.__code__.co_firstlineno + 1
    files = {name.rpartition(" ")[2].rpartition("/")[2] for name in names(profile)}
    assert files == {f"{Path(__file__).name}:{returned}"}
    check_sums(profile)
