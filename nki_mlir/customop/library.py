# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A built library in this process: its operators, their kernels, and the reports of its calls.

An operator checks its arguments, infers the result's shape by its shape function, and accepts arrays of any framework.
"""

import contextlib
import ctypes
import hashlib
import importlib
import numbers
import os
import stat
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.customop import abi, cost
from nki_mlir.customop.abi import ABI, CODES, DTYPES, OPERATORS_MAX, PARAMETERS
from nki_mlir.customop.elf_segments import is_cut_off
from nki_mlir.customop.findings import findings, raise_or_warn
from nki_mlir.customop.settings import CallSettings, current_engine
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.programs import NotLoaded
from nki_mlir.files import shown
from nki_mlir.targets.runtime.object_file import OF_LINKER, read

# Tensors of frameworks and kernels: the module of the class, its name, and our module that calls operators on them.
TENSORS = (("torch", "Tensor", "torch_binding"), ("jax", "Array", "jax_binding"),
           ("nki_mlir.capture.tensor", "View", "kernel_binding"),
           ("nki_mlir.language.current.tensor", "NkiTensor", "kernel_binding"))


class NotALibrary(NkiMlirError, OSError):
    code = "NKI-CUSTOMOP-LOAD"
    message = "{file} is not a library of custom operators: {reason}"
    fix = "build it with custom_op.load"


class AbiMismatch(NkiMlirError, OSError):
    code = "NKI-CUSTOMOP-ABI"
    message = "{file} was built for version {found} of the emulated engine; this is version {version}"
    fix = "build it again with custom_op.load"


class UnknownOperator(NkiMlirError, AttributeError):
    code = "NKI-CUSTOMOP-UNKNOWN"
    message = "library {library} has no operator {operator}; it has {known}"
    fix = "call one of these, or define the operator in its NEURON_LIBRARY block and build it again"
    name: str | None = None                 # type: ignore[assignment]      # Python sets it on attribute errors


class TooManyOperators(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-COUNT"
    message = "library {library} defines {count} operators"
    why = "a library has at most {limit} functions"
    fix = "build two libraries"


class RepeatedOperator(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-REPEATED"
    message = "library {library} defines operator {name} twice"
    fix = "give each m.def another name"


class NoLibraryBlock(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-REGISTER"
    message = "the sources have {count} NEURON_LIBRARY blocks"
    fix = 'write one in a shape source: NEURON_LIBRARY(my_ops, m) {{ m.def("relu", &relu_shape, "relu"); }}'


class KernelNotFound(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-KERNEL"
    message = "operator {name} names kernel '{kernel}', which no compute source defines"
    why = "{others}"
    fix = "name a function in the third argument of m.def that is neither static nor in a namespace"


class KernelSignature(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-SIGNATURE"
    message = "kernel {kernel} and the shape function of operator {name} have different parameters"
    why = "the shape function has the parameters ({expected}), the kernel is {given}"
    fix = "give both the same parameters: const torch::Tensor&, torch::Scalar, double or int64_t"


class WrongArity(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-ARITY"
    message = "{signature} is called with {given} arguments; it takes {wanted}"
    fix = "pass an argument for each parameter of the kernel, by position"


class WrongArgument(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-ARGUMENT"
    message = "argument {index} of {signature} is {given}"
    fix = "pass {wanted}"


class WrongArgumentDtype(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-DTYPE"
    message = "argument {index} of {signature} has dtype {given}"
    fix = "convert it: custom operators take {known}"


class DenseArray(NamedTuple):
    """A dense array for C++: its address, the code of its dtype, and its shape."""

    address: int
    code: int
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Operator:
    """A custom operator, callable on NumPy arrays, JAX arrays and tracers, PyTorch tensors, and tensors of NKI kernels.

    ``parameters`` has a letter for each parameter: T a tensor, S a Scalar, d a double, i an int64_t.

    Errors:
        A call raises errors for a wrong number or type of arguments, for a dtype that the engine does not have, for
        arguments that the shape function rejects, and for mistakes of the kernel (a Fault).

    Example:
        relu = load("relu", ["relu.cpp"], ["relu_shape.cpp"]).relu_forward
        x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
        assert np.array_equal(relu(x), np.maximum(x, 0)) and relu.shape(x) == ((1, 8), np.float32)
        assert relu.microseconds(x) > 0 and len(relu.counters(x)) == 1
    """

    library: "Library"
    number: int
    name: str
    kernel: str
    parameters: str

    @property
    def signature(self) -> str:
        return f"{self.library.name}.{self.name}({', '.join(PARAMETERS[p][1] for p in self.parameters)})"

    def __repr__(self) -> str:
        return f"<custom operator {self.signature}>"

    def __call__(self, *arguments: object) -> object:
        self.check_arity(arguments)
        for module, kind, binding in TENSORS:
            loaded = getattr(sys.modules.get(module), kind, None)
            if loaded is not None and any(isinstance(a, loaded) for a in arguments):
                return importlib.import_module(f"nki_mlir.customop.{binding}").call(self, arguments)
        return self.on_numpy(arguments, current_engine())

    def on_numpy(self, arguments: Sequence[object], engine: CallSettings) -> np.ndarray:
        """Run the operator on arrays and numbers, and return the result."""
        return self.measured(arguments, engine)[0]

    def measured(self, arguments: Sequence[object], engine: CallSettings) -> tuple[np.ndarray, list[abi.Counters]]:
        """Run the operator on arrays and numbers. Return the result and the counters of each core."""
        arrays = [np.asanyarray(a, order="C") if p == "T" and isinstance(a, (np.ndarray, np.generic)) else a
                  for p, a in zip(self.parameters, arguments)]
        values = self.values(arrays, lambda a: a.ctypes.data)
        shape, code = self.infer(values)
        result = np.empty(shape, DTYPES[code])
        return result, self.run(values, DenseArray(result.ctypes.data, code, shape), engine)

    def counters(self, *arguments: object) -> list[abi.Counters]:
        """Run the operator on NumPy arrays and return the counters of each core. Only the checked build counts element
        accesses."""
        self.check_arity(arguments)
        return self.measured(arguments, current_engine())[1]

    def microseconds(self, *arguments: object) -> float:
        """Estimate the call's time on the device in microseconds; see ``nki_mlir.customop.cost``."""
        return cost.microseconds(self.counters(*arguments))

    def shape(self, *arguments: object) -> tuple[tuple[int, ...], np.dtype]:
        """Return shape and dtype of the result for arrays, or objects with ``shape`` and ``dtype``, without running
        the kernel."""
        self.check_arity(arguments)
        shape, code = self.infer(self.values(arguments, lambda a: 0))
        return shape, DTYPES[code]

    # -- arguments -----------------------------------------------------------------------------------------------------
    def check_arity(self, arguments: Sequence[object]) -> None:
        """Raise ``WrongArity`` if the number of arguments is wrong."""
        if len(arguments) != len(self.parameters):
            raise WrongArity(signature=self.signature, given=len(arguments), wanted=len(self.parameters))

    def values(self, arguments: Sequence[Any], address: Any) -> list[DenseArray | float]:
        """Convert arguments for the engine. Raise ``WrongArgument`` and ``WrongArgumentDtype``."""
        values: list[DenseArray | float] = []
        for number, (parameter, argument) in enumerate(zip(self.parameters, arguments)):
            if parameter != "T":
                values.append(self.number_of(number, argument))
            elif isinstance(argument, np.ma.MaskedArray):
                self.refuse(number, argument, "array.filled(value): an operator would not see the mask")
            elif not hasattr(argument, "shape") or not hasattr(argument, "dtype"):
                self.refuse(number, argument, "an array")
            else:
                code = self.code_of(number, argument.dtype)
                values.append(DenseArray(address(argument), code, tuple(map(int, argument.shape))))
        return values

    def number_of(self, index: int, argument: Any) -> float:
        """Return a number as the engine gets it. Raise ``WrongArgument``."""
        if not isinstance(argument, numbers.Real | np.bool_):
            self.refuse(index, argument, "a number")
        if self.parameters[index] == "i" and not float(argument).is_integer():
            self.refuse(index, argument, "an integer")
        if self.parameters[index] == "i" and not (-2**63 <= int(argument) == int(float(argument)) < 2**63):
            self.refuse(index, argument, "an integer of at most 53 bits, because numbers pass as doubles")
        return float(argument)

    def refuse(self, index: int, argument: object, expected: str) -> None:
        """Raise ``WrongArgument``: an argument is not what its parameter expects."""
        raise WrongArgument(index=index, signature=self.signature, given=" ".join(repr(argument).split())[:60],
                            wanted=expected)

    def code_of(self, index: int, dtype: Any) -> int:
        """Return the engine's code of a NumPy or PyTorch dtype. Raise ``WrongArgumentDtype``."""
        text = str(dtype)
        name = text.removeprefix("torch.") if text.startswith("torch.") else str(np.dtype(dtype))
        if name not in CODES:
            raise WrongArgumentDtype(index=index, signature=self.signature, given=name, known=", ".join(sorted(CODES)))
        return CODES[name]

    # -- the engine ----------------------------------------------------------------------------------------------------
    def infer(self, values: Sequence[DenseArray | float]) -> tuple[tuple[int, ...], int]:
        """Call the shape function and return shape and dtype code of the result. Raise its errors."""
        report = self.library.dll.gpsimd_shape(self.number, self.arguments(values))
        with self.library.reading(report, cores=1) as read:
            return tuple(read.sizes[:read.rank]), read.dtype

    def run(self, values: Sequence[DenseArray | float], result: DenseArray, engine: CallSettings) -> list[abi.Counters]:
        """Run the kernel on the cores, write ``result``, and return the counters of each core."""
        cores = abi.CORES if self.library.multicore else 1
        options = abi.EngineOptions(cores, engine.workers, engine.ring_bytes())
        destination = self.arguments([result])
        report = self.library.dll.gpsimd_run(self.number, self.arguments(values), destination, ctypes.byref(options))
        printed = b""
        try:
            with self.library.reading(report, cores, self.library.addresses[self.name]) as read:
                printed = ctypes.string_at(read.printed, read.printed_bytes) if read.printed_bytes else b""
                return [abi.Counters.from_buffer_copy(read.counters[k]) for k in range(cores)]
        finally:
            engine.show(printed.decode(errors="replace"))

    def arguments(self, values: Sequence[DenseArray | float]) -> object:
        """Return the C array of arguments. It keeps the memory to which it points alive."""
        words = (abi.Arg * max(1, len(values)))()
        for argument, value in zip(words, values):
            if isinstance(value, DenseArray):
                sizes = (ctypes.c_int64 * max(1, len(value.shape)))(*value.shape)
                argument.kind, argument.data, argument.dtype = ord("T"), value.address, value.code
                argument.rank, argument.sizes = len(value.shape), sizes
            else:
                argument.kind, argument.number = ord("d"), value
        return words


# -- libraries ---------------------------------------------------------------------------------------------------------
# A parameter type as the demangler writes it. A tensor by value is passed like a reference.
SPELLINGS = {"torch::Tensor": "T", "c10::Scalar": "S", "double": "d", "long": "i", "long long": "i"}


class Library:
    """A library of custom operators. Operators are attributes: ``library.giou(a, b)``.

    Arguments:
        path: the library file; use ``load`` or ``load_library``

    Errors:
        The errors of load_library.

    Example:
        library = load("relu", ["relu.cpp"], ["relu_shape.cpp"])
        assert sorted(library.operators) == ["relu_backward", "relu_elements", "relu_forward"]
        assert library.name == "relu_ops" and not library.multicore and library.checked
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dll = opened(path)
        self.build = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        self.multicore = bool(self.dll.gpsimd_multicore())
        self.checked = bool(self.dll.gpsimd_checked())
        names = self.dll.gpsimd_libraries().decode().split()
        if len(names) != 1:
            raise NoLibraryBlock(count=len(names) or "no")
        self.name: str = names[0]
        self.operators = {op.name: op for op in map(self.operator, range(self.count()))}
        self.addresses: dict[str, int] = {}             # addresses of the kernels, by operator
        self.find_kernels()

    def count(self) -> int:
        """Return how many operators the library defines. Raise an error if they are too many or two have the same
        name."""
        count: int = self.dll.gpsimd_count()
        if count > OPERATORS_MAX:
            raise TooManyOperators(library=self.name, count=count, limit=OPERATORS_MAX)
        names = Counter(self.dll.gpsimd_name(k).decode() for k in range(count))
        for name, times in names.items():
            if times > 1:
                raise RepeatedOperator(library=self.name, name=name)
        return count

    def operator(self, number: int) -> Operator:
        """Return the operator with this number in the library."""
        name, kernel, parameters = (entry(number).decode() for entry in (
            self.dll.gpsimd_name, self.dll.gpsimd_kernel, self.dll.gpsimd_parameters))
        return Operator(self, number, name, kernel, parameters)

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("__") or "operators" not in self.__dict__:
            raise AttributeError(name)
        if name not in self.operators:
            raise UnknownOperator(library=self.name, operator=name, known=", ".join(self.operators))
        return self.operators[name]

    def __repr__(self) -> str:
        kind = f"{'8 cores' if self.multicore else '1 core'}, {'checked' if self.checked else 'fast'}"
        return f"<custom operators {self.name} ({kind}): {', '.join(self.operators)}>"

    # -- kernels -------------------------------------------------------------------------------------------------------
    def find_kernels(self) -> None:
        """Look up the kernel that each operator's registration names, and bind its address."""
        functions: dict[str, list[tuple[str, str]]] = {}            # name -> (symbol, parameters) of each overload
        for symbol in read(self.path.read_bytes(), OF_LINKER)[1]:
            if symbol.is_function and symbol.section:           # 0: of another library
                name, _, parameters = self.demangled(symbol.name).partition("(")
                functions.setdefault(name, []).append((symbol.name, parameters))
        for op in self.operators.values():
            overloads = functions.get(op.kernel, [])
            if not overloads:
                raise KernelNotFound(name=op.name, kernel=op.kernel, others=self.candidates(functions))
            fitting = [s for s, form in overloads if parameter_letters(form) in (op.parameters, None)]
            if not fitting:
                expected = ", ".join(PARAMETERS[p][0] for p in op.parameters)
                raise KernelSignature(name=op.name, kernel=op.kernel, expected=expected,
                                      given=" and ".join(f"{op.kernel}({p}" for _, p in overloads))
            self.addresses[op.name] = ctypes.cast(getattr(self.dll, fitting[0]), ctypes.c_void_p).value or 0
            self.dll.gpsimd_bind(op.number, self.addresses[op.name])

    def demangled(self, symbol: str) -> str:
        """Demangle a C++ symbol."""
        text = ctypes.create_string_buffer(4096)
        self.dll.gpsimd_demangle(symbol.encode(), text, len(text))
        return text.value.decode(errors="replace")

    def candidates(self, functions: dict[str, list[tuple[str, str]]]) -> str:
        """Return a text with the functions that a misspelled kernel name may mean: functions that take a tensor and are
        in no namespace."""
        names = sorted(n for n, overloads in functions.items()
                       if "::" not in n and any("torch::Tensor" in p for _, p in overloads))
        return f"functions that take tensors: {', '.join(names)}" if names else "no function takes a tensor"

    # -- reports -------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def reading(self, report: Any, cores: int, function: int | None = None) -> Iterator[abi.Report]:
        """Yield the report of a call; after the block, raise or warn of its findings."""
        try:
            yield report.contents
            errors = findings(report.contents, self.path, self.dll.gpsimd_base(), function, cores)
        finally:
            self.dll.gpsimd_free(report)
        raise_or_warn(errors)


def parameter_letters(parameters: str) -> str | None:
    """Return the letters of a parameter list such as "double, long)", with "?" for a type that operators do not have.
    Return None for a C function, whose symbol has no list."""
    if parameters in ("", ")"):
        return "" if parameters else None
    plain = (p.strip().removesuffix("&").removesuffix(" const") for p in parameters.removesuffix(")").split(","))
    return "".join(SPELLINGS.get(p, "?") for p in plain)


# -- opening files -----------------------------------------------------------------------------------------------------
_OPENED: dict[tuple[int, ...], Library] = {}            # (device, inode, size, time) -> library
_NAMES: set[str] = set()                                # names that the loader has seen
_LOCK = threading.RLock()


def open_library(path: str | os.PathLike[str]) -> Library:
    """Return the library of a file: the same object each time, until the file is built again."""
    try:
        file = Path(os.path.realpath(path))         # accepts links that lead in a circle
        status = file.stat()
    except OSError as error:
        raise NotALibrary(file=shown(file), reason=error.strerror) from None
    except (TypeError, ValueError):                 # no path, or one with a zero byte
        raise NotALibrary(file=repr(path), reason="it is not the path of a file") from None
    if not stat.S_ISREG(status.st_mode):            # reading a FIFO would wait for a writer
        raise NotALibrary(file=shown(file), reason="it is not a regular file")
    if is_cut_off(file, status.st_size):
        raise NotALibrary(file=shown(file), reason="its end is missing")
    identity = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _LOCK:
        if identity not in _OPENED:
            _OPENED[identity] = Library(file)
        return _OPENED[identity]


def loaded_library(name: str, build: str, file: str, operator: str) -> Library:
    """Return the loaded library that a graph names: the same build, else the newest of the same file, else of the same
    name. Raise ``NotLoaded``."""
    with _LOCK:
        newest = list(reversed(_OPENED.values()))
    matching = [candidate for candidate in newest if candidate.build == build] or [candidate for candidate in newest
                                                                                   if str(candidate.path) == file] or [
        candidate for candidate in newest if candidate.name == name]
    if not matching:
        raise NotLoaded(operator=operator, library=name or file, file=shown(file))
    return matching[0]


def opened(path: Path) -> ctypes.CDLL:
    """Load the file into the process. The loader identifies files by name, so a rebuilt file is loaded through a link
    of another name."""
    with _LOCK, tempfile.TemporaryDirectory() as folder:
        alias = str(path)
        if alias in _NAMES:
            alias = os.path.join(folder, path.name)
            os.symlink(path, alias)
        try:
            dll = ctypes.CDLL(alias, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise NotALibrary(file=shown(path), reason=error) from None
        _NAMES.add(str(path))
    try:
        version = dll.gpsimd_abi()
    except AttributeError:
        raise NotALibrary(file=shown(path), reason="it has no operators") from None
    if version != ABI:
        raise AbiMismatch(file=shown(path), found=version, version=ABI)
    abi.declare(dll)
    return dll
