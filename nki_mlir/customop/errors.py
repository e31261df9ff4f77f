# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of building, loading and calling custom operators. What a kernel does wrong when it runs is in ``faults``."""

import linecache

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.files import shown


def line_of(file: str, line: int) -> Location:
    """A whole line of a source file, where the column is not known."""
    name = shown(file)
    linecache.checkcache(name)
    text = linecache.getline(name, line).rstrip("\n")
    return Location(name, line, len(text) - len(text.lstrip()), len(text) or None)


# -- building ----------------------------------------------------------------------------------------------------------
class NoCompiler(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-COMPILER"
    message = "custom operators are built with a C++ compiler, and {tried} is not found"
    why = "only this part of nki_mlir needs one"
    fix = "install g++ (Debian, Ubuntu: apt install g++), or set CXX to a compiler"


class MissingSource(NkiMlirError, FileNotFoundError):
    code = "NKI-CUSTOMOP-SOURCE"
    message = "there is no source file {file}"
    fix = "paths in compute_srcs and shape_srcs are relative to the current directory, {directory}"


class BadSources(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-SOURCES"
    message = "{parameter} is {given}"
    fix = "give a list of at least one file name: {parameter}=['kernel.cpp']"


class BadFlags(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-FLAGS"
    message = "{parameter} is {given}"
    fix = "give a list: {parameter}={wanted}"


class BadName(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-NAME"
    message = "'{name}' cannot be the name of a library"
    why = "the name becomes the file lib<name>.so; 'builtin' is reserved"
    fix = "use letters, digits, '-' and '_'"


class BadStackSize(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-STACK"
    message = "STACK_SIZE is {given}"
    fix = "declare at most {limit} bytes: extra_cflags=['-DSTACK_SIZE=20000']"


class UnwritableDirectory(NkiMlirError, PermissionError):
    code = "NKI-CUSTOMOP-DIRECTORY"
    message = "the library cannot be written to {directory}: {reason}"
    fix = "give another build_directory"


class CompilationFailed(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-COMPILE"
    message = "{what}\n{output}"


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
    fix = "the third argument of m.def is the name of a function that is neither static nor in a namespace"


class KernelSignature(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-SIGNATURE"
    message = "kernel {kernel} and the shape function of operator {name} have different parameters"
    why = "the shape function has ({expected}), the kernel is {given}"
    fix = "give both the same parameters: const torch::Tensor&, torch::Scalar, double or int64_t"


# -- loading -----------------------------------------------------------------------------------------------------------
class NotALibrary(NkiMlirError, OSError):
    code = "NKI-CUSTOMOP-LOAD"
    message = "{file} is no library of custom operators: {reason}"
    fix = "build it with custom_op.load"


class AbiMismatch(NkiMlirError, OSError):
    code = "NKI-CUSTOMOP-ABI"
    message = "{file} was built for version {found} of the emulated engine, this is version {version}"
    fix = "build it again with custom_op.load"


class UnknownOperator(NkiMlirError, AttributeError):
    code = "NKI-CUSTOMOP-UNKNOWN"
    message = "library {library} has no operator {operator}; it has {known}"
    name: str | None = None                 # type: ignore[assignment]      # Python sets it on attribute errors


# -- in graphs ---------------------------------------------------------------------------------------------------------
class GraphAbi(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-GRAPH-ABI"
    message = ("the graph calls operator {operator} of library {library} for version {found} of the emulated engine, "
               "this is version {version}")
    fix = "make the graph again, with a library that is built again"


class OperatorChanged(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-CHANGED"
    message = "operator {operator} of the loaded library {library} {what} {found}, in the graph it {what} {wanted}"
    fix = "load the library that the graph was made with, or make the graph again"


class OperatorRefuses(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-REFUSES"
    message = "operator {operator} of the loaded library {library} refuses the operands:\n{what}"


# -- calling -----------------------------------------------------------------------------------------------------------
class WrongArity(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-ARITY"
    message = "{signature} is called with {given} arguments; it takes {wanted}"


class WrongArgument(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-ARGUMENT"
    message = "argument {place} of {signature} is {given}"
    fix = "pass {wanted}"


class WrongArgumentDtype(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-DTYPE"
    message = "argument {place} of {signature} has dtype {given}"
    fix = "custom operators have {known}"


class TooManyTensors(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-TENSORS"
    message = "{signature} is called in a kernel or a linked graph; the instruction for it has at most {limit} tensors"


class EmptyTensor(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-EMPTY"
    message = "{signature} is called in a kernel or a linked graph, and an operand or the result has no elements"
    why = "an instruction's tensors have elements"


class NotDifferentiable(NkiMlirError, RuntimeError):
    code = "NKI-CUSTOMOP-GRADIENT"
    message = "operator {name} is differentiated, and a custom operator has no derivative"
    fix = "call it in a torch.autograd.Function whose backward calls another operator"


class BadQueueSize(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-PRINTF"
    message = "NEURON_RT_GPSIMD_STDOUT_QUEUE_SIZE_BYTES is {given}"
    fix = "set it to a power of two up to {limit}, or to 0 for no output"
