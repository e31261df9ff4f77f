# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The XLA FFI handler of all kernels, compiled from ``xla_handler.mlir`` without a C compiler, and its table.

XLA calls the handler with a frame of buffers and attributes. It looks up the callee by attribute ``kernel_id``,
checks the buffers, and calls the kernel's entry. When XLA instantiates an executable of another process (from a
cache or an export), the handler verifies it by ``kernel_key`` and compiles the kernel from ``kernel_record``.
"""

import ctypes
import re
import threading
import time
from collections import deque
from math import prod
from pathlib import Path
from string import Template

import numpy as np

from nki_mlir.bindings import ir, load
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.process_state import once
from nki_mlir.frameworks.rank_calls import of_ranks
from nki_mlir.frameworks.registry import Callee, callee_from
from nki_mlir.scalar import dtypes
from nki_mlir.scalar.dtypes import DType
from nki_mlir.targets.runtime.interruption import INTERRUPTED
from nki_mlir.targets.runtime.machine import machine

BUCKETS = 1 << 16
MESSAGES_KEPT = 1024
CANCELLED_AFTER = 400_000       # microseconds between Ctrl-C and XLA's error; JAX looks for signals every 200,000
NEWEST_MINOR = 3                # of the FFI's version 0; the frame's layout is the same since minor 1
HELP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)

# xla::PrimitiveType. A bool is a byte in both; tf32 is stored as float32.
DATA_TYPE = {dtypes.BOOL: 1, dtypes.INT8: 2, dtypes.INT16: 3, dtypes.INT32: 4, dtypes.INT64: 5, dtypes.UINT8: 6,
             dtypes.UINT16: 7, dtypes.UINT32: 8, dtypes.UINT64: 9, dtypes.FLOAT16: 10, dtypes.FLOAT32: 11,
             dtypes.TFLOAT32: 11, dtypes.BFLOAT16: 16, dtypes.FLOAT8_E5M2: 19, dtypes.FLOAT8_E4M3FN: 20,
             dtypes.FLOAT8_E4M3: 28, dtypes.FLOAT8_E8M0FNU: 33}


class UnsupportedFfi(NkiMlirError, RuntimeError):
    code = "NKI-XLA-FFI"
    message = "this jaxlib has version {major} of XLA's foreign function interface, whose call frames differ"
    fix = "use a jaxlib with version 0 of the interface"


class TooManyKernels(NkiMlirError, RuntimeError):
    code = "NKI-XLA-TABLE"
    message = "more than {limit} different kernels were compiled into XLA programs of one process"
    fix = "start a new process"


class Handler:
    """The compiled handler with its table and its callees. There is one in a process: XLA keeps its address."""

    def __init__(self, minor: int) -> None:
        self.table = np.zeros((BUCKETS, 2), np.int64)
        self.state = np.zeros(2, np.int64)      # handlers that are running, whether the process is exiting
        self.callees: dict[int, Callee] = {}
        self.keep_alive: list[object] = []         # every object whose address the table has
        self.lock = threading.RLock()
        # Texts until XLA has copied them. Not thread-local: Python frees a foreign thread's locals after the callback.
        self.messages: deque[object] = deque(maxlen=MESSAGES_KEPT)
        self.help = HELP(self.answer)
        self.address = self.compile(minor)

    def compile(self, minor: int) -> int:
        text = Template((Path(__file__).parent / "xla_handler.mlir").read_text(encoding="utf-8")).substitute(
            BUCKETS=BUCKETS, BUCKET_MASK=BUCKETS - 1, MINOR=minor, INTERRUPTED=INTERRUPTED,
            MICROSECONDS=CANCELLED_AFTER, TABLE=self.table.ctypes.data, STATE=self.state.ctypes.data,
            HELP=ctypes.cast(self.help, ctypes.c_void_p).value)
        with ir.Context(), ir.Location.unknown():
            module = ir.Module.parse(text)
            load("passmanager").PassManager.parse(
                "builtin.module(convert-scf-to-cf,convert-arith-to-llvm,convert-cf-to-llvm,"
                "reconcile-unrealized-casts)").run(module.operation)
            engine = load("execution_engine").ExecutionEngine(module, opt_level=3)
        self.keep_alive.append(engine)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))        # XLA's threads may call it until the process ends
        address = ctypes.c_void_p()
        result = (ctypes.c_void_p * 1)(ctypes.addressof(address))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("handler_address"))(result)
        assert address.value is not None
        return address.value

    # -- the table -----------------------------------------------------------------------------------------------------
    def publish(self, callee: Callee) -> None:
        """Compile the kernel and enter it into the table, so that XLA programs can call it. Raise ``TooManyKernels``.
        """
        number = callee.number
        with self.lock:
            if number in self.callees:
                return
            if len(self.callees) >= BUCKETS // 2:
                raise TooManyKernels(limit=BUCKETS // 2)
            description = self.describe(callee)
            bucket = number % BUCKETS
            while self.table[bucket, 0]:
                bucket = (bucket + 1) % BUCKETS
            self.callees[number] = callee
            self.table[bucket, 1] = description.ctypes.data
            self.table[bucket, 0] = number      # last: a reader that sees the number sees the callee

    def describe(self, callee: Callee) -> np.ndarray:
        """Return the callee's description as 64-bit words, in the layout that ``xla_handler.mlir`` reads."""
        buffers = self.array([(DATA_TYPE[a.dtype], prod(a.shape))           # type: ignore[index]
                              for a in (*callee.operands, *callee.results)])
        operands, results = len(callee.operands), len(callee.results)
        order = self.array([n + operands * (kind == "result") for kind, n in callee.sources])
        clear = self.array([clear_bytes(callee, n) for n in range(results)])
        key = np.frombuffer(callee.record.key.encode(), np.int64)
        return self.array([callee.entry.address, operands, results, buffers.ctypes.data,
                           len(order), order.ctypes.data, clear.ctypes.data, *key])

    def array(self, values: list[object]) -> np.ndarray:
        words = np.array(values, np.int64)
        self.keep_alive.append(words)
        return words

    def close(self, interrupted: bool = False) -> None:
        """Let no kernel start any more, and wait for running ones: Python is about to exit. Ctrl-C, before or while it
        waits, ends them."""
        self.state[1] = 1
        while self.state[0]:
            if interrupted:
                machine().end_launches()
            try:
                time.sleep(0.001)               # gives their threads the interpreter
            except KeyboardInterrupt:
                interrupted = True

    # -- calls of the handler into Python ------------------------------------------------------------------------------
    def answer(self, frame: int, number: int, status: int) -> int | None:
        """Answer a call of ``help`` in ``xla_handler.mlir``: return the address of an error's text, or None after
        publishing an unknown kernel."""
        try:
            if status:
                text = str(self.callees[number].entry.error(status))
            else:
                self.resolve(number, attributes_of(frame))
                return None
        except BaseException as error:          # a foreign caller cannot handle an exception
            text = str(error) or type(error).__name__
        message = ctypes.create_string_buffer(text.encode())
        self.messages.append(message)
        return ctypes.addressof(message)

    def resolve(self, number: int, attributes: dict[str, str]) -> None:
        """Publish the kernel of an executable that another process compiled. Raise ``UnknownKernel`` if its attributes
        do not agree."""
        if "kernel_record" not in attributes:
            raise UnknownKernel(what="it carries no kernel_record")
        callee = callee_from(attributes["kernel_record"], attributes.get("kernel_on", "jit"))
        if (ranks := attributes.get("kernel_ranks")) is not None:
            callee = of_ranks(callee, int(ranks))
        if callee.record.key != attributes.get("kernel_key"):
            raise UnknownKernel(what="its kernel_key does not belong to its kernel_record")
        if callee.number != number:
            raise UnknownKernel(what="its kernel_id does not belong to its kernel_record")
        self.publish(callee)


class UnknownKernel(NkiMlirError):
    code = "NKI-XLA-KERNEL"
    message = "the custom call names a kernel that this process does not know: {what}"
    fix = "compile the program again, with the version of nki_mlir that runs it"


def clear_bytes(callee: Callee, result: int) -> int:
    """Return the bytes of a result that must be zero before the kernel runs: all of them, or 0."""
    record = callee.record
    if result >= len(record.results) or result in record.form.aliases.values():
        return 0
    if not record.starts_from_zero(record.form.results[result]):
        return 0
    spec = callee.results[result]
    assert isinstance(spec.dtype, DType)
    return prod(spec.shape) * spec.dtype.itemsize


def attributes_of(frame: int) -> dict[str, str]:
    """Return the string attributes of a call frame."""
    def word(address: int) -> int:
        return ctypes.c_int64.from_address(address).value

    def text(span: int) -> str:
        return ctypes.string_at(word(span), word(span + 8)).decode()
    types, names, values = (word(frame + offset) for offset in (144, 152, 160))
    is_string = [ctypes.c_int32.from_address(types + 4 * k).value == 4 for k in range(word(frame + 136))]
    return {text(word(names + 8 * k)): text(word(values + 8 * k)) for k, is_text in enumerate(is_string) if is_text}


def handler() -> Handler:
    """Return the process's handler. Raise ``UnsupportedFfi`` where XLA's interface has another version."""
    return once("xla_handler", lambda: Handler(minor_version()))


def minor_version() -> int:
    """Return the interface version to report: XLA rejects handlers newer than itself."""
    import jax  # an optional package
    header = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text(encoding="utf-8")
    versions = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header))
    if versions.get("MAJOR") != "0":
        raise UnsupportedFfi(major=versions.get("MAJOR", "?"))
    return min(int(versions["MINOR"]), NEWEST_MINOR)
