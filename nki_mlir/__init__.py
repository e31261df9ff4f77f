# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""nki_mlir: an open MLIR toolchain for NKI, the tile language of AWS Trainium and Inferentia.

Importing the package loads neither MLIR nor a framework; each part loads what it needs when it is used.

A kernel is a function under ``@nki.jit`` of either generation. A call runs it; ``lower`` returns the kernel at each
level::

    import nki_mlir
    lowered = kernel.lower(nki_mlir.spec((256, 512), "float32"))    # kernel[grid].lower(...) with a launch grid
    print(lowered.as_text("nisa"))      # a level: nki, waist, nisa, isa
    lowered.module("waist")             # as a module of the MLIR bindings
    lowered.streams                     # the instruction streams, one program a core
    lowered.time().total_ns             # on the timed machine
    lowered.profile().write("folder")   # timeline, roofline, memory, advice; shown in a notebook as a page
    lowered.cost                        # arithmetic, bytes, instructions
    nki_mlir.opt(module, "nki-to-linalg,linalg-to-nisa")            # passes on a module or a text, as nki-opt runs them
    nki_mlir.check(kernel, *arguments)                              # what is wrong with a kernel, as nki-run --check
    nki_mlir.score(candidate, reference)                            # the verdict on a candidate kernel, as nki-score
    nki_mlir.tune(kernel, space, arguments)                         # the fastest of its parameters, as nki-tune

``compat.install`` makes ``nki``, ``neuronxcc.nki``, ``torch_neuronx`` and ``jax_neuronx`` importable
(``python -m nki_mlir SCRIPT`` does so, too), ``frameworks`` has kernels in JAX, PyTorch and StableHLO, ``customop`` C++
operators. ``help(nl)``, ``help(nisa)`` and ``help`` of any of their functions say what they do, with examples that run.
The commands, each with ``--help``, are ``nki-opt``, ``nki-run`` and ``nki-translate``, ``nki-migrate`` for sources of
older releases, ``nki-score``, ``nki-tune`` and ``nki-grade`` for candidates, ``nki-calibrate`` for measurements of a
device, ``nki-lsp`` for editors, and ``nki-env`` for programs that start the vendor's executables. Packages that add to
the toolchain import names from ``plugin``.
"""

from nki_mlir.version import __version__

TYPE_CHECKING = False       # as in typing, whose import would take longer than all of this module

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from typing import ParamSpec, TypeVar

    from nki_mlir.bindings import Module
    from nki_mlir.checking.report import KernelReport
    from nki_mlir.language.kernel import Kernel
    from nki_mlir.language.lowered import Spec
    from nki_mlir.scoring.verdict import CandidateVerdict
    from nki_mlir.tuning.search import TuningResult

    P = ParamSpec("P")
    R = TypeVar("R")

__all__ = ["__version__", "check", "load_ipython_extension", "opt", "score", "spec", "tune"]
# Where the registry, which is below these packages, looks for passes.
PASS_PACKAGES = ("nki_mlir.transforms", "nki_mlir.conversion", "nki_mlir.targets.neuron.codegen",
                 "nki_mlir.targets.cpu.passes")


def __dir__() -> list[str]:
    return __all__


def _without_internal_frames(function: "Callable[P, R]") -> "Callable[P, R]":
    """Wrap a function as ``capture.tracebacks`` does, whose import this module puts off until an error is raised."""
    def call(*arguments: "P.args", **keywords: "P.kwargs") -> "R":
        try:
            return function(*arguments, **keywords)
        except BaseException as error:
            from nki_mlir.capture.tracebacks import leave_out_internal_frames  # start-up: imported on first use
            leave_out_internal_frames(error)
            raise
    for name in ("__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(call, name, getattr(function, name))
    call.__dict__["__wrapped__"] = function
    return call


@_without_internal_frames
def spec(shape: tuple[int, ...], dtype: object = "float32") -> "Spec":
    """Describe a tensor by its shape and dtype, for ``kernel.lower``.

    Arguments:
        shape: its extents
        dtype: a name, or a dtype of NumPy, PyTorch or the language

    Result:
        A ``Spec``, which ``kernel.lower`` takes in place of an array.

    Errors:
        A value that is not a shape or not a dtype raises a TypeError.

    Example:
        lowered = nki.jit(double).lower(nki_mlir.spec((128, 64), "bfloat16"))
        assert "memref<128x64xbf16" in lowered.as_text()
    """
    from nki_mlir.language.lowered import Spec  # start-up: imported on first use
    return Spec(shape, dtype)


@_without_internal_frames
def check(kernel: "Kernel", *arguments: object, **keywords: object) -> "KernelReport":
    """Check a kernel on some arguments, and report every mistake that the checkers find.

    The kernel's Python runs once. A checker looks at each operation and finds where a NaN or an infinity comes from,
    which values leave their dtype's range, and how much each statement rounds. At the end it reports outputs that the
    kernel did not write, arguments that it wrote, and results that nothing reads. The report also has the races, broken
    rules of the device and reads of unwritten memory that any run finds, and the errors in the instruction streams.

    Arguments:
        kernel: the kernel, with its grid if it has one
        arguments: arrays and constants, as in a call; the check does not change them
        keywords: arguments by name

    Result:
        ``findings``, ``precision`` and ``sound``; ``str`` of the report is the text for a terminal, ``json()`` a dict.

    Errors:
        Arguments that the kernel does not take are errors, as in a call, and tensors of a framework are; each mistake
        of the kernel is a finding.

    Example:
        def half(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out[0:64, :], nl.load(x[0:64, :]))
            return out
        report = nki_mlir.check(nki.jit(half), np.ones((128, 64), np.float32))
        assert not report.sound and report.findings[0].kind == "unwritten-output"
    """
    from nki_mlir.checking.kernel_check import check_kernel  # start-up: imported on first use
    return check_kernel(kernel, arguments, keywords)


@_without_internal_frames
def opt(module: "Module | str", passes: "str | Sequence[str]" = (), to: str = "", target: str = "") -> "Module":
    """Run passes in order on a module or its text, as ``nki-opt`` does, and return a new module.

    Arguments:
        module: a module of the MLIR bindings, or its text; the call does not change it
        passes: the names of passes with their options, "a,b{option=value}", or a list of such texts
        to: the level to lower to after the passes: linalg (the waist) or nisa; none by default
        target: trn1, trn2 or trn3, for a module that names no target

    Result:
        A module of the MLIR bindings.

    Errors:
        A text that does not parse, an unknown pass, and a module that a pass refuses are errors.

    Example:
        lowered = nki.jit(double).lower(nki_mlir.spec((128, 64)))
        waist = nki_mlir.opt(lowered.as_text(), "split-masked-loops,nki-to-linalg")
        nisa = nki_mlir.opt(lowered.module("nki"), to="nisa")
        assert "linalg.generic" in str(waist) and "nisa.tensor_scalar" in str(nisa)
    """
    from nki_mlir.cli.lowering import optimized  # start-up: loads MLIR
    return optimized(module, passes, to, target)


@_without_internal_frames
def score(candidate: "str | os.PathLike[str]", reference: "str | os.PathLike[str]", kernel: str = "",
          target: str = "", seconds: float = 60.0, megabytes: int = 4096, level: int = 1) -> "CandidateVerdict":
    """Judge a candidate kernel: whether it is right, whether the device would accept it, how fast it would be.

    The candidate runs in separate processes, which reach neither the reference nor the values.

    Arguments:
        candidate: its Python file
        reference: the Python file with ``inputs``, ``reference`` and the other names of docs/scoring.md
        kernel: the kernel's name, needed if the file has several kernels and the reference names none of them
        target: trn1, trn2 or trn3; the reference's by default
        seconds: the time limit of the candidate
        megabytes: the memory limit of the candidate
        level: how long the judge searches for a fast order of instructions before it times them: 0 (program order),
            1 or 3

    Result:
        A dict that converts to JSON, with the properties ``right``, ``total_time`` (seconds of the timed machine) and
        ``advice``.

    Errors:
        A reference that cannot be used, and a file that cannot be read, are errors; the verdict names the mistakes of
        the candidate.

    Example:
        with open("candidate.py", "w") as out:
            out.write("import nki\\nimport nki.language as nl\\n@nki.jit\\ndef double(x):\\n    return x\\n")
        with open("reference.py", "w") as out:
            out.write("import numpy as np\\ndef inputs(rng):\\n    return [rng.random((4, 8), np.float32)]\\n"
                      "def reference(x):\\n    return x * 2\\n")
        verdict = nki_mlir.score("candidate.py", "reference.py")
        assert not verdict.right and verdict["reason"]["code"] == "NKI-SCORE-VALUES"
    """
    from nki_mlir.scoring.client import shared_scorer  # start-up: imported on first use
    return shared_scorer().score({"candidate": candidate, "reference": reference, "kernel": kernel, "target": target,
                                  "seconds": seconds, "megabytes": megabytes, "level": level})


@_without_internal_frames
def tune(kernel: object, space: "Mapping[str, Sequence[object]]", args: "Sequence[object]",
         reference: "Callable[..., object] | None" = None, tolerance: "Mapping[str, float] | None" = None,
         trials: int = 64, seed: int = 0) -> "TuningResult":
    """Search a kernel's parameters for the fastest choice that computes the right values, on the timed machine.

    Arguments:
        kernel: the kernel, which takes the parameters by keyword
        space: the values of each parameter; ``grid`` is the launch grid, ``O`` the level of ``nki-run -O``
        args: the kernel's arguments, arrays and constants
        reference: a function of the arguments that computes the right values; by default the kernel with the first
            value of each parameter
        tolerance: the bounds ``relative_l2``, ``absolute`` and ``relative`` of docs/scoring.md
        trials: the largest number of choices to try
        seed: the seed of the search, which repeats with the same seed

    Result:
        A ``TuningResult``: ``best`` (a dict), its ``seconds``, ``speedup`` over the first choice, and all ``attempts``.

    Errors:
        A space without values is an error, and so is a space in which no choice is right.

    Example:
        def scaled(x, columns=8):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            for c in nl.affine_range(x.shape[1] // columns):
                part = nl.ds(c * columns, columns)
                nl.store(out[:, part], nl.multiply(nl.load(x[:, part]), 2.0))
            return out
        x = np.ones((128, 64), np.float32)
        result = nki_mlir.tune(nki.jit(scaled), {"columns": [8, 16, 64]}, [x], lambda x: x * 2)
        assert result.best == {"columns": 64} and result.speedup > 1
    """
    from nki_mlir.tuning.kernels import tune_kernel  # start-up: imported on first use
    return tune_kernel(kernel, space, args, reference, {} if tolerance is None else tolerance, trials, seed)


def load_ipython_extension(shell: object) -> None:
    """``%load_ext nki_mlir``: highlight the MLIR modules that a notebook shows, also before it lowers a kernel.

    Arguments:
        shell: the shell of IPython

    Result:
        None.

    Errors:
        None.

    Example:
        nki_mlir.load_ipython_extension(None)       # what %load_ext nki_mlir does in a notebook
    """
    from nki_mlir import display  # start-up: imported on first use
    display.register()
