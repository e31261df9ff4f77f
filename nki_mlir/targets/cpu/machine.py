# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The compiled machine of ``machine.mlir`` and ``pool.mlir`` in this process: its functions, and its worker threads."""

import atexit
import ctypes
import os
import threading
from pathlib import Path
from nki_mlir.bindings import ir
from nki_mlir.targets.cpu import host
from nki_mlir.targets.cpu.jit import code_context, compile_functions

CONTROL = ("nki_set", "nki_next", "nki_unless", "nki_check", "nki_parallel")
SERVICE = ("nki_launch", "nki_memory_start", "nki_pool_start", "nki_pool_stop", "nki_pool_forget")

# Index arithmetic: (slot, a, b): frame[slot] = value.
_REMAINDER = """%r = arith.remsi %a, %b : i64
  %low = arith.cmpi slt, %r, %zero : i64
  %up = arith.addi %r, %b : i64
  %mod = arith.select %low, %up, %r : i64"""
_VALUES = {
    **{name: f"%value = arith.{name} %a, %b : i64" for name in ("addi", "subi", "muli", "andi", "ori", "xori", "minsi",
                                                               "maxsi")},
    "mod": f"{_REMAINDER}\n  %value = arith.addi %mod, %zero : i64",
    "floordiv": f"{_REMAINDER}\n  %whole = arith.subi %a, %mod : i64\n  %value = arith.divsi %whole, %b : i64",
    **{f"cmpi_{name}": f"%bit = arith.cmpi {name}, %a, %b : i64\n  %value = arith.extui %bit : i1 to i64"
       for name in ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")},
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


class Machine:
    """One per process. ``functions`` are the addresses of the instructions, by name."""

    def __init__(self) -> None:
        here = Path(__file__).parent
        text = host.spelled((here / "pool.mlir").read_text()) + (here / "machine.mlir").read_text()
        text += "".join(_TEMPLATE.format(name=name, value=value) for name, value in _VALUES.items())
        with code_context(), ir.Location.unknown():
            self.functions = compile_functions(ir.Module.parse(text), (*CONTROL, *ARITHMETIC, *SERVICE))
        function = lambda name, *kinds: ctypes.CFUNCTYPE(*kinds)(self.functions[name])
        # The launch lets go of Python's lock, so that threads run kernels at the same time.
        self.launch = function("nki_launch", ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        self._start = function("nki_pool_start", ctypes.c_int32, ctypes.c_int32)
        self._stop, self._forget = (function(name, None) for name in ("nki_pool_stop", "nki_pool_forget"))
        function("nki_memory_start", None)()
        self.threads = 1                # that run, the calling one included
        self.wanted = 1
        os.register_at_fork(before=self._stop, after_in_parent=self._restart, after_in_child=self._restart_in_child)
        atexit.register(self._stop)

    def start_workers(self) -> None:
        """As many as the environment or the host asks for; done once, before the first parallel kernel."""
        with _lock:
            if self.wanted == 1 and host.can_run_workers():
                self.wanted = host.threads()
                self._restart()

    def _restart(self) -> None:
        if self.wanted > 1:
            self.threads = 1 + self._start(self.wanted - 1)

    def _restart_in_child(self) -> None:
        self._forget()
        self._restart()


_lock = threading.Lock()
_machine: Machine | None = None


def machine() -> Machine:
    """The process's machine, compiled when it is first needed."""
    global _machine
    with _lock:
        if _machine is None:
            _machine = Machine()
    return _machine


def thunk(kernel: int) -> int:
    """A C function ``int32_t entry(void** data)`` that launches one kernel."""
    launch = machine().functions["nki_launch"]
    text = f"""
llvm.func internal @entry(%data: !llvm.ptr) -> i32 {{
  %f = llvm.mlir.constant({launch} : i64) : i64
  %k = llvm.mlir.constant({kernel} : i64) : i64
  %launch = llvm.inttoptr %f : i64 to !llvm.ptr
  %kernel = llvm.inttoptr %k : i64 to !llvm.ptr
  %status = llvm.call %launch(%kernel, %data) : !llvm.ptr, (!llvm.ptr, !llvm.ptr) -> i32
  llvm.return %status : i32
}}"""
    with code_context(), ir.Location.unknown():
        return compile_functions(ir.Module.parse(text), ("entry",))["entry"]
