# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""examples/plugin, built and installed as its own package, away from this one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLUGIN = ROOT / "examples" / "plugin"
RUN = """
import sys
import numpy as np
import nki_mlir.compat
nki_mlir.compat.install()
sys.path.insert(0, sys.argv[1])
from kernels import limited, limited_twice
x = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)
for kernel, given, low, high in ((limited, x, -0.5, 0.75), (limited_twice, x[:128], -0.5, 0.75)):
    result = kernel.on(sys.argv[2])(given)
    assert np.array_equal(result, np.clip(given, np.float32(low), np.float32(high))), kernel
    assert result.min() == low and result.max() == high
print("the same")
"""


def run(site: Path | None, *command: object, status: int = 0, where: Path = PLUGIN, text: str | None = None,
        **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(p) for p in (site, ROOT) if p is not None)
    done = subprocess.run([sys.executable, *map(str, command)], cwd=where, input=text, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": path, **environment})
    assert done.returncode == status, done.stdout + done.stderr
    return done


def opt(site: Path | None, *options: str, **rest: object) -> str:
    return run(site, "-m", "nki_mlir.cli.opt", *options, **rest).stdout            # type: ignore[arg-type]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the plugin is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    run(None, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "--target", folder / "site", folder / "source")
    return folder / "site"


@pytest.mark.share(3)
@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa", "example-checked"])
def test_its_instruction__runs_in_kernels_of_both_generations(site, on):
    assert run(site, "-c", RUN, PLUGIN, on).stdout == "the same\n"


def test_its_instruction__has_help_and_rules(site, tmp_path):
    output = run(site, "-c", "from nki_mlir_example import clamp; help(clamp)").stdout
    assert "data limited to the interval from low to high." in output
    assert "In neuronxcc.nki: example_clamp(data, low, high=1.0, *, mask=None, dtype=None)" in output
    assert "In nki: example_clamp(dst, data, low, high=1.0, name=None)" in output
    kernel = tmp_path / "wrong.py"
    kernel.write_text((PLUGIN / "kernels.py").read_text().replace("-0.5, high=0.75", "2.0"))
    output = run(site, "-m", "nki_mlir.cli.opt", f"{kernel}:limited", "--arg=128x64xf32", status=1).stderr
    assert re.match(rf"{kernel}:16:16: error: .*low is at most high, got 2.0 and 1.0", output)
    assert "tile = clamp(beta_nl.load(x[rows, :]), 2.0)" in output and "  fix: exchange them\n" in output


def test_its_pass_and_pipeline__are_options(site):
    output = opt(site, "--help")
    assert "merge two consecutive clamps of a tile." in " ".join(output.split())
    assert "run the passes of this pipeline of plugin nki_mlir_example" in " ".join(output.split())
    lowered = opt(site, "kernels.py:limited_twice", "--arg=128x64xf32", "--lower-to-nisa")
    assert lowered.count('"nisa.example_clamp"') == 2
    for options in (["--example-merge-clamps"], ["--example-cleanup"], ["--pass-pipeline=cse,example-merge-clamps"],
                    ["--example-merge-clamps=rounded=true"]):
        merged = opt(site, *options, "-", text=lowered)
        assert merged.count('"nisa.example_clamp"') == 1
        assert "high = 7.500000e-01 : f64, low = -5.000000e-01" in merged
    compared = run(site, "-m", "nki_mlir.cli.run", "--quiet", "--compare", "-", text=merged).stdout
    assert len(re.findall(r"(interpreter|isa): .* agrees", compared)) == 2


def test_its_pass__leaves_rounded_tiles_alone(site):
    lowered = opt(site, "kernels.py:limited_twice", "--arg=128x64xbf16", "--lower-to-nisa")
    assert opt(site, "--example-merge-clamps", "-", text=lowered).count('"nisa.example_clamp"') == 2
    assert opt(site, "--example-merge-clamps=rounded", "-", text=lowered).count('"nisa.example_clamp"') == 1


def test_its_instruction__is_in_streams_of_every_form(site, tmp_path):
    streams = opt(site, "kernels.py:limited", "--arg=256x64xf32", "--lower-to-isa")
    assert len(re.findall(r"dve \d+: .*EXAMPLE_CLAMP low=-0.5 high=0.75", streams)) == 2
    translate = ("-m", "nki_mlir.cli.translate")
    (tmp_path / "clamp.asm").write_text(streams)
    run(site, *translate, "--assemble", tmp_path / "clamp.asm", "-o", tmp_path / "clamp.bin")
    again = run(site, *translate, "--disassemble", tmp_path / "clamp.bin").stdout
    assert again.count("EXAMPLE_CLAMP") == 2
    output = run(site, "-m", "nki_mlir.cli.run", tmp_path / "clamp.bin", "--on=isa", "--arg=256x64xf32=ones").stdout
    assert output.startswith("out: float32[256, 64]\n[[0.75 0.75 0.75 ... 0.75 0.75 0.75]\n")


def test_its_target__is_a_machine(site):
    timed = ("-m", "nki_mlir.cli.run", "kernels.py:limited", "--arg=256x512xf32", "--time", "--json")
    small, large = (json.loads(run(site, *timed, f"--target={target}").stdout) for target in ("trn2_small", "trn2"))
    assert (small["target"], large["target"]) == ("trn2_small", "trn2")
    assert small["busy_ns"]["vector"] == pytest.approx(2 * large["busy_ns"]["vector"])
    wide = "--arg=128x32768xf32"                        # 128 KiB of each partition
    opt(site, "kernels.py:limited_twice", wide, "--lower-to-isa", "--target=trn2")
    output = run(site, "-m", "nki_mlir.cli.opt", "kernels.py:limited_twice", wide, "--lower-to-isa",
                 "--target=trn2_small", status=1).stderr
    assert "1 tile that is live takes 131072 bytes per partition; trn2_small has 70994 [NKI-MEMORY-FULL]" in output


def test_switched_off__it_is_not_there(site):
    off = {"NKI_MLIR_PLUGINS": "off"}
    assert "example" not in opt(site, "--help", **off).replace("for example", "")
    output = run(site, "-m", "nki_mlir.cli.run", "kernels.py:limited", "--target=trn2_small", status=1, **off).stderr
    assert "there is no target named 'trn2_small'" in output


def test_not_installed__it_is_loaded_by_name(tmp_path):
    output = run(None, "-m", "nki_mlir.cli.opt", "--example-cleanup", "-", status=2, text="").stderr
    assert "unrecognized arguments: --example-cleanup" in output
    lowered = opt(None, "--load-plugin", "nki_mlir_example", "kernels.py:limited_twice", "--arg=128x64xf32",
                  "--lower-to-nisa", "--target=trn2_small")
    assert 'nki.target = "trn2_small"' in lowered and lowered.count('"nisa.example_clamp"') == 2
    output = run(None, "-m", "nki_mlir.cli.run", "--load-plugin=nki_mlir_example", "--on=example-checked", "--quiet",
                 "kernels.py:limited", "--arg=128x64xf32").stdout
    assert output.startswith("example-checked: ")
    output = run(None, "-m", "nki_mlir.cli.opt", "--load-plugin=nosuch", "-", status=1, text="").stderr
    assert "module nosuch of plugin nosuch cannot be loaded: ModuleNotFoundError: No module named 'nosuch'" in output
    assert "fix: run the command in the directory that has nosuch, or add that directory to PYTHONPATH" in output


def test_its_table__is_that_of_its_metadata(site):
    code = "import nki_mlir_example as e; from nki_mlir import extensions; " \
           "print({(g, n, v) for g, t in e.NKI_MLIR_PLUGIN.items() for n, v in t.items()} == {(e.group, e.name, e.value) for e in extensions.installed()})"
    assert run(site, "-c", code).stdout == "True\n"
