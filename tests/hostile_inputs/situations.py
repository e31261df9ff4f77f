# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hostile inputs by kind: modules, graphs, assembly, binaries, Python to read or to run, configs, assignments, options.

``python -m tests.hostile_inputs.situations FOLDER`` writes them to files, for a process that measures others and stays small.
"""

import base64
import json
import random
import struct
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from nki_mlir.targets.neuron import assemble
from nki_mlir.targets.neuron.format.container import MAGIC, PREAMBLE, assembled, split

from ..targets.neuron.test_assembly import PROGRAM
from .texts import HOSTILE, N

HUGE = 10 ** 12
LARGEST = 1 << 27                       # bytes that a file may declare

# -- modules -----------------------------------------------------------------------------------------------------------
LOOP = """func.func @f(%a: memref<4x4xf32, "hbm">) {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %end = arith.constant {} : index
  {}
  return }}"""
EMPTY_LOOP = "scf.for %i = %c0 to %end step %c1 { }"
MODULES = {
    **HOSTILE,
    "not UTF-8": b"module {\n  // \xff\n}",
    "name not UTF-8": b'func.func @"\xff\xfe"(%a: memref<4x4xf32, "hbm">) { return }',
    "zero bytes": b"\0" * 1_000_000,
    "one line of letters": "a" * 4_000_000,
    "one string": 'module attributes {a.a = "' + "x" * 4_000_000 + '"} {}',
    "an argument of terabytes": f'func.func @f(%a: memref<64x{HUGE}xf32, "hbm">) {{ return }}',
    "the largest argument": f'func.func @f(%a: memref<64x{LARGEST // 256}xf32, "hbm">) {{ return }}',
    "a buffer of terabytes": f'func.func @f(%a: memref<4x4xf32, "hbm">) {{\n  %0 = memref.alloc() : memref<64x{HUGE}xf32, "hbm">\n  return }}',
    "a tile of terabytes": f'func.func @f(%a: memref<4x4xf32, "hbm">) {{\n  %0 = memref.alloc() : memref<64x{HUGE}xf32, "sbuf">\n  return }}',
    "many arguments": "func.func @f(" + ", ".join(f'%a{k}: memref<64x32768xf32, "hbm">' for k in range(15)) + ") { return }",
    "a loop of 2^63 iterations": LOOP.format(2 ** 63 - 1, EMPTY_LOOP),
    "loops within loops": LOOP.format(2 ** 31, "".join(f"scf.for %i{k} = %c0 to %end step %c1 {{ " for k in range(40)) + "}" * 40),
    "a grid of 10^15 programs": 'func.func @f(%a: memref<4x4xf32, "hbm">, %id: index {nki.program_id = 0}) attributes '
                                '{nki.grid = [1000000000000000]} { return }',
    "a loop without a step": LOOP.format(9, "scf.for %i = %c0 to %end step %c0 { }"),
    "a call of itself": "func.func @f() { func.call @f() : () -> ()\n return }",
    "a library by name": 'module attributes {nki.library = "/etc/passwd"} { func.func private @f() }',
    "a file in a location": 'module {\n  func.func @f(%a: f32) { return } loc("/dev/zero":1:1)\n}',
}

# -- graphs ------------------------------------------------------------------------------------------------------------
CALL = """func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {{
  %0 = stablehlo.custom_call @nki_mlir(%a) {{{}}} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32> }}"""


def config_of(text: str) -> str:
    """Return a config whose kernel is this module."""
    section = {"version": 1, "modules": [{"fixed": [], "text": text}], "operands": [0], "results": [["output", 0]],
               "returned": [0], "structure": "one", "key": ""}
    fields = {"func_name": "f", "grid": [], "output_names": ["o"], "nki_mlir": section}
    return base64.b64encode(json.dumps(fields).encode()).decode()


GRAPHS = {
    "brackets in backend_config": CALL.format('backend_config = "' + "[" * 100_000 + '"'),
    "a dictionary as backend_config": CALL.format("backend_config = " + "{a = " * N + "1" + "}" * N),
    "base64 of brackets": CALL.format(f'backend_config = "{base64.b64encode(b"[" * 100_000).decode()}"'),
    "a nested module in a config": CALL.format(f'backend_config = "{config_of(HOSTILE["regions"])}"'),
    "nested tuples in a config": CALL.format(f'backend_config = "{config_of(HOSTILE["tuples"])}"'),
    "a constant of terabytes": f"func.func @main() -> tensor<64x{HUGE}xf32> {{\n  %0 = stablehlo.constant dense<1.0> : "
                               f"tensor<64x{HUGE}xf32>\n  return %0 : tensor<64x{HUGE}xf32> }}",
    "a result of terabytes": f"func.func @main(%a: tensor<4xf32>) -> tensor<{HUGE}x4xf32> {{\n  %0 = stablehlo.broadcast_in_dim "
                             f"%a, dims = [1] : (tensor<4xf32>) -> tensor<{HUGE}x4xf32>\n  return %0 : tensor<{HUGE}x4xf32> }}",
    "padding of terabytes": "func.func @main(%a: tensor<4xf32>, %b: tensor<f32>) -> tensor<4000000000004xf32> {\n  %0 = stablehlo.pad "
                            "%a, %b, low = [4000000000000], high = [0], interior = [0] : (tensor<4xf32>, tensor<f32>) -> "
                            "tensor<4000000000004xf32>\n  return %0 : tensor<4000000000004xf32> }",
    "a loop without an end": """func.func @main(%a: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.while(%x = %a) : tensor<i32>
    cond { %1 = stablehlo.compare EQ, %x, %x : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1> }
    do { stablehlo.return %x : tensor<i32> }
  return %0 : tensor<i32> }""",
}

# -- streams -----------------------------------------------------------------------------------------------------------
TENSOR = ".nki_isa 1\n.kernel f\n.target trn2\n.sbuf 0 of 212984\n.input a fp32[64,6946832] 0\n.stream pool\n"
HEAD = ".nki_isa 1\n.kernel f\n.target trn2\n"


def mutated(seed: int) -> str:
    """Return assembly with some characters changed, removed or repeated."""
    rng, text = random.Random(seed), list(PROGRAM)
    for _ in range(rng.choice((1, 2, 5, 20))):
        at = rng.randrange(len(text))
        text[at] = rng.choice(("", text[at] * 50, chr(rng.randrange(32, 127)), "9" * 30, "\n", "é"))
    return "".join(text)


ASSEMBLY = {
    "digits of other scripts": HEAD + f".sbuf {'٣' * 20_000} of 212984\n.stream pool\n",
    "digits of .sbuf": HEAD + f".sbuf {'9' * 100_000} of 212984\n.stream pool\n",
    "not UTF-8": HEAD.encode() + b".note \xff\n.stream pool\n",
    "a name not UTF-8": HEAD.encode() + b".input a\xff fp32[4,4] 0\n.stream pool\n",
    "a name of megabytes": HEAD + f".input {'a' * 4_000_000} fp32[4,4] 0\n.stream pool\n",
    "an input of terabytes": HEAD + f".sbuf 0 of 212984\n.input a fp32[64,{HUGE}] 0\n.stream pool\n",
    "an input of gigabytes": HEAD + ".sbuf 0 of 212984\n.input a fp32[64,6946832] 0\n.stream pool\n",
    "the largest input": HEAD + f".sbuf 0 of 212984\n.input a fp32[64,{LARGEST // 256}] 0\n.stream pool\n",
    "data of gigabytes": HEAD + ".constant a fp32[64,6946832]\n.data 00\n.stream pool\n",
    "dimensions": HEAD + f".input a fp32[{'1,' * 100_000}1] 0\n.stream pool\n",
    "brackets": HEAD + "[" * 1_000_000,
    "registers": HEAD + ".stream pool\npool 0000: MEMSET dst=fp32@r" + "9" * 100_000 + "[1][4] value=0.0 channels=4\n",
    "patterns": HEAD + ".stream pool\npool 0000: MEMSET dst=fp32@0x0" + "[1]" * 20_000 + " value=0.0 channels=4\n",
    "semaphores": HEAD + "".join(f".semaphore {k} s{k}\n" for k in range(100_000)) + ".stream pool\n",
    "queues": HEAD + "".join(f".queue {k} q{k} sp {k}\n" for k in range(100_000)) + ".stream pool\n",
    "blank lines": HEAD + "\n" * 1_000_000,
    "cores": (HEAD + ".stream pool\n") * 10_000,
    "empty": "",
    **{f"mutated {seed}": mutated(seed) for seed in range(12)},
}


def container(change: Callable[[bytes], bytes] = lambda data: data, text: str = PROGRAM) -> bytes:
    return change(assemble(text))


def damaged(seed: int) -> bytes:
    """Return a binary with some bytes changed or missing; its checksums no longer hold."""
    rng, data = random.Random(seed), bytearray(assemble(PROGRAM))
    for _ in range(rng.choice((1, 2, 8))):
        data[rng.randrange(8, len(data))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
    if rng.random() < 0.2:
        del data[rng.randrange(len(data)):]
    return bytes(data)


def resized(data: bytes, before: int, after: int) -> bytes:
    """Return a binary with a number changed wherever it is, and with the checksums of its sections."""
    return assembled({tag: section.replace(struct.pack("<I", before), struct.pack("<I", after))
                      for tag, section in split(data).items()})


def many_sections() -> bytes:
    return PREAMBLE.pack(MAGIC, 1, (1 << 16) - 1, zlib.crc32(b"")) + b"\xff" * 64


BINARIES = {
    "empty": b"", "only the magic number": container(lambda data: data[:8]), "cut off": container(lambda data: data[:-9]),
    "sections": many_sections(), "letters": b"a" * 4_000_000,
    "a tensor of gigabytes": container(text=TENSOR),
    "a tensor of terabytes": container(lambda data: resized(data, 6946832, 4294967295), TENSOR),
    "sizes of 2^32": container(lambda data: resized(data, 128, 4294967295)),
    **{f"damaged {seed}": damaged(seed) for seed in range(12)},
}

# -- Python, configs, options ------------------------------------------------------------------------------------------
SOURCES = {
    "brackets": "(" * 100_000, "signs": "x = " + "-" * 100_000 + "1", "lambdas": "lambda: " * N + "1",
    "sums": "x = 1" + " + 1" * 100_000, "attributes": "x = a" + ".b" * 100_000, "calls": "x = a" + "()" * 100_000,
    "blocks": "".join(" " * k + "if 1:\n" for k in range(2_000)) + " " * 2_000 + "pass\n",
    "numbers": "x = [" + "1, " * 1_000_000 + "]", "not UTF-8": b"# \xff\n", "zero bytes": b"x = 1\0",
    "one number": "x = " + "9" * 1_000_000, "strings": "x = " + "'a' " * 500_000, "formats": "x = f'" + "{a}" * 300_000 + "'",
    "elses": "if 1: pass\n" + "elif 1: pass\n" * 10_000, "comments": "# \n" * 1_000_000, "decorators": "@a\n" * 50_000 + "def f(): pass\n",
}
KERNEL = """import sys, warnings
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
class Mute(Exception):
    def __str__(self): raise RuntimeError("no text")
class Number(Exception):
    def __str__(self): return 5
class Endless(Exception):
    def __str__(self): return str(self)
class Outside(BaseException): pass
class Liar:
    __class__ = property(lambda self: 1 / 0)
    def __getattr__(self, name): raise Mute
    def __repr__(self): raise Mute
    def __eq__(self, other): raise Mute
    __hash__ = None
def again(x): return again(x)
@nki.jit
def f(x):
    {}
    return nl.load(x)
"""
IN_KERNELS = {
    "an exception without a text": "raise Mute", "a text that is a number": "raise Number",
    "a text without an end": "raise Endless", "a text of megabytes": "raise ValueError('a' * 4_000_000)",
    "lines and escapes": "raise ValueError('\\n' * 1_000 + '\\x1b[2J\\0\\udcff')", "an exception of no usual class": "raise Outside",
    "exit": "sys.exit(7)", "exit with an object": "sys.exit(Liar())", "a closed generator": "raise GeneratorExit",
    "a raised class of another": "raise type('A' * 100_000, (Exception,), {})",
    "causes without an end": "for k in range(2_000):\n        try: raise ValueError from sys.exception()\n        except ValueError: pass\n    raise Mute",
    "groups within groups": "e = ValueError()\n    for k in range(500): e = ExceptionGroup('a', [e])\n    raise e",
    "warnings as errors": "warnings.simplefilter('error')\n    warnings.warn('a')", "a call of itself": "return again(x)",
    "an object without a class": "return Liar()", "an object as an index": "return nl.load(x[Liar()])",
    "an object as a tile": "return nl.exp(Liar())", "an object as a dtype": "return nl.zeros((4, 4), Liar())",
    "an object as a shape": "return nl.zeros(Liar(), nl.float32)", "an object as a condition": "if Liar() == 1: pass",
    "a size of 10^18": "nl.zeros((4, 10**18), nl.float32)", "a size of 5,000 digits": "nl.zeros((4, 10**5000), nl.float32)",
    "axes": "nl.zeros((1,) * 100_000, nl.float32)", "a foreign number": "nl.zeros((4, float('nan')), nl.float32)",
    "an index of 5,000 digits": "nl.load(x[10**5000])", "a list of itself": "a = []; a.append(a)\n    return nl.exp(a)",
    "a result of itself": "a = []; a.append(a)\n    return a", "another exception hook": "sys.excepthook = Liar()\n    raise Mute",
}
RUN = {name: KERNEL.format(body) for name, body in IN_KERNELS.items()} | {
    "exit while it is read": "import sys\nsys.exit(7)\n", "a mute exception while it is read": KERNEL.format("pass") + "raise Mute\n",
    "an attribute of any name": KERNEL.format("pass") + "def __getattr__(name): raise Mute\n",
    "a kernel that is another object": KERNEL.format("pass") + "f = Liar()\n",
    "a decorator that returns nothing": "def nothing(f): return None\n@nothing\ndef f(x): pass\n",
}
ASSIGNMENT = "name = 'a'\nkernel = 'f'\nreference = 'r.py:f'\n"
ASSIGNMENTS = {
    "parts of a key": "a." * 20_000 + "b = 1\n", "parts of a quoted key": "'a'." * 20_000 + "b = 1\n",
    "parts of a table": "[" + "a." * 20_000 + "b]\n", "brackets": "a = " + "[" * 100_000, "tables": "a = " + "{a = " * N,
    "digits": "a = " + "9" * 100_000, "digits of other scripts": "a = " + "٣" * 20_000, "an exponent": "a = 1e" + "9" * 100_000,
    "many tables": "".join(f"[a{k}]\n" for k in range(100_000)), "many parts": ASSIGNMENT + "[[part]]\nname = 'a'\n" * 20_000,
    "many keys": "".join(f"a{k} = 1\n" for k in range(200_000)), "one string": f"name = '{'x' * 4_000_000}'\n",
    "escapes": 'name = "' + "\\u0041" * 300_000 + '"\n', "not UTF-8": b"name = '\xff'\n", "zero bytes": b"\0" * 1_000_000,
    "dates": "name = 99999-99-99\n", "dots in a text": ASSIGNMENT.replace("'a'", f"'{'. ' * 100_000}'"), "empty": "",
    "another file": ASSIGNMENT.replace("r.py", "/dev/zero"),
}
CONFIGS = {
    "brackets": "[" * 100_000, "base64 of brackets": base64.b64encode(b"[" * 100_000).decode(),
    "base64 of objects": base64.b64encode(b'{"a":' * 100_000).decode(),
    "digits": base64.b64encode(b'{"nki_mlir": {"version": ' + b"9" * 100_000 + b"}}").decode(),
    "letters": "A" * 4_000_000, "not ASCII": "é" * 1_000,
    **{f"a module of {name}": config_of(HOSTILE[name]) for name in ("modules", "regions", "tuples", "affine maps", "integers")},
}
OPTIONS = {
    "a grid of 10^15 programs": ["--grid", "1000000000,1000000"], "a grid of digits": ["--grid", "9" * 100_000],
    "a shape of digits": ["--arg", "9" * 100_000 + "xf32"], "a shape of terabytes": ["--arg", "99999999x99999999xf32"],
    "brackets": ["--arg", "(" * 100_000], "a seed of digits": ["--arg", "4x4xf32=random:" + "9" * 5_000],
    "dimensions": ["--arg", "1x" * 50_000 + "f32"],
}
INPUTS: dict[str, Mapping[str, str | bytes | list[str]]] = {
    "module": MODULES, "graph": GRAPHS, "assembly": ASSEMBLY, "binary": BINARIES, "python": SOURCES, "kernel": RUN,
    "config": CONFIGS, "assignment": ASSIGNMENTS, "option": OPTIONS}


def write(folder: Path) -> None:
    """Write each input to ``folder/kind/name``, options as one line each."""
    for kind, inputs in INPUTS.items():
        (folder / kind).mkdir()
        for name, content in inputs.items():
            data = "\n".join(content) if isinstance(content, list) else content
            (folder / kind / name).write_bytes(data.encode() if isinstance(data, str) else data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
