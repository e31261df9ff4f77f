# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled machine of this process, from the ``.mlir`` files beside this one: its functions and its threads."""

import atexit
import ctypes
import os
import threading
from collections.abc import Generator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nki_mlir.alone import ALONE
from nki_mlir.bindings import ir
from nki_mlir.scalar.predicates import INTEGER_PREDICATES
from nki_mlir.targets.runtime import host, interruption
from nki_mlir.targets.runtime.interruption import INTERRUPTED
from nki_mlir.targets.runtime.jit import addresses_text, compile_anew, compile_functions

CONTROL = ("nki_set", "nki_next", "nki_unless", "nki_check", "nki_zero", "nki_parallel", "nki_spread")
SERVICE = ("nki_launch", "nki_launch_arrays", "nki_launch_watched", "nki_launch_one", "nki_overlap", "nki_memory_start",
           "nki_use_pool", "nki_use_interruption")
CALLED_BY_LAUNCHES = ("nki_interruption", "nki_next_ticket", "nki_poll_for")
INTERRUPTION = (*CALLED_BY_LAUNCHES, "nki_use_python", "nki_use_answer", "nki_use_signals", "nki_ask_nobody",
                "nki_end_launches")
POOL = ("nki_parallel_for", "nki_pool_start", "nki_pool_stop", "nki_pool_forget")

# Instructions (slot, a, b) for values that are not linear: frame[slot] = value. A load has one operand, an address.
# Divisions that would trap have values: a quotient by 0 is 0, as in NumPy, and the least integer by -1 is itself.
_DIVISION = """%one = arith.constant 1 : i64
  %minus_one = arith.constant -1 : i64
  %none = arith.cmpi eq, %b, %zero : i64
  %minus = arith.cmpi eq, %b, %minus_one : i64
  %trivial = arith.ori %none, %minus : i1
  %by = arith.select %trivial, %one, %b : i64
  %r = arith.remsi %a, %by : i64
  %some = arith.cmpi ne, %r, %zero : i64
  %signs = arith.xori %r, %b : i64
  %opposite = arith.cmpi slt, %signs, %zero : i64
  %other = arith.andi %some, %opposite : i1"""
_VALUES = {
    **{name: f"%value = arith.{name} %a, %b : i64" for name in ("muli", "andi", "ori", "xori", "minsi", "maxsi")},
    "mod": f"""{_DIVISION}
  %up = arith.addi %r, %b : i64
  %value = arith.select %other, %up, %r : i64""",
    "floordiv": f"""{_DIVISION}
  %toward_zero = arith.divsi %a, %by : i64
  %below = arith.subi %toward_zero, %one : i64
  %quotient = arith.select %other, %below, %toward_zero : i64
  %negative = arith.subi %zero, %a : i64
  %total = arith.select %minus, %negative, %quotient : i64
  %value = arith.select %none, %zero, %total : i64""",
    **{f"load_{kind}{bits}": f"%p = llvm.inttoptr %a : i64 to !llvm.ptr\n  %x = llvm.load %p : !llvm.ptr -> i{bits}\n"
                             f"  %value = arith.ext{'s' if kind == 'i' else 'u'}i %x : i{bits} to i64"
       for kind in "iu" for bits in (8, 16, 32)},
    **{f"load_{kind}64": "%p = llvm.inttoptr %a : i64 to !llvm.ptr\n  %value = llvm.load %p : !llvm.ptr -> i64"
       for kind in "iu"},
    "load_b8": "%p = llvm.inttoptr %a : i64 to !llvm.ptr\n  %x = llvm.load %p : !llvm.ptr -> i8\n"
               "  %value = arith.extui %x : i8 to i64",
    **{f"cmpi_{name}": f"%bit = arith.cmpi {name}, %a, %b : i64\n  %value = arith.extui %bit : i1 to i64"
       for name in INTEGER_PREDICATES},
}
ARITHMETIC = tuple(f"nki_{name}" for name in _VALUES)
_TEMPLATE = """
llvm.func internal @nki_{name}(%arguments: !llvm.ptr) -> i64 {{
  %zero = arith.constant 0 : i64
  %slot = llvm.load %arguments : !llvm.ptr -> !llvm.ptr
  %p1 = llvm.getelementptr %arguments[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %p2 = llvm.getelementptr %arguments[2] : (!llvm.ptr) -> !llvm.ptr, i64
  %a = llvm.load %p1 : !llvm.ptr -> i64
  %b = llvm.load %p2 : !llvm.ptr -> i64
  {value}
  llvm.store %value, %slot : i64, !llvm.ptr
  llvm.return %zero : i64
}}
"""


PARTS = ("memory.mlir", "machine.mlir")
# bytes from a NumPy array's object to the address of its elements, after the header of Python's objects
ARRAY_DATA = object.__basicsize__


class RoutineMachine:
    """The machine of a process. It compiles each part at its first use."""

    def __init__(self) -> None:
        folder = Path(__file__).parent
        text = "".join((folder / name).read_text(encoding="utf-8") for name in PARTS)
        text = text.replace("@ARRAY_DATA@", str(ARRAY_DATA))
        self.functions = _compiled(text, (*CONTROL, *SERVICE))
        # A launch releases Python's lock, so that threads can run kernels at the same time.
        self.launch, self.launch_arrays, self.launch_watched = (
            self._callable(name, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
            for name in ("nki_launch", "nki_launch_arrays", "nki_launch_watched"))
        self.watches_signals = False
        self.interruption: BaseException | None = None      # the exception that ended the last watched launch
        self.launch_one = self._callable("nki_launch_one", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p,
                                         ctypes.c_int64)
        self.overlap = self._callable("nki_overlap", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        self._callable("nki_memory_start", None)()
        self.pool, self.long_launches = folder / "pool.mlir", folder / "interruption.mlir"
        self.threads = 1                # running threads, the calling one included

    def _callable(self, name: str, *kinds: Any) -> Any:
        return ctypes.CFUNCTYPE(*kinds)(self.functions[name])

    def polls(self) -> Generator[int, None, None]:
        """Let Python handle signals in the middle of a launch at each ``next``. If a handler raises, yield the status
        that ends the launch, else 0.

        Python runs handlers when a function starts or a generator resumes, which is inside the ``try``.
        """
        status = 0
        while True:
            try:
                yield status
                status = 0
            except GeneratorExit:
                return
            except BaseException as error:          # an exception must not end in compiled frames; the caller raises it
                self.interruption, status = error, INTERRUPTED

    def use_python(self) -> None:
        """Pass to the machine the functions that launches call, and Python's main thread, which in a forked process is
        the thread that forked."""
        addresses = [ctypes.cast(f, ctypes.c_void_p) for f in self._questions]
        self._callable("nki_use_python", None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            *addresses, threading.main_thread().ident)

    def load_interruption(self) -> None:
        """Let signals end launches that may take long, before the first such kernel."""
        with ALONE:
            if "nki_interruption" in self.functions:
                return
            self.functions |= _compiled(self.long_launches.read_text(encoding="utf-8"), INTERRUPTION)
            polls = self.polls()
            next(polls)
            self._questions = [ctypes.CFUNCTYPE(ctypes.c_int64)(f) for f in (polls.__next__, interruption.ends_work)]
            self.use_python()
            os.register_at_fork(after_in_child=self.use_python)
            atexit.register(self._callable("nki_ask_nobody", None))
            self._callable("nki_use_interruption", None, *[ctypes.c_void_p] * 3)(
                *[self.functions[name] for name in CALLED_BY_LAUNCHES])

    def end_launches(self) -> None:
        """End all launches that may take long."""
        if "nki_end_launches" in self.functions:
            self._callable("nki_end_launches", None)()

    def watch_signals(self) -> None:
        """Let long launches replace Python's handler of Ctrl-C, if it has one, and record whether it ends work."""
        self.load_interruption()
        self._callable("nki_use_answer", None, ctypes.c_int64)(interruption.ends_work())
        if not self.watches_signals and (handler := interruption.handler_of_python()):
            self.watches_signals = True
            getsig, setsig = (ctypes.cast(f, ctypes.c_void_p) for f in (interruption.getsig, interruption.setsig))
            self._callable("nki_use_signals", None, *[ctypes.c_void_p] * 3)(getsig, setsig, handler)

    def raised(self) -> BaseException:
        """Return the exception that ended a launch of this thread: that of a handler, or else a new one. A handler's
        exception is returned only once, since it keeps its frames and their arrays alive."""
        error = None
        if threading.get_ident() == threading.main_thread().ident:
            error, self.interruption = self.interruption, None
        return error or KeyboardInterrupt()

    def function(self, name: str) -> int:
        """Return the address of a function of the machine."""
        with ALONE:
            if name in ARITHMETIC and name not in self.functions:
                text = "".join(_TEMPLATE.format(name=name, value=value) for name, value in _VALUES.items())
                self.functions |= _compiled(text, ARITHMETIC)
        return self.functions[name]

    def start_workers(self) -> None:
        """Start the workers before the first parallel kernel, once: as many threads as ``host.threads`` says."""
        with ALONE:
            if "nki_pool_start" in self.functions or host.threads() == 1 or not host.can_run_workers():
                return
            self.functions |= _compiled(host.spelled(self.pool.read_text(encoding="utf-8")), POOL)
            self._start = self._callable("nki_pool_start", ctypes.c_int32, ctypes.c_int32)
            self._stop, self._forget = (self._callable(name, None) for name in ("nki_pool_stop", "nki_pool_forget"))
            self._callable("nki_use_pool", None, ctypes.c_void_p)(self.functions["nki_parallel_for"])
            self.wanted = host.threads()
            self._restart()
            os.register_at_fork(before=self._stop_for_fork, after_in_parent=self._go_on,
                                after_in_child=self._go_on_in_child)
            atexit.register(self._stop)

    def _restart(self) -> None:
        self.threads = 1 + self._start(self.wanted - 1)

    def _stop_for_fork(self) -> None:
        ALONE.acquire()                 # another thread may fork at the same time: workers stop only once
        self._stop()

    def _go_on(self) -> None:
        self._restart()
        ALONE.release()

    def _go_on_in_child(self) -> None:
        self._forget()
        self._go_on()


def _compiled(text: str, names: Sequence[str]) -> dict[str, int]:
    module_text = text + addresses_text(names)
    with ALONE:
        return dict(zip(names, compile_functions(lambda: ir.Module.parse(module_text), names, module_text).addresses))


def machine() -> RoutineMachine:
    """Return the process's machine."""
    with ALONE:
        return _made_once()


@cache
def _made_once() -> RoutineMachine:
    return RoutineMachine()


def thunk(kernel: int) -> int:
    """Compile a C function ``int32_t entry(void** data)`` that launches one kernel and has addresses of this process.
    """
    text = addresses_text(["entry"]) + f"""
llvm.func internal @entry(%data: !llvm.ptr) -> i32 {{
  %f = llvm.mlir.constant({machine().functions["nki_launch"]} : i64) : i64
  %k = llvm.mlir.constant({kernel} : i64) : i64
  %launch = llvm.inttoptr %f : i64 to !llvm.ptr
  %kernel = llvm.inttoptr %k : i64 to !llvm.ptr
  %status = llvm.call %launch(%kernel, %data) : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i32
  llvm.return %status : i32
}}
"""
    return compile_anew(lambda: ir.Module.parse(text), 1)[0]
