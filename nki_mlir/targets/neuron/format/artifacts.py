# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A compiled kernel and its trace as files, to which programs refer as NEFF and NTFF.

Each is a self-contained ZIP archive: it can be renamed, moved, and read by another process from another directory.
A NEFF contains a manifest and the binary container of each core's streams; an NTFF a manifest, the flat summary of
an execution and its profile. Equal contents give equal bytes. Neither has the vendor's format: a device does not
load them, and files of the vendor are refused here.
"""

import errno
import hashlib
import io
import json
import os
import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.input_limits import ARCHIVE_BYTES

if TYPE_CHECKING:
    from nki_mlir.dialects.isa.program import Program

VERSION = 1
MANIFEST, SUMMARY, PROFILE = "manifest.json", "summary.json", "profile.json"
NEFF, NTFF = "nki_mlir compiled kernel", "nki_mlir trace"
STREAMS = "core{}.bin"
CORES = 64


class ForeignFile(NkiMlirError):
    code = "NKI-ARTIFACT"
    message = "{name} is not a {what} of nki_mlir: {reason}"
    why = "compiled kernels and traces of the vendor's compiler are closed formats, which only its tools read"
    fix = "give a file that nki.baremetal, nki.benchmark, nki.profile or the capture of this package wrote"


class NeffContent(NamedTuple):
    """The contents of a NEFF: the streams of each core, and how they were compiled."""

    programs: "list[Program]"
    mode: str
    digest: str             # digest of the file's bytes, by which a trace names its kernel

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.programs[0].kernel


class NtffContent(NamedTuple):
    """The contents of an NTFF: the figures of an execution by name, and its profile."""

    kernel: str
    digest: str
    execution: int
    core: int
    summary: dict[str, Any]
    profile: dict[str, Any]


def is_artifact(data: bytes) -> bool:
    """Return whether a file's content is a ZIP archive, as both formats are."""
    return data.startswith(b"PK\x03\x04")


def pack_kernel(programs: "Sequence[Program]") -> bytes:
    """Write the NEFF of programs that run together, one on each core."""
    from nki_mlir.targets.neuron.format.container import encode_program  # start-up: not needed for traces
    manifest = {"format": NEFF, "version": VERSION, "kernel": programs[0].kernel, "target": programs[0].target,
                "mode": "optimized", "cores": len(programs)}
    if programs[0].static_descriptors:
        manifest["static"] = True
    return _packed({MANIFEST: _json(manifest),
                    **{STREAMS.format(core): encode_program(program) for core, program in enumerate(programs)}})


def unpack_kernel(data: bytes, name: str) -> NeffContent:
    """Read the kernel in a NEFF called ``name``. Raise ``ForeignFile``, and the errors of ``decode_program``."""
    from nki_mlir.targets.neuron.format.container import decode_program  # start-up: as above
    members = _unpacked(data, name, "compiled kernel", NEFF)
    manifest = json.loads(members[MANIFEST])
    cores, mode = manifest.get("cores"), manifest.get("mode")
    if type(cores) is not int or not 0 < cores <= CORES or type(mode) is not str:
        raise ForeignFile(name=name, what="compiled kernel", reason="its manifest is malformed")
    if missing := [STREAMS.format(k) for k in range(cores) if STREAMS.format(k) not in members]:
        raise ForeignFile(name=name, what="compiled kernel", reason=f"{missing[0]} is missing")
    programs = [decode_program(members[STREAMS.format(k)]) for k in range(cores)]
    for program in programs:
        program.static_descriptors = manifest.get("static") is True
    return NeffContent(programs, mode, digest_of(data))


def digest_of_kernel(data: bytes, name: str) -> str:
    """Return the digest of a NEFF called ``name`` without decoding its streams. Raise ``ForeignFile``."""
    _unpacked(data, name, "compiled kernel", NEFF)
    return digest_of(data)


def pack_trace(trace: NtffContent) -> bytes:
    """Write the NTFF of an execution."""
    manifest = {"format": NTFF, "version": VERSION, "kernel": trace.kernel, "digest": trace.digest,
                "execution": trace.execution, "core": trace.core}
    return _packed({MANIFEST: _json(manifest), SUMMARY: _json(trace.summary), PROFILE: _json(trace.profile)})


def unpack_trace(data: bytes, name: str) -> NtffContent:
    """Read the trace in an NTFF called ``name``. Raise ``ForeignFile``."""
    members = _unpacked(data, name, "trace", NTFF)
    manifest = json.loads(members[MANIFEST])
    try:
        summary, profile = (_dictionary(members[part]) for part in (SUMMARY, PROFILE))
        return NtffContent(str(manifest["kernel"]), str(manifest["digest"]), int(manifest["execution"]),
                     int(manifest["core"]), summary, profile)
    except (KeyError, OverflowError, TypeError, ValueError, RecursionError) as error:
        raise ForeignFile(name=name, what="trace", reason=f"it is malformed ({error})") from None


@contextmanager
def reads_profile(name: str) -> Iterator[None]:
    """Raise ``ForeignFile`` if the ``with`` block, which shows the profile of the NTFF called ``name``, finds it
    malformed."""
    try:
        yield
    except NkiMlirError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ForeignFile(name=name, what="trace", reason=f"its profile is malformed ({type(error).__name__}: {error})"
                          ) from error


def read_archive(file: str | Path) -> bytes:
    """Read the file of a compiled kernel or a trace. Raise ``OSError``, also for pipes and devices, and
    ``InputTooLarge``."""
    if stat.S_IFMT(os.stat(file).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise OSError(errno.EINVAL, "it is not a regular file", str(file))
    return ARCHIVE_BYTES.read(file)


def digest_of(data: bytes) -> str:
    """Return the digest by which a trace refers to its kernel."""
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _dictionary(data: bytes) -> dict[str, Any]:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("a member is not a JSON object")
    return value


def _short(value: object) -> str:
    """Return a value of a manifest for an error: one line of at most 80 characters."""
    return " ".join(f"{value!s:.80}".split())


def _packed(members: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for name, data in members.items():
            # 1980, so that equal contents have equal bytes
            out.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _unpacked(data: bytes, name: str, description: str, form: str) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            ARCHIVE_BYTES.check(sum(m.file_size for m in archive.infolist()), "the content of the archive", name)
            members = {member.filename: archive.read(member) for member in archive.infolist()}
        manifest = _dictionary(members[MANIFEST])
    except NkiMlirError:
        raise
    except Exception as error:              # zipfile and zlib raise a dozen kinds of errors for damaged archives
        raise ForeignFile(name=name, what=description, reason=f"it cannot be unpacked ({error})") from None
    if manifest.get("format") != form:
        raise ForeignFile(name=name, what=description, reason=f"it is a {_short(manifest.get('format'))}")
    if manifest.get("version") != VERSION:
        raise ForeignFile(name=name, what=description, reason=(
            f"it has version {_short(manifest.get('version'))}, and version {VERSION} is read here"))
    return members
