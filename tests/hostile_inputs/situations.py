# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hostile inputs by kind: modules, graphs, assembly, binaries, Python, configs, assignments, options, arrays, messages.

``python -m tests.hostile_inputs.situations FOLDER`` writes them to files, for a process that measures others and stays small.
"""

import base64
import io
import json
import random
import struct
import sys
import zipfile
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
SOURCE = KERNEL.format("pass")
RUN |= {
    **{f"coded as {codec}": f"# coding: {codec}\n{SOURCE}" for codec in (
        "utf-16", "utf-7", "punycode", "idna", "undefined", "rot13", "zlib", "unicode_escape", "no-such-codec")},
    "a mark and another coding": b"\xef\xbb\xbf# coding: latin-1\n" + SOURCE.encode(), "UTF-16": SOURCE.encode("utf-16"),
    "a byte of zero at the end": SOURCE + "\0", "carriage returns": SOURCE.replace("\n", "\r"),
    "other ends of lines": SOURCE.replace("    return", "    # \u2028\x85\x0c\x1c\n    return x.absent"),
    "one line of comments": f"{SOURCE}# {'a' * 8_000_000}\n", "a name of half a megabyte": SOURCE.replace("Outside", "n" * 500_000),
    "a file that is missing": KERNEL.format("open('/no-such-file')"), "a full disk": KERNEL.format("raise OSError(28, 'full')"),
    "its own file as input": KERNEL.format("open(__file__).read()"), "an endless file": KERNEL.format("open('/dev/zero').read(9)"),
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


# -- arrays, messages --------------------------------------------------------------------------------------------------
def array(header: str | bytes, data: bytes = b"", version: int = 1) -> bytes:
    """Return an array's file of a format version with any header."""
    raw = header.encode() if isinstance(header, str) else header
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(raw)) + raw + data


def of(dtype: str, shape: str, size: int = 64) -> bytes:
    return array(f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n", bytes(size))


def packed(*arrays: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, content in enumerate(arrays):
            archive.writestr(f"../x{number}.npy", content)
    return file.getvalue()


PICKLE = b"cos\nabort\n(tR."                            # a call of os.abort
ARRAYS = {
    "terabytes": of("'<f4'", "(1000000000000, 4)"), "elements beyond 64 bits": of("'<f4'", "(9223372036854775807, 9223372036854775807)"),
    "a negative size": of("'<f4'", "(-4, 4)"), "a size that is a bool": of("'<f4'", "(True, 4)"), "axes": of("'<f4'", f"({'1, ' * 20_000})"),
    "65 axes": of("'<f4'", f"({'1, ' * 65})"), "minus signs": of("'<f4'", f"({'-' * 60_000}4, 4)"), "brackets": of("[" * 3_000 + "]" * 3_000, "(4, 4)"),
    "objects": array("{'descr': '|O', 'fortran_order': False, 'shape': (4, 4), }\n", PICKLE), "a pickle": PICKLE,
    "texts of megabytes": of("'<U1000000'", "(4, 4)"), "texts of nothing": of("'<U0'", "(4, 4)"), "records": of("[('a', '<f4'), ('b', '<i4')]", "(4, 4)", 128),
    "bytes without a type": of("'|V4'", "(4, 4)"), "times": of("'<M8[ns]'", "(4, 4)", 128), "numbers of 16 bytes": of("'<f16'", "(4, 4)", 256),
    "complex numbers": of("'<c8'", "(4, 4)", 128), "big-endian numbers": of("'>f4'", "(4, 4)"), "too few bytes": of("'<f4'", "(4, 4)", 10),
    "too many bytes": of("'<f4'", "(4, 4)", 4_000_000), "a header of gigabytes": b"\x93NUMPY\x02\0\xff\xff\xff\xff{", "not UTF-8": array(b"\xff" * 64, version=3),
    "code in the header": array("__import__('os').abort()"), "only the magic number": b"\x93NUMPY", "zero bytes": b"\0" * 1_000_000, "empty": b"",
    "an archive": packed(of("'<f4'", "(4, 4)")), "an archive of objects": packed(array("{'descr': '|O', }", PICKLE)),
    "an archive of 100 MB": packed(of("'<f4'", "(1024, 24414)", 100_000_000)), "many arrays": packed(*[b""] * 20_000), "half an archive": packed(b"")[:40],
}


def message(body: object) -> bytes:
    data = json.dumps(body).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


def notice(method: str, **parameters: object) -> bytes:
    return message({"jsonrpc": "2.0", "method": method, "params": parameters})


OPENED = message({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
FILE = {"uri": "file:///a.mlir"}
TEXT = OPENED + notice("textDocument/didOpen", textDocument=FILE | {"text": "module {}"})
ENDED = message({"jsonrpc": "2.0", "id": 2, "method": "shutdown"}) + notice("exit")
MESSAGES = {
    **{f"a length of {name}": b"Content-Length: " + length + b"\r\n\r\n{}" + ENDED for name, length in {
        "15 digits": b"999999999999999", "100,000 digits": b"9" * 100_000, "4 GB": b"4294967296", "less than 0": b"-5", "a float": b"1e3",
        "a sign": b"+2", "an underscore": b"1_0", "another script": "٣".encode(), "nothing": b""}.items()},
    "two lengths": b"Content-Length: 2\r\nContent-Length: 9999\r\n\r\n{}" + ENDED, "no length": b"a: 1\r\n\r\n{}" + ENDED, "no header": b"a\r\n\r\n{}",
    "a header without an end": b"a" * 20_000_000, "a million headers": b"a: b\r\n" * 1_000_000, "line feeds alone": (OPENED + ENDED).replace(b"\r", b""),
    "brackets": b"Content-Length: 200000\r\n\r\n" + b"[" * 200_000 + ENDED, "digits": b"Content-Length: 100000\r\n\r\n" + b"9" * 100_000 + ENDED,
    "not UTF-8": b"Content-Length: 4\r\n\r\n\xff\xfe\xfd\xfc" + ENDED, "no objects": b"".join(map(message, ([], [1], 5, None, "a", True))) + ENDED,
    "odd methods": OPENED + b"".join(message({"id": i, "method": m, "params": p}) for i, m, p in [({}, "a", {}), (3, 7, {}), (
        [1], None, 5), (1e999, "textDocument/hover", "x"), ("a" * 100_000, "textDocument/hover", [])]) + ENDED,
    "odd files": OPENED + b"".join(notice("textDocument/didOpen", textDocument={"uri": uri, "text": "module {"}) for uri in [
        "", "file://", "http://a/b", "file:///dev/zero", "file:///%00", "\ud800", 5, None, "file:///" + "a" * 100_000]) + ENDED,
    "odd texts": OPENED + b"".join(notice("textDocument/didOpen", textDocument=FILE | {"text": text}) for text in [
        None, 5, ["a"], "\ud800", "\0" * 1_000]) + ENDED,
    "odd changes": TEXT + b"".join(notice("textDocument/didChange", textDocument=FILE, contentChanges=changes) for changes in [
        None, 5, [], [5], [{"range": {}}], [{"text": 5}], [{"range": {"start": {"line": -1, "character": 0}, "end": {
            "line": 10 ** 20, "character": 0}}, "text": "x"}]]) + ENDED,
    "odd positions": TEXT + message({"id": 3, "method": "textDocument/hover", "params": {"textDocument": FILE, "position": {
        "line": -5, "character": 10 ** 30}}}) + ENDED,
    "an end without a beginning": ENDED, "no end": TEXT, "half a message": OPENED[:30], "empty": b"",
}
INPUTS: dict[str, Mapping[str, str | bytes | list[str]]] = {
    "module": MODULES, "graph": GRAPHS, "assembly": ASSEMBLY, "binary": BINARIES, "python": SOURCES, "kernel": RUN,
    "config": CONFIGS, "assignment": ASSIGNMENTS, "option": OPTIONS, "array": ARRAYS, "message": MESSAGES}


def write(folder: Path) -> None:
    """Write each input to ``folder/kind/name``, options as one line each."""
    for kind, inputs in INPUTS.items():
        (folder / kind).mkdir()
        for name, content in inputs.items():
            data = "\n".join(content) if isinstance(content, list) else content
            (folder / kind / name).write_bytes(data.encode() if isinstance(data, str) else data)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
