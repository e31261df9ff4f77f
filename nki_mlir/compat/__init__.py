# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Make the vendor's module names importable where the vendor's packages are absent.

``install()`` appends a finder to Python's, so an installed package always wins; ``override=True`` puts the finder
first. It provides ``torch_xla`` only on request: some scripts choose their CPU path by its ImportError.
"""

import importlib
import importlib.machinery
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from nki_mlir.alone import permanent_imports
from nki_mlir.diagnostics import NkiMlirError

if TYPE_CHECKING:
    from importlib.abc import Loader as Loader
else:
    Loader = object                 # imports need only the methods below; ``importlib.abc`` takes 4 ms to load

RELEASE = "0.6.0+nki.mlir"              # the vendor's version with the language of the current generation
BETA_RELEASE = "2.21+nki.mlir"          # the version of the vendor's compiler with the last beta language

# Our modules, with the vendor's names for each.
MODULES = {
    "nki_mlir.language.beta.nki": "neuronxcc.nki",
    "nki_mlir.language.beta.language": "neuronxcc.nki.language",
    "nki_mlir.language.beta.constants": "neuronxcc.nki.language.constants",
    "nki_mlir.language.beta.isa": "neuronxcc.nki.isa",
    "nki_mlir.language.beta.isa_constants": "neuronxcc.nki.isa.constants neuronxcc.nki.isa.neuron_isa",
    "nki_mlir.language.beta.errors": "neuronxcc.nki.errors",
    "nki_mlir.language.beta.typing": "neuronxcc.nki.typing neuronxcc.nki.compiler.backends.neuron.indexing",
    "nki_mlir.language.beta.compiler": "neuronxcc.nki.compiler",
    "nki_mlir.language.beta.support": "neuronxcc.starfish.support.dtype neuronxcc.starfish.support.util",
    "nki_mlir.language.current.nki": "nki",
    "nki_mlir.language.current.language": "nki.language",
    "nki_mlir.language.current.memory": "nki.language.buffers",
    "nki_mlir.language.current.tensor": "nki.language.tensor",
    "nki_mlir.language.current.isa": "nki.isa",
    "nki_mlir.language.current.enums": "nki.isa.constants",
    "nki_mlir.language.current.collectives": "nki.collectives",
    "nki_mlir.language.current.typing": "nki.typing",
    "nki_mlir.language.current.dtype": "nki.dtype",
    "nki_mlir.language.current.meta": "nki.meta",
    "nki_mlir.language.current.host_arrays": "nki.meta.tensor nki.tensor",
    "nki_mlir.language.current.compiler": "nki.compiler nki.compiler.kernel_builder nki.compiler.frontend "
                                          "nki.compiler.target",
    "nki_mlir.language.current.driver": "nki.compiler.driver nki.compiler.ncc_driver",
    "nki_mlir.language.current.runtime": "nki.runtime nrtpy nrtpy.spike_tensor nrtpy.spike_model nrtpy._nrtpy "
                                         "spike spike._spike",
    "nki_mlir.compat.nkipy_runtime": "nkipy.runtime nkipy.core.backend.hlo",
    "nki_mlir.compat.nkipy_compile": "nkipy.core.compile",
    "nki_mlir.language.current.compiled": "nki.framework.compiled",
    "nki_mlir.language.current.kernel": "nki.framework.kernel",
    "nki_mlir.frameworks.torch_neuronx": "torch_neuronx torch_neuronx.nki_hop torch_neuronx.utils "
                                         "torch_neuronx.xla_impl.ops",
    "nki_mlir.customop.torch_binding": "torch_neuronx.xla_impl.custom_op",
    "nki_mlir.frameworks.jax_neuronx": "jax_neuronx",
}

# Names of vendor modules that are defined above the language in the order of imports: looked up on their first use.
VERSIONS = {"nki": RELEASE, "nki._version": RELEASE, "neuronxcc": BETA_RELEASE}
FRAMEWORK_KERNEL = "nki_mlir.frameworks.framework_kernel"
LAZY: dict[str, dict[str, tuple[str, str]]] = {
    "neuronxcc.nki": {"FrameworkKernel": (FRAMEWORK_KERNEL, "FrameworkKernel")},
    "neuronxcc.nki.compiler.backends.neuron.FrameworkKernel": {"UnifiedKernel": (FRAMEWORK_KERNEL, "FrameworkKernel")},
    "nki.compiler.backends.neuron.FrameworkKernel": {"UnifiedKernel": (FRAMEWORK_KERNEL, "FrameworkKernel")},
    "nki.experimental": {name: ("nki_mlir.language.current.language", name) for name in ("fori_loop", "while_loop")},
    "nki.compile": {"GenericKernel": ("nki_mlir.language.current.kernel", "Kernel")}}       # in the first releases


def vendor_names(modules: Mapping[str, str], *more: str) -> dict[str, str | None]:
    """Map the vendor's names of modules to ours, and to None the names ``more`` and packages that only have
    submodules."""
    named = {name: module for module, names in modules.items() for name in names.split()}
    packages = {name[:dot.start()] for name in (*named, *more) for dot in re.finditer(r"\.", name)}
    return {**dict.fromkeys(sorted({*packages, *more})), **named}


NAMES = vendor_names(MODULES, *LAZY, *VERSIONS)
TORCH_XLA = vendor_names({
    "nki_mlir.compat.torch_xla_standin": "torch_xla torch_xla.core.xla_model",
    "nki_mlir.compat.torch_xla_runtime": "torch_xla.runtime",
    "nki_mlir.compat.torch_xla_launch": "torch_xla.distributed.xla_multiprocessing "
                                        "torch_xla.distributed.parallel_loader",
    "nki_mlir.compat.torch_xla_backend": "torch_xla.distributed.xla_backend"})


class Package(ModuleType):
    """A module whose classes keep their names when a submodule of the same name is imported: ``nl.tensor`` is the
    class of annotations, ``nki.language.tensor`` a module only for ``from ... import``."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and isinstance(self.__dict__.get(name), type)):
            super().__setattr__(name, value)


class Finder(Loader):
    """An import finder and loader of the vendor names in a table."""

    def __init__(self, names: dict[str, str | None]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if fullname in self.names:
            package = any(name.startswith(fullname + ".") for name in self.names)
            return importlib.machinery.ModuleSpec(fullname, self, is_package=package, origin=self.names[fullname])
        around = sys.modules.get(fullname.partition(".")[0])
        if getattr(around, "__loader__", None) is self and f"{fullname}.".startswith(VENDOR_ONLY):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True, origin="nki_mlir")
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ not in self.names:
            module.__dict__["__getattr__"] = partial(stub, module.__name__)
            return
        source = self.names[module.__name__]
        if source is not None:
            with permanent_imports():
                public = vars(importlib.import_module(source))
            module.__dict__.update({k: v for k, v in public.items() if not (k.startswith("__") and k.endswith("__"))})
            module.__dict__.update({k: public[k] for k in ("__getattr__", "__dir__") if k in public})
            module.__doc__ = public.get("__doc__")
        if module.__name__ in VERSIONS:
            module.__dict__["__version__"] = VERSIONS[module.__name__]
        parts = [name.rpartition(".")[2] for name in self.names if name.rpartition(".")[0] == module.__name__]
        lazy = {name: (f"{module.__name__}.{name}", "") for name in parts}      # also those not imported
        lazy |= LAZY.get(module.__name__, {})
        if lazy or "__getattr__" in module.__dict__:
            module.__dict__["__getattr__"] = lazy_names(lazy, module)
            module.__dict__.setdefault("__dir__", lambda: sorted({*module.__dict__, *lazy}))


def lazy_names(lazy: dict[str, tuple[str, str]], module: ModuleType) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module. It looks up submodules, names of other modules, then the module's
    previous ``__getattr__``."""
    previous = module.__dict__.get("__getattr__")

    def find(name: str) -> object:
        if name in lazy:
            home, inner = lazy[name]
            module_found = importlib.import_module(home)
            return getattr(module_found, inner) if inner else module_found
        if previous is not None:
            try:
                return previous(name)
            except AttributeError as error:
                from nki_mlir.capture.tracebacks import without_frames  # start-up: for errors alone
                without_frames(error)           # it stays an AttributeError, by which hasattr knows an absent name
                raise
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    return find


def install(torch_xla: bool = False, override: bool = False, executables: bool = True) -> None:
    """Make ``nki``, ``neuronxcc.nki``, ``torch_neuronx`` and ``jax_neuronx`` importable, and put stand-ins of the
    vendor's executables on PATH.

    Arguments:
        torch_xla: provide ``torch_xla``, too
        override: provide the names even if the vendor's packages are installed
        executables: append stand-ins of ``neuron-profile`` and the like to the PATH of this process and its children,
            but not ``neuron-ls``: programs that find it conclude that there is a device (``nki-env`` adds it)

    Result:
        None; installing twice changes nothing.

    Errors:
        None.

    Example:
        install()
        import nki.language
        assert nki.language.add.__name__ == "add"
    """
    names = NAMES | (TORCH_XLA if torch_xla else {})
    finder = next((f for f in sys.meta_path if isinstance(f, Finder)), None)
    if finder is None:
        finder = Finder({})
        sys.meta_path.append(finder)
    finder.names |= names
    if override and sys.meta_path[0] is not finder:
        sys.meta_path.remove(finder)
        sys.meta_path.insert(0, finder)
        for name in [n for n in sys.modules if n in names]:
            del sys.modules[name]
    if executables:
        from nki_mlir.compat.executables import put_on_path  # start-up: imported on first use
        put_on_path()


def uninstall() -> None:
    """Remove the names again; modules that were imported stay usable where they are referenced.

    Arguments:
        none

    Result:
        None.

    Errors:
        None.

    Example:
        install()
        uninstall()
        assert importlib.util.find_spec("nki") is None
    """
    for finder in [f for f in sys.meta_path if isinstance(f, Finder)]:
        sys.meta_path.remove(finder)
        for name in [n for n, m in sys.modules.items() if getattr(m, "__loader__", None) is finder]:
            del sys.modules[name]
    from nki_mlir.compat.executables import take_off_path  # start-up: as above
    take_off_path()


# -- packages that only the vendor has ---------------------------------------------------------------------------------
# Packages that ship kernels or are private: any name can be imported from them, and is an error when it is called.

VENDOR_ONLY = tuple(f"{package}." for package in (
    "neuronxcc.nki.kernels", "neuronxcc.nki.nccl", "neuronxcc.nki._private", "neuronxcc.nki._private_kernels",
    "neuronxcc.nki._pre_prod_kernels", "neuronxcc.nki.language.iterators",
    "neuronxcc.nki.compiler.backends.neuron.dimensions",
    "neuronxcc.starfish.penguin", "neuronxcc.private_nkl", "neuronxcc.nki_standalone", "nki.kernels",
    "nki._private", "nki._private_kernels",
    "nki._pre_prod_kernels", "nki.backends"))


class VendorOnly(NkiMlirError, RuntimeError):
    code = "NKI-VENDOR-ONLY"
    message = "{name} is private to the vendor, and this toolchain does not have it"
    why = "the vendor does not document its private modules and kernels"
    fix = "call a kernel whose source you have, with nki.jit"


class Stub:
    """A name of such a package. Its attributes are stubs, too; it can be indexed by a grid and be a base class,
    but a call is an error."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__module__ = name.rpartition(".")[0]
        self._name = name

    def __getattr__(self, name: str) -> "Stub":
        return stub(self._name, name)

    def __getitem__(self, grid: object) -> "Stub":
        return self

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise VendorOnly(name=self._name).here()

    def __iter__(self) -> NoReturn:
        raise VendorOnly(name=self._name).here()

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[object, ...]:
        return ()                               # a class may name it as a base

    def __repr__(self) -> str:
        return f"<{self._name}, which is the vendor's>"


def stub(package: str, name: str) -> Stub:
    """Return the stand-in for a name of a package."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Stub(f"{package}.{name}")


__all__ = ["install", "uninstall"]
