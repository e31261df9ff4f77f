# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuron-profile capture``: execute a NEFF on the model of the machine, and write traces and outputs."""

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nki_mlir.array_files import UnreadableArray, read_array
from nki_mlir.cli.standins.tool_files import ToolError, read, read_compiled
from nki_mlir.files import write_file
from nki_mlir.input_limits import ARRAY_BYTES
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.format.artifacts import NeffContent, NtffContent, pack_trace, unpack_kernel
from nki_mlir.targets.neuron.profile import profile_of
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary


def capture(options: argparse.Namespace) -> int:
    """Execute the kernel on its inputs, and write the traces and outputs that the options select."""
    kernel = unpack_kernel(read_compiled(options.neff, "--neff"), options.neff)
    inputs = read_inputs(kernel, pairs_of(options))
    if options.save_output or options.save_output_npy:
        save_outputs(kernel, inputs, options)
    executions = [] if options.disable_profile else list(traced(options.num_exec, options.profile_nth_exec))
    if not executions:
        return 0
    profile = profile_of(kernel.programs, kernel.mode)
    summary = vendor_summary(profile)
    for file, execution, core in trace_files(options, executions):
        trace = NtffContent(kernel.kernel, kernel.digest, execution, core, summary, profile)
        try:
            write_file(file, pack_trace(trace))
        except OSError as error:
            raise ToolError(what=f"cannot write {file}: {error.strerror}", fix="name another --session-file") from None
        print(f"wrote {file}", file=sys.stderr)
    return 0


def traced(count: int, nth: int) -> range:
    """Return the numbers of the executions that write a trace: the multiples of ``nth`` up to ``count``, and ``nth``
    itself even if it is above ``count``."""
    return range(nth, max(count, nth) + 1, nth) if nth > 0 else range(0)


def trace_files(options: argparse.Namespace, executions: Sequence[int]) -> Iterator[tuple[Path, int, int]]:
    """Yield (file, execution, rank) of each trace."""
    base = Path(options.session_file)
    first, local_workers = options.collectives_worker_start_id, options.collectives_workers_per_node
    chosen = options.collectives_profile_id
    ranks: list[int | None] = [None] if not local_workers else [
        k for k in range(first, first + local_workers) if chosen == "all" or str(k) == chosen]
    for rank in ranks:
        for execution in executions:
            stem = base.stem + (f"_rank_{rank}" if rank is not None else "") + (
                f"_exec_{execution}" if execution > 1 else "")
            yield base.with_name(stem + (base.suffix or ".ntff")), execution, rank or 0


def pairs_of(options: argparse.Namespace) -> dict[str, str]:
    """Return the file of each input by the input's name. Raise ``ToolError``."""
    words = options.inputs
    if options.multi_input is not None:
        if words:
            raise ToolError(what="--multi-input and inputs by name exclude each other", fix="give one of them")
        lines = read(options.multi_input, "--multi-input").decode(errors="replace").splitlines()
        words = lines[0].split() if lines else []
    if len(words) % 2:
        raise ToolError(what=f"input {words[-1]} has no file", fix="write NAME FILE for each input")
    return dict(zip(words[::2], words[1::2]))


def read_inputs(kernel: NeffContent, files: dict[str, str]) -> list[np.ndarray]:
    """Return the inputs in order, from files or zeros. Raise ``ToolError`` for unknown names and wrong sizes."""
    variables = kernel.programs[0].of_kind("input")
    if unknown := [name for name in files if name not in {v.name for v in variables}]:
        raise ToolError(what=f"the kernel has no input '{unknown[0]}'",
                        fix="its inputs are " + ", ".join(v.name for v in variables))
    inputs = []
    for v in variables:
        if v.name not in files:
            inputs.append(np.zeros(v.shape, v.dtype.numpy))
            continue
        file = files[v.name]
        if file.endswith(".npy"):
            try:
                data = read_array(file).tobytes()
            except UnreadableArray as error:
                raise ToolError(what=f"{file}: {error}", fix="give what numpy.save wrote") from None
        else:
            data = read(file, v.name, ARRAY_BYTES.read)
        if len(data) != v.nbytes:
            raise ToolError(what=f"{file} has {len(data)} bytes, input {v.name} takes {v.nbytes}",
                            fix=f"give {v.dtype.name}{list(v.shape)}")
        inputs.append(np.frombuffer(bytearray(data), v.dtype.numpy).reshape(v.shape))
    return inputs


def npy_of(array: np.ndarray) -> bytes:
    """Return the content of an array's .npy file."""
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def save_outputs(kernel: NeffContent, inputs: list[np.ndarray], options: argparse.Namespace) -> None:
    """Execute the kernel for its values, and write the outputs of each execution; all executions have equal outputs."""
    variables = kernel.programs[0].of_kind("output")
    outputs = [np.zeros(v.shape, v.dtype.numpy) for v in variables]
    neuron.simulate(kernel.programs, inputs, outputs)
    named = [(v.name, array) for v, array in zip(variables, outputs)]
    if not variables:
        named = [(v.name, array) for v, array in zip(kernel.programs[0].of_kind("input"), inputs)]
    for execution in range(1, max(1, options.num_exec) + 1):
        if options.save_nth_output not in (None, execution):
            continue
        for name, array in named:
            file = name if execution == 1 else f"{name}.{execution}"
            if options.save_output_npy:
                file += ".npy"
            write_file(file, npy_of(array) if options.save_output_npy else array.tobytes())
            print(f'saved output "{name}" as "{file}"')
