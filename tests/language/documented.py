# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with documented errors: tests compare the name, the text and the kernel's statement."""

import inspect

import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import numbers, run

X = numbers(128, 512)


class Cases(list):
    """Kernels of ``x`` [128, 512], each of which raises an error at its line with the comment ``# here``."""

    def add(self, error, name, text="", **options):
        def register(function):
            self.append(pytest.param(function, error, name, text, options, id=function.__name__))
            return function
        return register


def output(shape=(128, 512)):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def line_of(function):
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if "# here" in line)


def raises_documented(on, function, error, name, text, options):
    """The kernel raises the error, with its name and text, at its line of its file."""
    file = function.__code__.co_filename
    with pytest.raises(KernelError) as caught:
        run(on, nki.jit(function), X, grid=options.get("grid"))
    error_of_kernel = caught.value
    assert type(error_of_kernel) is error, error_of_kernel
    assert error_of_kernel.name == error_of_kernel.code == name, error_of_kernel
    assert text in error_of_kernel.headline, error_of_kernel
    assert isinstance(error_of_kernel, options.get("python", SyntaxError)), error_of_kernel
    assert (error_of_kernel.at.file, error_of_kernel.at.line) == (file, line_of(function)), error_of_kernel
    message = str(error_of_kernel)
    assert message.startswith(f"{file}:{error_of_kernel.at.line}:") and "# here" in message and "fix:" in message
