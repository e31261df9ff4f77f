# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latencies of kernels without a device: ``benchmark`` and ``profile`` report what the timed machine makes of the
instruction streams, as ``nki-run --time`` does.

The kernel is also run once, so that its outputs are well defined.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from nki_mlir.alone import alone
from nki_mlir.diagnostics import KernelError
from nki_mlir.files import write_file
from nki_mlir.language.arguments import with_arrays
from nki_mlir.language.kernel import Kernel, capturing, describe_array, is_array
from nki_mlir.language.specialization import Specialization
from nki_mlir.targets.neuron import profile
from nki_mlir.targets.neuron.timing import Timing

SOURCE = ("simulated on a timed model of the machine, which is deterministic: all percentiles are equal; "
          "not measured on a device")

M = TypeVar("M", bound="MeasuredKernel")


@dataclass(frozen=True)
class Latency:
    """One latency for all percentiles: a model has no spread."""

    microseconds: float

    def get_latency_percentile(self, percentile: int) -> float:
        """Microseconds."""
        return self.microseconds


@dataclass(frozen=True)
class BenchmarkResult:
    """What ``benchmark`` leaves on a kernel."""

    nc_latency: Latency
    source: str = SOURCE


@dataclass(eq=False)
class MeasuredKernel(Kernel):
    """A kernel whose calls on arrays leave files (the first program's module, a summary of its time, its profile),
    and their latency in ``benchmark_result``."""

    save_neff_name: str | None = None
    save_trace_name: str | None = None
    artifacts_dir: str | None = None
    profile: str | None = None
    latest: list[Specialization] = field(default_factory=list)

    def with_changes(self: M, **changes: object) -> M:
        return super().with_changes(latest=[], **changes)

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        if capturing():
            return self.inline(arguments, keywords)
        arguments, keywords = with_arrays(arguments, keywords)
        for folder in self.folders():
            folder.mkdir(parents=True, exist_ok=True)
        made = super().__call__(*arguments, **keywords)
        self.latest[:] = [self.specialize(self.bind(arguments, keywords, is_array, describe_array))]
        self.leave(self.latest[0])
        return made

    @property
    def benchmark_result(self) -> BenchmarkResult:
        """Of the last call."""
        if not self.latest:
            raise AttributeError(f"{self.__name__} has not been called yet: call it, then read benchmark_result")
        return BenchmarkResult(Latency(self.latest[0].timing.total_ns / 1e3))

    def folders(self) -> list[Path]:
        """Where files go besides the working directory; refused where others are in the way."""
        if self.profile is not None:
            profile.check_folder(self.profile)
        if self.artifacts_dir is None:
            return []
        folder = Path(self.artifacts_dir)
        if folder.is_dir() and any(f.name != f"{self.__name__}.mlir" for f in folder.iterdir()):
            raise ArtifactsDirectory(found=str(folder)).here()
        return [folder]

    @alone
    def leave(self, made: Specialization) -> None:
        """The files of one call."""
        module = made.modules[0]
        if self.artifacts_dir is not None:
            write_file(Path(self.artifacts_dir) / f"{self.__name__}.mlir", str(module))
        if self.save_neff_name:
            write_file(Path(self.save_neff_name), str(module))
        if self.save_trace_name:
            write_file(Path(self.save_trace_name), summary_of(made.timing))
        if self.profile is not None:
            profile.write_profile(made.profile, Path(self.profile))


class ArtifactsDirectory(KernelError, ValueError):
    code = "NKI-ARTIFACTS-DIRECTORY"
    message = "artifacts_dir {found!r} has files of others"
    fix = "pass a new or an empty directory"


def summary_of(timing: Timing) -> str:
    """A time as JSON: seconds by the profiler's names, then the figures of ``nki-run --time --json``."""
    figures = timing.figures()
    summary = {"source": SOURCE, "total_time": figures["total_ns"] / 1e9, "dma_active_time": figures["dma_ns"] / 1e9,
               **{f"{e}_engine_active_time": ns / 1e9 for e, ns in figures["busy_ns"].items()},
               **{f"{e}_instruction_count": n for e, n in figures["instructions_per_engine"].items()}, **figures}
    return json.dumps(summary, indent=1)


@dataclass(eq=False)
class ProfiledKernel(MeasuredKernel):
    """A kernel whose calls write the program, a summary of its time and its profile into ``working_directory``."""

    save_neff_name: str = "file.neff"
    save_trace_name: str = "profile.ntff"
    working_directory: str = "."
    profile_nth: int = 1
    num_execs: int | None = None

    def folders(self) -> list[Path]:
        return [profile.check_folder(self.working_directory) / "json_reports"]

    @alone
    def leave(self, made: Specialization) -> None:
        folder, summary = Path(self.working_directory), summary_of(made.timing)
        profile.write_profile(made.profile, folder)
        write_file(folder / self.save_neff_name, str(made.modules[0]))
        for name in self.traces():
            write_file(folder / name, summary)
            write_file(folder / "json_reports" / f"{Path(name).stem}.json", summary)

    def traces(self) -> list[str]:
        """File names of the executions that are traced: every ``profile_nth`` of ``num_execs``."""
        last = self.num_execs or self.profile_nth
        numbers = range(self.profile_nth, last + 1, self.profile_nth) or [self.profile_nth]
        stem, suffix = Path(self.save_trace_name).stem, Path(self.save_trace_name).suffix
        return [f"{stem}{suffix}" if n == 1 else f"{stem}_exec_{n}{suffix}" for n in numbers]


def copy_as(kernel: Kernel, cls: type[Kernel], **settings: object) -> "MeasuredKernel":
    """The kernel as a subclass, with a cache of its own."""
    kept = [part.name for part in fields(Kernel) if part.init and part.name != "specializations"]
    generated: Callable[[object, object], Callable[..., MeasuredKernel]] = of_generation
    return generated(cls, type(kernel))(**{name: getattr(kernel, name) for name in kept}, **settings)


@cache
def of_generation(cls: type, base: type) -> type:
    """A class of this module for kernels of a subclass of ``Kernel``."""
    own = next(c for c in base.__mro__ if not issubclass(c, MeasuredKernel))
    if issubclass(cls, own):
        return cls
    made = type(cls.__name__, (cls, own), {"__doc__": cls.__doc__, "__module__": __name__})
    return dataclass(eq=False)(made)
