# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``CompileOptions``: how a kernel is compiled to a file, and where the file is written."""

from dataclasses import dataclass, replace

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current.kernel import Kernel, kernel_of
from nki_mlir.machine import machine_named

TARGETS = ("trn1", "inf2", "trn2", "trn3")
BACKEND_OPTIMIZATIONS = ("enable-linear-scan-allocation", "enable-instruction-scheduling")


class BadCompileOption(NkiMlirError, ValueError):
    code = "NKI-COMPILE-OPTION"
    message = "the compile option {name} cannot be {value}"
    fix = "use one of {allowed}"


@dataclass(frozen=True)
class CompileOptions:
    """Options of a compilation. ``target``, ``lnc``, ``artifacts_dir``, ``output_path``, ``enable_simulation`` and
    ``emit_predicted_latency`` have an effect; the others are only stored.

    ``target`` and ``lnc`` (the cores of the launch) default to the kernel's. ``output_path`` is
    relative to ``artifacts_dir``, or if that is None to a temporary directory, which lives as long as the compiled
    kernel.

    Example:
        options = CompileOptions(target="trn2", lnc=1).set_pipeline_options("nisa-allocation-mode=ring")
        assert options.pipeline_options == ("nisa-allocation-mode=ring",)
        assert options.clear_pipeline_options("nisa").pipeline_options == ()
        assert "enable-instruction-scheduling=false" in options.disable_backend_optimizations().pipeline_options
    """

    target: str | None = None
    lnc: int | None = None
    output_path: str = "kernel.neff"
    artifacts_dir: str | None = None
    neuronx_cc_args: tuple[str, ...] = ()
    neuronx_cc_path: str = "neuronx-cc"
    enable_simulation: bool = False
    enable_statistics: bool = False
    emit_predicted_latency: bool = False
    enable_device_dump: bool = False
    pipeline_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.target is not None and self.target not in TARGETS:
            raise BadCompileOption(name="target", value=repr(self.target), allowed=", ".join(TARGETS)).here()
        if self.lnc is not None and self.lnc not in (1, 2):
            raise BadCompileOption(name="lnc", value=repr(self.lnc), allowed="1, 2").here()

    def set_pipeline_options(self, *options: str) -> "CompileOptions":
        """Return a copy with these options, each ``name=value``. They replace options of the same names."""
        names = [option.partition("=")[0] for option in options]
        unchanged = [o for o in self.pipeline_options if o.partition("=")[0] not in names]
        return replace(self, pipeline_options=(*unchanged, *options))

    def clear_pipeline_options(self, *prefixes: str) -> "CompileOptions":
        """Return a copy without the options whose names begin with a prefix; without prefixes the copy has none."""
        remaining = [o for o in self.pipeline_options if prefixes and not o.startswith(prefixes)]
        return replace(self, pipeline_options=tuple(remaining))

    def disable_backend_optimizations(self) -> "CompileOptions":
        """Return a copy whose pipeline options switch the allocator and the scheduler off."""
        return self.set_pipeline_options(*[f"{name}=false" for name in BACKEND_OPTIMIZATIONS])

    def launched(self, function: object) -> Kernel:
        """Return the kernel of a function or kernel, with the target and the cores of the options."""
        kernel = kernel_of(function)
        if self.target is not None and machine_named(self.target).name != machine_named(kernel.platform).name:
            kernel = kernel.with_changes(target=self.target)
        return kernel if self.lnc is None or (self.lnc,) == (kernel.grid or (1,)) else kernel[self.lnc]
