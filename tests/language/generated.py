# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Create kernels from text, whose source can be read back like that of a file."""

import itertools
import linecache

from nki_mlir.language.beta import nki

_numbers = itertools.count()


def kernel_from_text(text, namespace, name="kernel", jit=nki.jit):
    """The kernel of that name that the text defines."""
    file = f"<generated kernel {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), namespace)
    return jit(namespace[name])
