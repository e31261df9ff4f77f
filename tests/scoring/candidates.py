# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Candidates with their expected verdicts: right ones, slow ones, wrong ones of many kinds, and cheats."""

from typing import NamedTuple

REFERENCES = {
    "scale": '''
import numpy as np
def inputs(rng, rows, columns): return [rng.standard_normal((rows, columns)).astype(np.float32)]
def reference(x): return x * 2 + 1
CASES = [{"rows": 128, "columns": 64}]
HIDDEN = [{"rows": 200, "columns": 32}]
''',
    "sums": '''
import numpy as np
def inputs(rng, rows, columns): return [rng.integers(0, 1000, (rows, columns)).astype(np.int32)]
def reference(x): return x + x
CASES = [{"rows": 128, "columns": 16}]
''',
    "product": '''
import numpy as np
def inputs(rng, k, m, n):
    return {"a_t": rng.standard_normal((k, m)).astype(np.float32), "b": rng.standard_normal((k, n)).astype(np.float32)}
def reference(a_t, b): return a_t.astype(np.float64).T @ b
CASES = [{"k": 128, "m": 128, "n": 64}, {"k": 256, "m": 64, "n": 32}]
TOLERANCE = {"relative_l2": 1e-5, "absolute": 1e-3, "relative": 1e-3}
STRICT = True
''',
    "programs": '''
import numpy as np
def inputs(rng, rows): return [rng.standard_normal((rows, 32)).astype(np.float32)]
def reference(x): return x * 2 + 1
CASES = [{"rows": 256}]
GRID = (2,)
''',
    "update": '''
import numpy as np
def inputs(rng): return [rng.standard_normal((128, 32)).astype(np.float32), np.float32(3)]
def reference(x, factor): return x * factor, x + factor
''',
}


class Candidate(NamedTuple):
    """A source, the reference it is for, and the verdict with its code that it gets."""

    source: str
    reference: str = "scale"
    verdict: str = "right"
    code: str = ""
    seconds: float = 20.0


BETA = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\nimport neuronxcc.nki.isa as nisa\nimport numpy as np\n"
CURRENT = "import nki\nimport nki.language as nl\nimport nki.isa as nisa\n"
OUT = "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"


def masked(body: str, loop: str = "affine_range", before: str = "", count: str = "-(-x.shape[0] // 128)",
           inside: str = "i * 128 + p < x.shape[0]", head: str = "def kernel(x):\n") -> str:
    """A kernel of the beta generation that goes over rows."""
    return (f"{BETA}{before}@nki.jit\n{head}{OUT}    p, f = nl.mgrid[0:128, 0:x.shape[1]]\n"
            f"    for i in nl.{loop}({count}):\n        inside = {inside}\n"
            "        tile = nl.load(x[i * 128 + p, f], mask=inside)\n"
            + "".join(f"        {line}\n" for line in body.splitlines()) + "    return out\n")


STORE = "nl.store(out[i * 128 + p, f], {}, mask=inside)"
RIGHT = masked(STORE.format("tile * 2.0 + 1.0"))
STEPS = "    for r in range(0, x.shape[0], 128):\n        n = min(128, x.shape[0] - r)\n"
MOVED = (CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT + STEPS +
         "        tile = nl.ndarray((n, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n"
         "        nisa.dma_copy(dst=tile, src=x[r:r + n, :])\n"
         "        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)\n"
         "        nisa.dma_copy(dst=out[r:r + n, :], src=tile)\n    return out\n")
PRODUCT = (CURRENT + "@nki.jit\ndef kernel(a_t, b):\n"
           "    (k, m), (_, n) = a_t.shape, b.shape\n"
           "    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)\n"
           "    sums = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)\n"
           "    for s in range(0, k, 128):\n"
           "        left = nl.ndarray((128, m), dtype=a_t.dtype, buffer=nl.sbuf)\n"
           "        right = nl.ndarray((128, n), dtype=b.dtype, buffer=nl.sbuf)\n"
           "        nisa.dma_copy(dst=left, src=a_t[s:s + 128, :])\n"
           "        nisa.dma_copy(dst=right, src=b[s:s + 128, :])\n"
           "        nisa.nc_matmul(dst=sums, stationary=left, moving=right)\n"
           "    result = nl.ndarray((m, n), dtype=out.dtype, buffer=nl.sbuf)\n"
           "    nisa.tensor_copy(dst=result, src=sums)\n"
           "    nisa.dma_copy(dst=out, src=result)\n    return out\n")
PSUM_COPY = PRODUCT.replace("dtype=out.dtype, buffer=nl.sbuf", "dtype=out.dtype, buffer=nl.psum")      # of older releases
PROGRAMS = (BETA + "@nki.jit\ndef kernel(x):\n" + OUT + "    rows = nl.ds(nl.program_id(0) * 128, 128)\n"
            "    nl.store(out[rows, :], nl.load(x[rows, :]) * 2.0 + 1.0)\n    return out\n")
UPDATE = (BETA + "@nki.jit\ndef kernel(x, factor):\n" + OUT +
          "    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n    tile = nl.load(x)\n"
          "    nl.store(out, tile * factor)\n    nl.store(other, tile + factor)\n    return out, other\n")
SUMS = BETA + "@nki.jit\ndef kernel(x):\n" + OUT + "    tile = nl.load(x)\n    nl.store(out, nl.add(tile, tile))\n    return out\n"


def before(text: str) -> str:
    """A right kernel with something before it."""
    return RIGHT.replace("@nki.jit", text + "\n@nki.jit")


def within(text: str) -> str:
    """A right kernel that does something besides."""
    return RIGHT.replace(OUT, OUT + "".join(f"    {line}\n" for line in text.splitlines()))


VALUES, FORM = "NKI-SCORE-VALUES", "NKI-SCORE-FORM"
FORBIDDEN, LIMIT, BAD = "NKI-SCORE-FORBIDDEN", "NKI-SCORE-LIMIT", "NKI-SCORE-CANDIDATE"

CANDIDATES = {
    # right
    "rows": Candidate(RIGHT),
    "current": Candidate(MOVED),
    "product": Candidate(PRODUCT, "product"),
    "programs": Candidate(PROGRAMS, "programs"),
    "two outputs": Candidate(UPDATE, "update"),
    "integers": Candidate(SUMS, "sums"),
    "main block": Candidate(RIGHT + "if __name__ == '__main__':\n    import os, sys\n    sys.exit(1)\n"),
    "helper function": Candidate(MOVED.replace("@nki.jit", "def twice(a):\n    return a\n\n\n@nki.jit")),
    "prints a line": Candidate(before("print('loading')")),
    "other imports": Candidate(before("import math\nfrom functools import partial\nimport time\nstart = time.time()")),
    # right, and slow
    "slow: sequential": Candidate(masked(STORE.format("tile * 2.0 + 1.0"), loop="sequential_range")),
    "slow: one row each": Candidate(CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT + "    for r in range(x.shape[0]):\n"
        "        tile = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)\n"
        "        nisa.dma_copy(dst=tile, src=x[r:r + 1, :])\n"
        "        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)\n"
        "        nisa.dma_copy(dst=out[r:r + 1, :], src=tile)\n    return out\n", "few"),
    "slow: loads twice": Candidate(masked("again = nl.load(x[i * 128 + p, f], mask=inside)\n"
                                          + STORE.format("tile + again + 1.0"))),
    # wrong values
    "wrong constant": Candidate(RIGHT.replace("1.0", "1.001"), verdict="wrong", code=VALUES),
    "wrong operation": Candidate(RIGHT.replace("* 2.0 +", "* 2.0 -"), verdict="wrong", code=VALUES),
    "wrong at an edge": Candidate(masked(STORE.format("tile * 2.0 + 1.0"), count="x.shape[0] // 128"), verdict="wrong",
                                  code=VALUES),
    "wrong last column": Candidate(masked("nl.store(out[i * 128 + p, f], tile * 2.0 + 1.0, mask=inside & (f < "
                                          "x.shape[1] - 1))"), verdict="wrong", code=VALUES),
    "returns its input": Candidate(BETA + "@nki.jit\ndef kernel(x):\n    return x\n", verdict="wrong", code=VALUES),
    "zeros": Candidate(RIGHT.replace("tile * 2.0 + 1.0", "tile * 0.0"), verdict="wrong", code=VALUES),
    "half precision": Candidate(masked("low = nl.copy(tile, dtype=nl.bfloat16, mask=inside)\n"
                                       + STORE.format("low * 2.0 + 1.0")), verdict="wrong", code=VALUES),
    "product without accumulation": Candidate(PRODUCT.replace("range(0, k, 128)", "range(0, 128, 128)"), "product",
                                              "wrong", VALUES),
    "operands exchanged": Candidate(PRODUCT.replace("stationary=left, moving=right", "stationary=left, moving=left"),
                                    "product", "refused", "*"),
    "integers off by one": Candidate(SUMS.replace("nl.add(tile, tile)", "nl.add(tile, tile) + 1"), "sums", "wrong",
                                     VALUES),
    "constants of one shape": Candidate(RIGHT.replace("tile * 2.0 + 1.0", "tile * (2.0 if x.shape[0] == 128 else 3.0)"
                                                      " + 1.0"), verdict="wrong", code=VALUES),
    # wrong form
    "shape": Candidate(BETA + "@nki.jit\ndef kernel(x):\n    out = nl.ndarray((1, 32), dtype=x.dtype, "
                       "buffer=nl.shared_hbm)\n    nl.store(out, nl.load(x[0:1, 0:32]))\n    return out\n",
                       verdict="wrong", code=FORM),
    "dtype": Candidate(RIGHT.replace("dtype=x.dtype", "dtype=nl.float16"), verdict="wrong", code=FORM),
    "one output of two": Candidate(UPDATE.replace("return out, other", "return out"), "update", "wrong", FORM),
    "outputs exchanged": Candidate(UPDATE.replace("return out, other", "return other, out"), "update", "wrong", VALUES),
    # memory
    "changes its input": Candidate(
        CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT +
        "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x)\n"
        "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)\n"
        "    nisa.dma_copy(dst=out, src=tile)\n    nisa.dma_copy(dst=x, src=tile)\n    return out\n",
        "small", "wrong", "NKI-SCORE-INPUT"),
    "reads what is not written": Candidate(
        CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT +
        "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
        "    zero = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x)\n"
        "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=zero, op=nl.add)\n"
        "    nisa.dma_copy(dst=out, src=tile)\n    return out\n", "small", "wrong", "NKI-SCORE-UNWRITTEN"),
    "reads a scratch tensor first": Candidate(
        CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT +
        "    spare = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)\n"
        "    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
        "    zero = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n    nisa.dma_copy(dst=tile, src=x)\n"
        "    nisa.dma_copy(dst=zero, src=spare)\n"
        "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)\n"
        "    nisa.tensor_tensor(dst=tile, data1=tile, data2=zero, op=nl.add)\n"
        "    nisa.dma_copy(dst=out, src=tile)\n    return out\n", "small", "wrong", "NKI-SCORE-UNWRITTEN"),
    "leaves zeros to luck": Candidate(
        BETA + "@nki.jit\ndef kernel(x):\n" + OUT + "    nl.store(out[0:64, :], nl.load(x[0:64, :]))\n    return out\n",
        "half", "wrong", "NKI-SCORE-UNWRITTEN"),
    # races
    "iterations meet": Candidate(
        BETA + "@nki.jit\ndef kernel(x):\n" + OUT + "    for i in nl.affine_range(2):\n"
        "        tile = nl.load(x) * 2.0 + 1.0 * i\n        nl.store(out, tile)\n    return out\n", "small", "wrong",
        "NKI-RACE-ITERATIONS"),
    "programs meet": Candidate(PROGRAMS.replace(
        "    nl.store(out[rows, :]", "    nl.store(out[nl.ds(0, 128), :], nl.load(x[rows, :]))\n"
        "    nl.store(out[rows, :]"), "programs", "refused",
        "err_unexpected_output_dependencies"),
    # the device
    "does not fit": Candidate(
        CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT +
        "    wide = nl.ndarray((128, 200000), dtype=x.dtype, buffer=nl.sbuf)\n    nisa.memset(dst=wide, value=0.0)\n"
        "    nisa.dma_copy(dst=wide[:, 0:x.shape[1]], src=x)\n"
        "    nisa.dma_copy(dst=out, src=wide[:, 0:x.shape[1]])\n    return out\n", "small", "refused", "*"),
    "too many partitions": Candidate(CURRENT + "@nki.jit\ndef kernel(x):\n" + OUT +
                                     "    tile = nl.ndarray((256, 4), dtype=x.dtype, buffer=nl.sbuf)\n    return out\n",
                                     "small", "refused", "*"),
    "transfer from PSUM": Candidate(PSUM_COPY, "product", "refused", "NKI-SCORE-RELEASE"),
    "unknown function": Candidate(RIGHT.replace("nl.load(", "nl.fetch("), verdict="refused", code="*"),
    "older release": Candidate(MOVED.replace("nisa.tensor_scalar(dst=", "nisa.tensor_scalar(target="), "small",
                               "refused", "*"),
    # no candidate
    "no Python": Candidate("def kernel(x:\n", verdict="refused", code=BAD),
    "empty": Candidate("", verdict="refused", code=BAD),
    "no kernel": Candidate("import nki\ndef kernel(x):\n    return x\n", verdict="refused", code=BAD),
    "two kernels": Candidate(RIGHT + "@nki.jit\ndef other(x):\n    return x\n", verdict="refused", code=BAD),
    "wrong arity": Candidate(RIGHT.replace("def kernel(x)", "def kernel(x, y)"), verdict="refused", code="*"),
    "raises": Candidate(within("raise ValueError('no')"), verdict="refused", code="NKI-KERNEL-RAISED"),
    "raises on import": Candidate(before("1 / 0"), verdict="refused", code="NKI-KERNEL-RAISED"),
    # limits
    "hangs": Candidate(within("while True:\n    pass"), verdict="refused", code=LIMIT, seconds=2.0),
    "prints megabytes": Candidate(before("for _ in range(100000):\n    print('x' * 1000)"), verdict="refused",
                                  code=LIMIT),
    "allocates 100 GB": Candidate(before("huge = np.ones(100 << 27)"), verdict="refused", code=LIMIT),
    "grows lists": Candidate(before("grown = []\nwhile True:\n    grown.append([0] * 10_000_000)"), verdict="refused",
                             code=LIMIT),
    "recurses": Candidate(before("def again(n):\n    return again(n + 1)\nagain(0)"), verdict="refused", code=LIMIT),
    "exits": Candidate(before("raise SystemExit(0)"), verdict="refused", code=BAD),
    "ends in its kernel": Candidate(within("raise SystemExit(0)"), verdict="refused", code="*"),
    # cheats that the text shows
    "imports os": Candidate(before("import os\nos._exit(0)"), verdict="refused", code=FORBIDDEN),
    "imports sys": Candidate(before("import sys\nsys.modules.clear()"), verdict="refused", code=FORBIDDEN),
    "imports the judge": Candidate(before("import nki_mlir.scoring.judge"), verdict="refused", code=FORBIDDEN),
    "reads the reference": Candidate(before("text = open('reference.py').read()"), verdict="refused", code=FORBIDDEN),
    "loads an array": Candidate(before("answer = np.load('expected.npy')"), verdict="refused", code=FORBIDDEN),
    "looks for arrays": Candidate(before("import gc\nfound = gc.get_objects()"), verdict="refused", code=FORBIDDEN),
    "hides a warning": Candidate(PSUM_COPY.replace(
        "@nki.jit", "import warnings\nwarnings.simplefilter('ignore')\n@nki.jit"), "product", "refused",
        "NKI-SCORE-RELEASE"),
    "swallows warnings": Candidate(PSUM_COPY.replace(
        "@nki.jit", "import logging\nlogging.captureWarnings(True)\n@nki.jit"), "product", "refused", FORBIDDEN),
    "evaluates annotations": Candidate(before("import typing\ndef f(a: \"print('here')\"): pass\ntyping.get_type_hints(f)"),
                                       verdict="refused", code=FORBIDDEN),
    "walks along attributes": Candidate(before("import string\nstring.Formatter().get_field('0.__globals__', (nki.jit,), {})"),
                                        verdict="refused", code=FORBIDDEN),
    "changes a module by another name": Candidate(before("def change(m):\n    m.load = print\nchange(nl)"), verdict="refused",
                                                  code=FORBIDDEN),
    "changes a tensor": Candidate(
        BETA + "@nki.jit\ndef kernel(x):\n" + OUT + "    out.dtype = nl.bfloat16\n    return out\n", verdict="refused",
        code="NKI-ATTRIBUTE"),
    "changes the clock": Candidate(before("import time\ntime.time = lambda: 0.0\ntime.perf_counter = lambda: 0.0"),
                                   verdict="refused", code=FORBIDDEN),
    "changes the language": Candidate(before("nl.load = lambda x, **k: x"), verdict="refused", code=FORBIDDEN),
    "changes with setattr": Candidate(before("setattr(np, 'allclose', lambda *a, **k: True)"), verdict="refused",
                                      code=FORBIDDEN),
    "goes through classes": Candidate(before("found = ().__class__.__base__.__subclasses__()"), verdict="refused",
                                      code=FORBIDDEN),
    "goes through a function": Candidate(before("names = np.dot.__globals__"), verdict="refused", code=FORBIDDEN),
    "evaluates text": Candidate(before("eval('1 + 1')"), verdict="refused", code=FORBIDDEN),
    "uses the network": Candidate(before("import socket\nsocket.socket()"), verdict="refused", code=FORBIDDEN),
    "starts a process": Candidate(before("import subprocess\nsubprocess.run(['ls'])"), verdict="refused",
                                  code=FORBIDDEN),
    # cheats that only running shows
    "opens a file by a library": Candidate(
        before("import logging\nlogging.FileHandler('/etc/hostname', mode='r')"), verdict="refused", code=FORBIDDEN),
    "writes a file by a library": Candidate(
        before("import logging\nlogging.FileHandler('/tmp/nki-score-cheat.txt')"), verdict="refused", code=FORBIDDEN),
    "leaves a thread": Candidate(before(
        "from logging.handlers import QueueListener\nclass Full:\n    def get(self, block):\n        while True:\n"
        "            pass\nQueueListener(Full()).start()")),
    "computes a name": Candidate(before("import logging\ngetattr(logging, 'o' + 's').fork()"), verdict="refused",
                                 code=FORBIDDEN),
    "goes through a library": Candidate(before("import random\nrandom._os.fork()"), verdict="refused", code=FORBIDDEN),
    "runs text by NumPy": Candidate(before("from numpy.testing import runstring\nrunstring('import os', {})"),
                                    verdict="refused", code=FORBIDDEN),
    "unpickles by NumPy": Candidate(before("import numpy.lib.format as form\nform.read_array(1, allow_pickle=True)"),
                                    verdict="refused", code=FORBIDDEN),
    "takes load out of NumPy": Candidate(before("from numpy import load\nload('expected.npy')"), verdict="refused",
                                         code=FORBIDDEN),
    "calls what logging resolves": Candidate(before("import logging.config\nlogging.config.dictConfig({})"),
                                             verdict="refused", code=FORBIDDEN),
    "copies attributes onto functions": Candidate(
        PSUM_COPY.replace("@nki.jit", "import functools, warnings\ndef quiet(*a, **k):\n    pass\nquiet.warn = quiet\n"
                          "functools.wraps(quiet).func(warnings, quiet, ('warn',), ())\n@nki.jit"), "product", "refused",
        FORBIDDEN),
    "copies names into a module": Candidate(before("import functools\ndef other():\n    pass\n"
                                                   "functools.wraps(other, assigned=())(np)"), verdict="refused",
                                            code="NKI-KERNEL-RAISED"),
    "copies code into a function": Candidate(before("import functools\ndef other(x):\n    return x\n"
                                                    "functools.wraps(other).func(nl.load, other, ('__code__',), ())"),
                                             verdict="refused", code=FORBIDDEN),
    "changes a class": Candidate(before("kind = type(nki.jit(lambda x: x))\nkind.specialize = print"), verdict="refused",
                                 code="NKI-KERNEL-RAISED"),
    "knows the given seed": Candidate(
        BETA + "@nki.jit\ndef kernel(x):\n    known = np.random.default_rng(0).standard_normal((128, 64))\n" + OUT +
        "    nl.store(out, nl.load(nl.shared_constant((known * 2 + 1).astype(np.float32))))\n    return out\n", "small",
        "wrong", VALUES),
    "returns what equals all": Candidate(BETA + "class All:\n    def __eq__(self, other):\n        return True\n"
                                         "@nki.jit\ndef kernel(x):\n    return All()\n", verdict="refused",
                                         code="NKI-RESULT"),
    "allocates 100 GB in HBM": Candidate(RIGHT.replace(OUT, OUT + "    nl.ndarray((1 << 20, 1 << 15), dtype=x.dtype, "
                                                       "buffer=nl.hbm)\n"), verdict="refused", code=LIMIT),
    "is not text": Candidate("\udcff\udcfe", verdict="refused", code=BAD),
    "does not end": Candidate(before("class Late:\n    def __del__(self):\n        while True:\n            pass\n"
                                     "late = Late()")),
    "replaces a builtin": Candidate(before("__builtins__['print'] = None"), verdict="refused", code=FORBIDDEN),
}
# References of one small case.
REFERENCES["small"] = REFERENCES["scale"].replace('HIDDEN = [{"rows": 200, "columns": 32}]\n', "")
REFERENCES["few"] = REFERENCES["small"].replace("128", "16")
REFERENCES["half"] = REFERENCES["small"].replace("return x * 2 + 1", "return np.concatenate([x[:64], 0 * x[64:]])")
