# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Latencies of kernels without a device: ``benchmark`` and ``profile`` report the timed machine's result for the
instruction streams, as ``nki-run --time`` does.

The kernel is also run once, so that its outputs are well defined.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from nki_mlir.alone import alone
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import write_file
from nki_mlir.language.arguments import with_arrays
from nki_mlir.language.compiled_files import trace_of
from nki_mlir.language.framework_tensors import framework_of
from nki_mlir.language.kernel import Kernel, capturing, describe_array, is_array
from nki_mlir.language.kernel_attributes import takes_attributes
from nki_mlir.language.specialization import Specialization
from nki_mlir.targets.neuron import profile
from nki_mlir.targets.neuron.format.artifacts import pack_kernel
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary

SOURCE = ("simulated on a timed model of the machine, which is deterministic: all percentiles are equal; "
          "not measured on a device")

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)

M = TypeVar("M", bound="MeasuredKernel")


class FileOfCall(NkiMlirError):
    code = "NKI-FILE-OF-CALL"
    message = "a call of {kernel} cannot write {file}: {reason}"
    fix = "create the folder first, or name a file that can be written"


@dataclass(frozen=True)
class Latency:
    """One latency for all percentiles, since modeled times do not vary."""

    microseconds: float

    def get_latency_percentile(self, percentile: int) -> float:
        """Return the latency in microseconds, the same for all percentiles."""
        return self.microseconds


@dataclass(frozen=True)
class BenchmarkResult:
    """The result of ``benchmark``, as an attribute of the kernel."""

    nc_latency: Latency
    interval: tuple[float, float]           # microseconds: contains a device's latency with 80 % probability
    source: str = SOURCE
    cores: int = 1                          # cores that are timed together

    @property
    def latency(self) -> Latency:
        """The latency from end to end; the model has no host."""
        return self.nc_latency

    @property
    def full_results(self) -> dict[str, object]:
        """All figures by name: latencies in microseconds by percentile, throughput in calls per second."""
        latency = {str(p): self.nc_latency.microseconds for p in PERCENTILES}
        return {"nc_latency": latency, "latency": latency, "cc_latency": dict.fromkeys(latency, 0.0),
                "throughput": 1e6 / self.nc_latency.microseconds, "interval": list(self.interval),
                "source": self.source, "cores": self.cores}


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
class MeasuredKernel(Kernel):
    """A kernel whose calls on arrays write files (the compiled kernel, its trace, its profile).

    A call records its latency in ``benchmark_result``, also on the kernel from which this one was launched with a
    grid.
    """

    save_neff_name: str | None = None
    save_trace_name: str | None = None
    artifacts_dir: str | None = None
    profile: str | None = None
    latest: list[Specialization] = field(default_factory=list)
    origins: "list[MeasuredKernel]" = field(default_factory=list, repr=False)        # the originals of this copy

    def with_changes(self: M, **changes: object) -> M:
        return super().with_changes(latest=[], origins=[self], **changes)

    @without_internal_frames
    def __call__(self, *arguments: object, **keywords: object) -> Any:
        if capturing():
            return self.inline(arguments, keywords)
        arguments, keywords = with_arrays(arguments, keywords)
        for folder in self.folders():
            with writing(self.__name__, folder):
                folder.mkdir(parents=True, exist_ok=True)
        if framework_of(arguments, keywords) is None:
            compiled = self.specialize(self.bind(arguments, keywords, is_array, describe_array))
        else:
            compiled = self.lower(*arguments, **keywords).specialization
        self.leave_kernel(compiled)
        results = super().__call__(*arguments, **keywords)
        self.leave_traces(compiled)
        self.record(compiled)
        return results

    def record(self, compiled: Specialization) -> None:
        """Record the last called kernel, also on the kernel without the grid."""
        self.latest[:] = [compiled]
        for origin in self.origins:
            origin.record(compiled)

    def execute_neff(self, *arguments: object, **keywords: object) -> Any:
        """Call the kernel. Shapes of an earlier call are not compiled again."""
        return self(*arguments, **keywords)

    def without_result(self) -> str:
        return f"{self.__name__} has not been called yet: call it, then read benchmark_result"

    @property
    def benchmark_result(self) -> BenchmarkResult:
        """The result of the last call."""
        if not self.latest:
            raise AttributeError            # Python calls ``__getattr__``
        timing = self.latest[0].optimized.timing
        low, high = timing.interval_ns
        return BenchmarkResult(Latency(timing.total_ns / 1e3), (low / 1e3, high / 1e3), cores=len(timing.cores))

    def folders(self) -> list[Path]:
        """Return the folders for files other than the working directory."""
        if self.profile is not None:
            profile.check_folder(self.profile)
        return [] if self.artifacts_dir is None else [Path(self.artifacts_dir)]

    @alone
    def leave_kernel(self, compiled: Specialization) -> None:
        """Write the module and the compiled kernel of one call to files. The caller does so before the kernel runs, so
        that the files exist even if the run fails."""
        if self.artifacts_dir is not None:
            write(self.__name__, Path(self.artifacts_dir) / f"{self.__name__}.mlir", str(compiled.modules[0]))
        if self.save_neff_name:
            write(self.__name__, Path(self.save_neff_name), pack_kernel(compiled.optimized.streams))

    @alone
    def leave_traces(self, compiled: Specialization) -> None:
        """Write the files of one call that contain its time."""
        if self.save_trace_name:
            write(self.__name__, Path(self.save_trace_name), trace_of(compiled))
        if self.profile is not None:
            profile.write_profile(compiled.optimized.profile, Path(self.profile))


@contextmanager
def writing(kernel: str, file: Path) -> Iterator[None]:
    """Raise ``FileOfCall`` if the ``with`` block cannot write a file or create a folder."""
    try:
        yield
    except OSError as error:
        raise FileOfCall(kernel=kernel, file=file, reason=error.strerror).here() from None


def write(kernel: str, file: Path, data: str | bytes) -> None:
    """Write a file of a kernel's call. Raise ``FileOfCall`` if that is not possible."""
    with writing(kernel, file):
        write_file(file, data)


def report_of(compiled: Specialization) -> str:
    """Return a report as JSON: the figures under the profiler's names, then the figures of ``nki-run --time
    --json``."""
    figures = vendor_summary(compiled.optimized.profile) | compiled.optimized.timing.figures()
    return json.dumps({**figures, "source": SOURCE}, indent=1)


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
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
    def leave_kernel(self, compiled: Specialization) -> None:
        file = Path(self.working_directory) / self.save_neff_name
        write(self.__name__, file, pack_kernel(compiled.optimized.streams))

    @alone
    def leave_traces(self, compiled: Specialization) -> None:
        folder, report = Path(self.working_directory), report_of(compiled)
        profile.write_profile(compiled.optimized.profile, folder)
        for execution, name in self.traces().items():
            write(self.__name__, folder / name, trace_of(compiled, execution))
            write(self.__name__, folder / "json_reports" / f"{Path(name).stem}.json", report)

    def traces(self) -> dict[int, str]:
        """Return the trace file of each traced execution, by number: every ``profile_nth`` of ``num_execs``
        is traced."""
        end = self.num_execs or self.profile_nth
        numbers = range(self.profile_nth, end + 1, self.profile_nth) or [self.profile_nth]
        stem, suffix = Path(self.save_trace_name).stem, Path(self.save_trace_name).suffix
        return {n: f"{stem}{suffix}" if n == 1 else f"{stem}_exec_{n}{suffix}" for n in numbers}


def copy_as(kernel: Kernel, cls: type[Kernel], **settings: object) -> "MeasuredKernel":
    """Return the kernel as an instance of a subclass, with a new cache."""
    names = [part.name for part in fields(Kernel) if part.init and part.name != "specializations"]
    generated: Callable[[object, object], Callable[..., MeasuredKernel]] = of_generation
    return generated(cls, type(kernel))(**{name: getattr(kernel, name) for name in names}, **settings)


@cache
def of_generation(cls: type, base: type) -> type:
    """Derive a class of this module for kernels of a subclass of ``Kernel``."""
    plain = next(c for c in base.__mro__ if not issubclass(c, MeasuredKernel))
    if issubclass(cls, plain):
        return cls
    derived = type(cls.__name__, (cls, plain), {"__doc__": cls.__doc__, "__module__": __name__})
    return takes_attributes(dataclass(eq=False, frozen=True, repr=False)(derived))
