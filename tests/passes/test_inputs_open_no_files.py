# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""No path in an input is opened, by Python or MLIR: the kernel is asked, which says each opening of a file."""

import base64
import contextlib
import ctypes
import json
import os

import pytest

from nki_mlir.cli import language_server, opt, run, translate

from ..targets.neuron.test_assembly import PROGRAM

IN_OPEN = 0x20
SECRET = "the secret of another file"
KERNEL = """func.func @f(%a: memref<4x4xf32, "hbm">) {{
  %t = memref.alloc() : memref<4x4xf32, "sbuf">
  "nki.load"(%t, %a) {{access = [#nki.access<f32, affine_map<() -> (0, 0)>, [[1, 4], [1, 4]]>,
                                #nki.access<f32, affine_map<() -> (0)>, [[4, 4], [1, {count}]]>],
                      mask = affine_set<() : (0 == 0)>}} : (memref<4x4xf32, "sbuf">, memref<4x4xf32, "hbm">) -> ()
    loc("{file}":1:1)
  return
}} loc("{file}":1:1)
"""
ASSEMBLY = PROGRAM.replace("kernel.py:7", "{file}:1")
CALL = """func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{
  %0 = stablehlo.custom_call @{target}(%a) {{backend_config = "{config}", api_version = 2 : i32}}
    : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32> }}"""


def config(**fields):
    return base64.b64encode(json.dumps(fields).encode()).decode()


# What stands in a file, given the path that it names.
INPUTS = {
    "locations of an operation that is wrong": lambda f: KERNEL.format(file=f, count=5),
    "locations": lambda f: KERNEL.format(file=f, count=4),
    "location of what does not parse": lambda f: f'module {{ "a.b"() : () -> () loc("{f}":1:1) }} loc("{f}":1:1)',
    "fused locations": lambda f: f'module {{ "nki.load"() : () -> () loc(fused["{f}":1:1, callsite("{f}":1:1 at "{f}":1:1)]) }}',
    "attributes": lambda f: f'module attributes {{nki.file = "{f}", nki.include = @"{f}", library = "{f}"}} {{}}',
    "debug information": lambda f: f'#f = #llvm.di_file<"{os.path.basename(f)}" in "{os.path.dirname(f)}">\nmodule attributes {{a.f = #f}} {{}}',
    "resources": lambda f: f'module attributes {{a.f = dense_resource<x> : tensor<4xf32>}} {{}}\n'
                           f'{{-# dialect_resources: {{ builtin: {{ x: "{f}" }} }}, external_resources: {{ file: {{ x: "{f}" }} }} #-}}',
    "libraries of transforms": lambda f: f'module attributes {{transform.with_named_sequence}} {{ "transform.include"() '
                                         f'<{{target = @"{f}", failure_propagation_mode = 1 : i32}}> : () -> () }}',
    "globals": lambda f: f'module {{ memref.global "private" @g : memref<4xf32> = dense_resource<"{f}"> }}',
    "operators": lambda f: f'func.func @f(%a: memref<4x4xf32, "hbm">) {{ "nisa.custom_call"(%a) {{library = "{f}", function = "g"}} '
                           f': (memref<4x4xf32, "hbm">) -> () return }}',
    "custom calls": lambda f: CALL.format(target="AwsNeuronCustomOp", config=config(custom_op={
        "operator": "g", "library": f, "file": f})),
    "configs": lambda f: CALL.format(target="AwsNeuronCustomNativeKernel", config=config(
        func_name=f, klir_binary={"binary": f}, kernel_file=f)),
    "assembly": lambda f: ASSEMBLY.replace("{file}", f),
    "assembly that is wrong": lambda f: ASSEMBLY.replace("{file}", f).replace("channels=128", "channels=999", 1),
    "assembly with another name": lambda f: ASSEMBLY.replace("{file}", f).replace(".stream dve", f'.include "{f}"'),
}
COMMANDS = {
    "opt": lambda f: opt.main([f]), "opt to isa": lambda f: opt.main([f, "--lower-to-isa"]),
    "run": lambda f: run.main([f]), "run isa": lambda f: run.main([f, "--on=isa"]),
    "time": lambda f: run.main([f, "--time", f"--profile={os.path.dirname(f)}/profile"]),
    "assemble": lambda f: translate.main(["--assemble", f]), "disassemble": lambda f: translate.main(["--disassemble", f]),
    "NKI": lambda f: translate.main(["--to-nki-python", f]),
    "lsp": lambda f: language_server.errors_of(open(f).read(), f),
}


class Openings:
    """Which of the files in a folder are opened from now on, by this process or any other."""

    def __init__(self, file):
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK)
        assert self.descriptor >= 0 and libc.inotify_add_watch(self.descriptor, os.fsencode(file), IN_OPEN) >= 0

    def any(self):
        try:
            return bool(os.read(self.descriptor, 4096))
        except BlockingIOError:
            return False

    def close(self):
        os.close(self.descriptor)


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret" / "other.py"
    file.parent.mkdir()
    file.write_text(f"{SECRET}\n" * 3)
    return file


def test_an_opening_is_seen(secret):
    openings = Openings(secret)
    assert not openings.any()
    secret.read_text()
    assert openings.any()
    openings.close()


@pytest.mark.share(3)
@pytest.mark.parametrize("kind", INPUTS)
def test_a_path_in_an_input_is_not_opened(kind, secret, tmp_path, capsys):
    file = tmp_path / ("input.nkiasm" if "assembly" in kind else "input.mlir")
    file.write_text(INPUTS[kind](str(secret)))
    openings = Openings(secret)
    for name, command in COMMANDS.items():
        with contextlib.suppress(SystemExit):
            command(str(file))
        assert not openings.any(), name
        captured = capsys.readouterr()
        assert SECRET not in captured.out + captured.err and "Traceback" not in captured.err, name
    assert not [f for f in tmp_path.rglob("*") if f.is_file() and f != secret and SECRET in f.read_text(errors="ignore")]
    openings.close()


def test_lines_of_the_input_itself_are_shown(tmp_path, capsys):
    file = tmp_path / "input.nkiasm"
    file.write_text(PROGRAM.replace("MOVE", "MOVED"))
    assert translate.main(["--assemble", str(file)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"{file}:") and " | dve 0000: MOVED dst=r1 value=0" in shown
