# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latencies of kernels without a device: ``benchmark`` and ``profile`` report what the instruction costs add up to.

The kernel is also run once, so that its outputs are well defined.
"""

import json
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from nki_mlir.alone import alone
from nki_mlir.bindings import ir
from nki_mlir.diagnostics import KernelError
from nki_mlir.files import write_file
from nki_mlir.frontend.locations import user_location
from nki_mlir.language.arguments import with_arrays
from nki_mlir.language.kernel import Kernel, capturing, describe_array, is_array

SOURCE = "estimated from the cost formulas of the instructions; not measured on a device"


@dataclass(frozen=True)
class Latency:
    """One latency for all percentiles: an estimate has no spread."""

    microseconds: float

    def get_latency_percentile(self, percentile: int) -> float:
        """Microseconds."""
        return self.microseconds


@dataclass(frozen=True)
class BenchmarkResult:
    """What ``benchmark`` leaves on a kernel."""

    nc_latency: Latency
    source: str = SOURCE


@alone
def estimate_module(captured: Any) -> Any:
    """The estimate of a program's module, lowered to instructions."""
    from nki_mlir.passes.pass_manager import run_passes  # start-up: loads MLIR
    from nki_mlir.passes.pipelines import passes_to
    from nki_mlir.targets.neuron.estimate import estimate
    with captured.context, ir.Location.unknown():
        module = captured.operation.clone()
        run_passes(module, passes_to("nisa", module))
        return estimate(module)


@dataclass(eq=False)
class MeasuredKernel(Kernel):
    """A kernel whose calls on arrays leave files: the first program's module, and a summary of its estimate."""

    save_neff_name: str | None = None
    save_trace_name: str | None = None
    artifacts_dir: Any = None

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if capturing():
            return self.inline(arguments, keywords)
        arguments, keywords = with_arrays(arguments, keywords)
        for folder in self.folders():
            folder.mkdir(parents=True, exist_ok=True)
        made = super().__call__(*arguments, **keywords)
        module = self.specialize(self.bind(arguments, keywords, is_array, describe_array)).modules[0]
        self.leave(module)
        return made

    def folders(self) -> list[Path]:
        """Where files go besides the working directory; refused where others are in the way."""
        if self.artifacts_dir is None:
            return []
        folder = Path(self.artifacts_dir)
        if folder.is_dir() and any(f.name != f"{self.__name__}.mlir" for f in folder.iterdir()):
            raise ArtifactsDirectory(found=str(folder)).located(user_location())
        return [folder]

    @alone
    def leave(self, module: Any) -> None:
        """The files of one call."""
        if self.artifacts_dir is not None:
            write_file(Path(self.artifacts_dir) / f"{self.__name__}.mlir", str(module))
        if self.save_neff_name:
            write_file(Path(self.save_neff_name), str(module))
        if self.save_trace_name:
            write_file(Path(self.save_trace_name), summary_of(estimate_module(module)))


class ArtifactsDirectory(KernelError, ValueError):
    code = "NKI-ARTIFACTS-DIRECTORY"
    message = "artifacts_dir {found!r} has files of others"
    fix = "pass a new or an empty directory"


def summary_of(estimate: Any) -> str:
    """An estimate as JSON, by the names of the profiler's summaries."""
    summary = {"source": SOURCE, "total_time": estimate.latency_ns / 1e9, "hbm_bytes": estimate.hbm_bytes,
               **{f"{e}_engine_active_time": ns / 1e9 for e, ns in estimate.busy_ns.items()},
               **{f"{e}_instruction_count": n for e, n in estimate.instructions.items()}}
    return json.dumps(summary, indent=1)


@dataclass(eq=False)
class BenchmarkedKernel(MeasuredKernel):
    """A kernel that keeps its latency in ``benchmark_result`` when it is called."""

    results: list[BenchmarkResult] = field(default_factory=list)

    def with_changes(self, **changes: Any) -> Any:
        return super().with_changes(results=[], **changes)

    def leave(self, module: Any) -> None:
        super().leave(module)
        self.results[:] = [BenchmarkResult(Latency(estimate_module(module).latency_ns / 1e3))]

    @property
    def benchmark_result(self) -> BenchmarkResult:
        """Of the last call."""
        if not self.results:
            raise AttributeError(f"{self.__name__} has not been called yet: call it, then read benchmark_result")
        return self.results[0]


@dataclass(eq=False)
class ProfiledKernel(MeasuredKernel):
    """A kernel whose calls write the program and a summary of its estimate into ``working_directory``."""

    save_neff_name: str = "file.neff"
    save_trace_name: str = "profile.ntff"
    working_directory: Any = "."
    profile_nth: int = 1
    num_execs: int | None = None

    def folders(self) -> list[Path]:
        return [Path(self.working_directory) / "json_reports"]

    def leave(self, module: Any) -> None:
        folder, summary = Path(self.working_directory), summary_of(estimate_module(module))
        write_file(folder / self.save_neff_name, str(module))
        for name in self.traces():
            write_file(folder / name, summary)
            write_file(folder / "json_reports" / f"{Path(name).stem}.json", summary)

    def traces(self) -> list[str]:
        """File names of the executions that are traced: every ``profile_nth`` of ``num_execs``."""
        last = self.num_execs or self.profile_nth
        numbers = range(self.profile_nth, last + 1, self.profile_nth) or [self.profile_nth]
        stem, suffix = Path(self.save_trace_name).stem, Path(self.save_trace_name).suffix
        return [f"{stem}{suffix}" if n == 1 else f"{stem}_exec_{n}{suffix}" for n in numbers]


def copy_as(kernel: Kernel, cls: type[Kernel], **settings: Any) -> Any:
    """The kernel as a subclass, with a cache of its own."""
    kept = [part.name for part in fields(Kernel) if part.init and part.name != "specializations"]
    generated: Any = of_generation
    return generated(cls, type(kernel))(**{name: getattr(kernel, name) for name in kept}, **settings)


@cache
def of_generation(cls: Any, base: Any) -> Any:
    """A class of this module for kernels of a subclass of ``Kernel``."""
    own: Any = next(c for c in base.__mro__ if not issubclass(c, MeasuredKernel))
    if issubclass(cls, own):
        return cls
    made: Any = type(cls.__name__, (cls, own), {"__doc__": cls.__doc__, "__module__": __name__})
    return dataclass(eq=False)(made)
