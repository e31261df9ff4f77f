# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Restrict a process that runs a candidate: limits of time and memory, no network, no files but a scratch directory.

On Linux the system enforces this by namespaces without network and without other processes, if they are permitted,
and by Landlock. On every system an audit hook of Python ends the process at the first attempt and reports it;
outside of Linux nothing else enforces the restrictions.
"""

import ctypes
import os
import resource
import signal
import site
import sys
import sysconfig
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, NoReturn

from nki_mlir.scoring import landlock

CLONE_PROCESSES, CLONE_NETWORK, CLONE_MESSAGES, CLONE_USER = 0x20000000, 0x40000000, 0x08000000, 0x10000000
PARENT_DEATH_SIGNAL = 1
OUTPUT_BYTES = 1 << 20          # the most that a candidate may print, or write into a file
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
SYSTEM = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo", "/proc/cpuinfo",
          "/proc/meminfo", "/sys/devices/system/cpu")


class CandidateLimits(NamedTuple):
    """The limits of each process of a candidate: seconds, and bytes of memory beyond the memory of the loaded
    libraries."""

    seconds: float = 60.0
    memory: int = 4 << 30


def libraries() -> list[Path]:
    """Return the directories of Python and its packages, without directories of scripts, which a path may contain;
    include links to directories, since Python opens files by the names of links."""
    schemes = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = [Path(p) for p in (*site.getsitepackages(), site.getusersitepackages())]
    linked = [Path(p) for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
    package = Path(__file__).resolve().parents[1]
    names = [p for p in (*schemes, *packages, *linked, package) if p.exists()]
    return list(dict.fromkeys(directory for name in names for directory in (name.absolute(), name.resolve())))


def enter_namespaces() -> None:
    """Enter namespaces without network, whose processes are invisible to others and end together. Do nothing if that
    is not permitted."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    namespaces = CLONE_PROCESSES | CLONE_NETWORK | CLONE_MESSAGES
    if libc.unshare(namespaces) != 0:
        libc.unshare(namespaces | CLONE_USER)


def fork_bound() -> int:
    """Fork a process that the system ends when this one ends, if it supports that. Return like ``os.fork``.

    The child writes into a pipe after it has requested that signal. The write fails if the parent ended before, in
    which case no signal would come.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        end_with_parent()
        try:
            os.write(writer, b"\0")
        except BrokenPipeError:
            os._exit(1)
        os.close(writer)
        return 0
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    return pid


def end_with_parent() -> None:
    """Have the system end this process when its parent ends, if it supports that."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def limit(limits: CandidateLimits) -> None:
    """Set limits of time, memory and file size. Memory that the loaded libraries use already does not count. Lower
    limits of this process stay."""
    seconds = int(limits.seconds) + 1
    _lower(resource.RLIMIT_CPU, seconds, seconds + 1)
    _lower(resource.RLIMIT_CORE, 0, 0)
    _lower(resource.RLIMIT_FSIZE, OUTPUT_BYTES, OUTPUT_BYTES)
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        room = pages * resource.getpagesize() + limits.memory
        _lower(resource.RLIMIT_AS, room, room)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set limits of a resource, which no process may raise above its own."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def confine(scratch: Path) -> None:
    """Allow reads of the libraries and writes to ``scratch`` only, if the system supports that."""
    landlock.restrict([*libraries(), *map(Path, SYSTEM)], [scratch, *map(Path, DEVICES)])


# -- auditing ----------------------------------------------------------------------------------------------------------
# Events of Python's auditing, by the kind of act. This package itself causes those in LOOKS.
STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen",
          "os.startfile", "pty.spawn"}
LOOKS = {"gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._current_frames", "sys.settrace",
         "sys.setprofile", "sys.addaudithook", "os.kill", "os.killpg", "os.putenv", "os.unsetenv", "code.__new__",
         "cpython.run_command", "cpython.run_file"}
CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown",
           "os.truncate", "shutil.rmtree", "shutil.move", "shutil.copyfile", "shutil.copytree"}
LISTS = {"os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.chdir", "glob.glob", "pathlib.Path.glob"}
PACKAGES = {"socket": "uses the network", "ctypes": "calls a C library", "mmap": "maps memory",
            "http": "uses the network", "urllib": "uses the network", "ftplib": "uses the network",
            "smtplib": "uses the network", "winreg": "uses the registry"}
# modules that a candidate cannot change
MODULES = ("nki_mlir", "nki", "neuronxcc", "numpy", "ml_dtypes", "warnings", "time")
CODE = "__code__", "__defaults__", "__kwdefaults__"         # of a function


def below(*roots: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path is one of these, or in one of these directories."""
    prefixes = tuple(os.path.join(root, "") for root in roots)
    return lambda path: path in roots or path.startswith(prefixes)


def path_check(scratch: Path, readable: Callable[[str], bool], refuse: Callable[[str], NoReturn]
               ) -> Callable[[object, str, bool], None]:
    """Return a function that refuses paths which a candidate may not read, or write."""
    in_scratch, devices, absolute = below(str(scratch.resolve())), set(DEVICES), os.path.abspath

    def check_path(value: object, verb: str, writes: bool) -> None:
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, str):
            return
        path = absolute(value)
        if not (path in devices or in_scratch(path) or (not writes and readable(path))):
            refuse(f"{verb} {value}")
    return check_path


def watch(scratch: Path, refuse: Callable[[str], NoReturn]) -> None:
    """Call ``refuse`` with a description at the first act that no kernel needs.

    The audit hook stays until the process ends.
    """
    readable, frame = below(*map(str, (*libraries(), *map(Path, SYSTEM)))), sys._getframe
    starts, looks, changes, lists, packages = STARTS, LOOKS, CHANGES, LISTS, dict(PACKAGES)
    modules, keepers, check_path = MODULES, trusted_files(), path_check(scratch, readable, refuse)
    write_flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and bool(flags & write_flags)
            check_path(path, "writes to the file" if writes else "opens the file", writes)
        elif event in starts:
            refuse(f"starts a process ({event})")
        elif event in looks:
            if not readable(frame(1).f_code.co_filename):
                refuse(f"inspects its process ({event})")
        elif event in changes:
            check_path(arguments[0], "changes the file", True)
        elif event == "object.__setattr__":
            changed = str(getattr(arguments[0], "__module__", "")).partition(".")[0]
            if arguments[1] in CODE and changed in modules and not frame(1).f_code.co_filename.startswith(keepers):
                refuse(f"changes {changed}")
        elif event in lists and arguments:
            check_path(arguments[0], "lists the directory", False)
        else:
            act = packages.get(event.partition(".")[0])
            if act is not None:
                refuse(f"{act} ({event})")
    keep_unchanged(keepers, frame, refuse)
    sys.addaudithook(hook)


# -- immutable modules and classes -------------------------------------------------------------------------------------
IMMUTABLE = 1 << 8              # a flag of a class: its attributes cannot be set
FLAGS_OFFSET = 168              # offset of the flags in a class of CPython on 64 bits


namespace_of: Callable[[ModuleType], dict[str, object]] = vars(ModuleType)["__dict__"].__get__


def trusted_files() -> tuple[str, ...]:
    """Return the prefixes of file names whose code may change the protected modules: their files, and imports that
    bind modules."""
    file_names = (getattr(sys.modules.get(name), "__file__", None) for name in ("nki_mlir", "numpy", "ml_dtypes"))
    folders = (os.path.join(str(Path(file).resolve().parent), "") for file in file_names if file)
    return (*folders, "<frozen importlib", str(warnings.__file__))


def keep_unchanged(keepers: tuple[str, ...], frame: Callable[[int], Any], refuse: Callable[[str], NoReturn]) -> None:
    """Make modules and classes immutable, under whatever name they are reached."""
    def set_attribute(module: ModuleType, name: str, value: object) -> None:
        if not frame(1).f_code.co_filename.startswith(keepers):
            refuse(f"changes {module.__name__}")
        super(type(module), module).__setattr__(name, value)

    def delete_attribute(module: ModuleType, name: str) -> None:
        set_attribute(module, name, None)

    def names(module: ModuleType) -> Mapping[str, object]:
        namespace = namespace_of(module)
        return namespace if frame(1).f_code.co_filename.startswith(keepers) else MappingProxyType(namespace)

    guards = {"__setattr__": set_attribute, "__delattr__": delete_attribute, "__dict__": property(names)}
    unchanged: dict[type, type] = {}            # a module's class -> one that code of the candidate cannot change
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in MODULES and isinstance(module, ModuleType):
            kind = type(module)
            if kind not in unchanged:
                unchanged[kind] = type(kind.__name__, (kind,), guards)
            try:
                module.__class__ = unchanged[kind]
            except TypeError:                   # a module with its own layout
                continue
            for value in list(namespace_of(module).values()):
                if isinstance(value, type) and value.__module__.partition(".")[0] in MODULES:
                    if vars(value).get("opened", value) is not value:
                        set_attributes_by_caller(value, keepers, frame)
                    make_immutable(value)


def set_attributes_by_caller(cls: Any, keepers: tuple[str, ...], frame: Callable[[int], Any]) -> None:
    """Refuse assignments to attributes of a class's instances, unless the code of ``keepers`` assigns.

    An instance is of another class until all its attributes are set, because it cannot become an instance of an
    immutable class and change."""
    refuse_assignment = cls.__setattr__

    def set_attribute(instance: object, name: str, value: object) -> None:
        if not frame(1).f_code.co_filename.startswith(keepers):
            refuse_assignment(instance, name, value)
        object.__setattr__(instance, name, value)
    cls.opened, cls.__setattr__ = cls, set_attribute


def make_immutable(cls: type) -> None:
    """Make attributes of a class immutable, in interpreters whose layout of flags is known."""
    flags = ctypes.c_ulong.from_address(id(cls) + FLAGS_OFFSET)
    if sys.implementation.name == "cpython" and sys.maxsize > 1 << 32 and flags.value == cls.__flags__:
        flags.value |= IMMUTABLE
