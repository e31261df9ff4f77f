# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-run``: run a kernel or a module on an executor, and compare executors."""

import argparse
import sys
import time
from typing import Any

EXECUTORS = ("eager", "interpreter", "jit", "isa")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="nki-run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a kernel FILE.py:FUNCTION, or the function of an MLIR file, and print its results.")
    p.add_argument("source", metavar="KERNEL_OR_IR", help="FILE.py:FUNCTION, an MLIR file, or - for standard input")
    p.add_argument("--arg", action="append", default=[], metavar="VALUE",
                   help="an argument, repeated: 128x512xf32=random|zeros|ones|arange|FILE.npy, 2, name=value")
    p.add_argument("--load-library", action="append", default=[], metavar="FILE.so",
                   help="load a library of custom C++ operators that the source calls, repeated")
    p.add_argument("--on", choices=EXECUTORS, default="jit", help="where it runs (default: jit)")
    p.add_argument("--grid", metavar="N,M", default="", help="launch grid of a kernel, for example 2,4")
    p.add_argument("--target", help="trn1, trn2 or trn3")
    p.add_argument("--compare", nargs="?", const="all", metavar="ON,ON",
                   help="also run on these executors (all without a value) and compare; exit status 1 if they differ")
    p.add_argument("--tolerance", type=float, default=1e-5,
                   help="largest accepted error for --compare and --verify-each, relative to max(1, |value|)")
    p.add_argument("--verify-each", action="store_true",
                   help="run the module before and after every pass on the same inputs; name the first that differs")
    p.add_argument("--save", metavar="FILE.npz", help="write the results to a file")
    p.add_argument("--quiet", action="store_true", help="print no arrays")
    return p


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    from nki_mlir.cli import source
    from nki_mlir.diagnostics import NkiMlirError
    try:
        return run(options)
    except NkiMlirError as error:
        return source.fail(error)


def run(options: Any) -> int:
    from nki_mlir.cli import source
    from nki_mlir.cli.arguments import parse_arguments
    positional, keywords = parse_arguments(options.arg)
    source.load_libraries(options.load_library)
    if source.is_kernel(options.source):
        runnable: Any = KernelSource(options, positional, keywords)
    else:
        from nki_mlir.cli.opt import Options, parse
        text = source.read_text(options.source)
        if "stablehlo." in text:
            runnable = StablehloSource(text, positional)
        else:
            module = parse(text, source.display_name(options.source), Options([options.source]))
            runnable = ModuleSource(module, positional, keywords)
    if options.verify_each:
        return verify_each(runnable, options)
    results = timed(runnable, options.on, options)
    if options.save:
        save(options.save, results)
    return compare(runnable, results, options) if options.compare else 0


class KernelSource:
    """A Python kernel with its arguments."""

    executors = EXECUTORS

    def __init__(self, options: Any, positional: list[Any], keywords: dict[str, Any]) -> None:
        from dataclasses import replace

        from nki_mlir.cli.source import load_kernel
        kernel = load_kernel(options.source)
        if options.target:
            kernel = replace(kernel, target=options.target, specializations={})
        if options.grid:
            kernel = kernel[tuple(int(n) for n in options.grid.split(","))]
        self.kernel, self.positional, self.keywords = kernel, positional, keywords

    def run(self, on: str) -> list[tuple[str, Any]]:
        arguments, keywords = copied(self.positional), {k: copied([v])[0] for k, v in self.keywords.items()}
        results = self.kernel.run(tuple(arguments), keywords, on)
        several = results if isinstance(results, tuple) else (results,)
        return [(f"result {k}", r) for k, r in enumerate(several)]

    def module(self) -> Any:
        from nki_mlir.language.kernel import describe_array, is_array
        bound = self.kernel.bind(tuple(self.positional), self.keywords, is_array, describe_array)
        spec = self.kernel.specialize(bound)
        return spec.modules[0], bound.tensors


class ModuleSource:
    """The kernel function of a module, its inputs given or random."""

    executors = ("interpreter", "jit", "isa")

    def __init__(self, module: Any, positional: list[Any], keywords: dict[str, Any]) -> None:
        from nki_mlir.cli.arguments import fill
        from nki_mlir.dialects.kernel_function import the_kernel
        self.given = module
        self.kernel = the_kernel(module)
        self.inputs = []
        for k, spec in enumerate(self.kernel.inputs):
            given = keywords.get(spec.name, positional[k] if k < len(positional) else None)
            if given is None:
                assert spec.dtype is not None
                given = fill(spec.shape, spec.dtype, "random", k, spec.name)
            self.inputs.append(check_input(given, spec))

    def run(self, on: str) -> list[tuple[str, Any]]:
        return run_module(self.given, self.inputs, on)

    def module(self) -> Any:
        return self.given, self.inputs


class StablehloSource:
    """A StableHLO module whose kernels are linked."""

    executors = ("jit", "isa")

    def __init__(self, text: str, positional: list[Any]) -> None:
        self.text, self.positional = text, positional

    def run(self, on: str) -> list[tuple[str, Any]]:
        from nki_mlir.frameworks import stablehlo
        run = stablehlo.simulate_linked if on == "isa" else stablehlo.run_linked
        results = run(self.text, self.positional)
        return [(f"result {k}", r) for k, r in enumerate(results)]

    def module(self) -> Any:
        from nki_mlir.cli.source import SourceError
        raise SourceError("--verify-each takes a kernel or a module at the nki, linalg or nisa level")


def check_input(array: Any, spec: Any) -> Any:
    import numpy as np

    from nki_mlir.cli.source import SourceError
    from nki_mlir.scalar.dtypes import dtype_of
    if not isinstance(array, np.ndarray) or array.shape != spec.shape or dtype_of(array.dtype) is not spec.dtype:
        found = f"{array.shape} {array.dtype}" if isinstance(array, np.ndarray) else repr(array)
        raise SourceError(f"argument {spec.name} is {found}; the function takes {spec.shape} {spec.dtype}")
    return array


def copied(values: list[Any]) -> list[Any]:
    """Arrays are copied, since kernels may update them."""
    return [v.copy() if hasattr(v, "ctypes") else v for v in values]


def run_module(module: Any, inputs: list[Any], on: str) -> list[tuple[str, Any]]:
    """The results (and updated inputs) of a module's kernel function on an executor."""
    import numpy as np

    from nki_mlir.dialects.kernel_function import the_kernel
    from nki_mlir.frontend.capture import Captured, Variant
    from nki_mlir.language.kernel import executor
    kernel = the_kernel(module)
    program = executor(on)(Captured({(): Variant(module, [], None, 0)}, 0, {}), kernel.grid)
    arrays = copied(inputs)
    shared = [np.zeros(a.shape, a.dtype.numpy) for a in kernel.shared if a.dtype is not None]
    program(arrays, shared)
    made = []
    for number in kernel.results or [k for k, a in enumerate(kernel.arguments) if a.kind == "shared"]:
        spec = kernel.arguments[number]
        made.append((spec.name, shared[spec.place] if spec.kind == "shared" else arrays[spec.place]))
    return made or [(a.name, arrays[a.place]) for a in kernel.inputs]


def timed(runnable: Any, on: str, options: Any) -> list[tuple[str, Any]]:
    started = time.perf_counter()
    results = runnable.run(on)
    first = time.perf_counter() - started
    if not options.quiet:
        for name, value in results:
            print(f"{name}: {value.dtype}{list(value.shape)}\n{value}")
    print(f"{on}: {first * 1e3:.1f} ms (with compilation)")
    return results


def save(file: str, results: list[tuple[str, Any]]) -> None:
    import io

    import numpy as np

    from nki_mlir.cli.output import write_output
    buffer = io.BytesIO()
    np.savez(buffer, **{name.replace(" ", "_"): value for name, value in results})
    write_output(file, buffer.getvalue())


def error_of(first: Any, second: Any) -> float:
    """The largest difference, relative to max(1, |value|); NaN equals NaN, infinities equal themselves."""
    import numpy as np
    a, b = (np.asarray(x).astype(np.float64) for x in (first, second))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    with np.errstate(invalid="ignore"):
        off = np.where(same, 0.0, np.abs(a - b) / np.maximum(1.0, np.abs(a)))
    return float(np.where(np.isnan(off), np.inf, off).max())


def compare(runnable: Any, results: list[tuple[str, Any]], options: Any) -> int:
    """Run elsewhere, too, and print the largest error of each; 1 when one is over the tolerance."""
    others = [e for e in runnable.executors if e != options.on] if options.compare == "all" else (
        options.compare.split(","))
    status = 0
    for on in others:
        started = time.perf_counter()
        again = runnable.run(on)
        spent = time.perf_counter() - started
        worst = max(error_of(a, b) for (_, a), (_, b) in zip(results, again))
        verdict = "agrees" if worst <= options.tolerance else "DIFFERS"
        status |= worst > options.tolerance
        print(f"{on}: {spent * 1e3:.1f} ms, largest error against {options.on} {worst:.3g}: {verdict}")
    return int(status)


def verify_each(runnable: Any, options: Any) -> int:
    """Interpret the module before and after every pass on the same inputs; name the first pass that changes a value."""
    from nki_mlir.bindings import ir
    from nki_mlir.transforms.passes import run_passes
    from nki_mlir.transforms.pipelines import passes_to
    given, inputs = runnable.module()
    reference = run_module(given, inputs, "interpreter")
    with given.context, ir.Location.unknown():
        module = ir.Module.parse(str(given))
        for one in passes_to("nisa", module):
            run_passes(module, [one])
            results = run_module(module, inputs, "interpreter")
            worst = max(error_of(a, b) for (_, a), (_, b) in zip(reference, results))
            if worst > options.tolerance:
                print(f"{one.name}: changes the result, largest error {worst:.3g}")
                return 1
            print(f"{one.name}: same values (largest error {worst:.3g})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
