# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run each entry on hostile inputs, one process each, and measure its CPU time and memory.

``python -m tests.hostile_inputs.entries`` prints the table of docs/testing-records.md; ``--only WORD`` restricts it to the
entries whose name contains the word, ``--all`` prints each run. The start of an entry is the CPU time of its interpreter
and imports, as an empty input takes it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS, MEGABYTES = 1.0, 500           # beyond the start, and in all
CALL = """import sys
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.cli.source import MalformedInput
{imports}
data = open(sys.argv[1], "rb").read()
try:
    {call}
except (NkiMlirError, UnicodeDecodeError) as error:
    print(str(error)[:500], file=sys.stderr)
    sys.exit(1)
"""
API = {
    "nki_mlir.opt": ("module", "import nki_mlir", "nki_mlir.opt(data.decode(), to='nisa')"),
    "run_linked": ("graph", "import numpy as np\nfrom nki_mlir.frameworks.stablehlo import run_linked",
                   "run_linked(data.decode(), [np.ones((4, 4), np.float32)])"),
    "kernels_in": ("graph", "from nki_mlir.frameworks.recovery import kernels_in", "kernels_in(data.decode())"),
    "kernels_in, bytes": ("graph", "from nki_mlir.frameworks.recovery import kernels_in", "kernels_in(data)"),
    "configs of calls": ("config", "from nki_mlir.graph.custom_call import read_record", "read_record(data.decode())"),
    "assemble": ("assembly", "from nki_mlir.targets.neuron import assemble", "assemble(data.decode())"),
    "disassemble": ("binary", "from nki_mlir.targets.neuron import disassemble", "disassemble(data)"),
}
MODULE = ("module", "graph")
COMMANDS = {
    "nki-opt FILE": (MODULE, ["opt", "FILE"]),
    "nki-opt --lower-to-isa FILE": (MODULE, ["opt", "--lower-to-isa", "FILE"]),
    "nki-run FILE": (MODULE, ["run", "--quiet", "FILE"]),
    "nki-run --on=interpreter FILE": (("module",), ["run", "--quiet", "--on=interpreter", "FILE"]),
    "nki-translate --to-nki-python FILE": (MODULE, ["translate", "--to-nki-python", "FILE"]),
    "nki-translate --mlir-to-bin FILE": (MODULE, ["translate", "--mlir-to-bin", "FILE", "-o", os.devnull]),
    "nki-lsp": (MODULE, ["language_server"]),
    "nki-lsp, messages": (("message",), ["language_server"]),
    "nki-run KERNEL --arg=FILE": (("array",), ["run", "--quiet", "KERNEL", "--arg", "FILE"]),
    "nki-run KERNEL --arg=SHAPE=FILE": (("array",), ["run", "--quiet", "KERNEL", "--arg", "4x4xf32=FILE"]),
    "nki-run FILE (assembly)": (("assembly",), ["run", "--quiet", "FILE"]),
    "nki-translate --assemble FILE": (("assembly",), ["translate", "--assemble", "FILE", "-o", os.devnull]),
    "nki-run FILE (binary)": (("binary",), ["run", "--quiet", "FILE"]),
    "nki-translate --disassemble FILE": (("binary",), ["translate", "--disassemble", "FILE"]),
    "nki-migrate FILE": (("python",), ["migrate", "FILE"]),
    "nki-run FILE (Python)": (("kernel",), ["run", "--quiet", "FILE", "--arg=4x4xf32"]),
    "nki-run --on=eager FILE (Python)": (("kernel",), ["run", "--quiet", "--on=eager", "FILE", "--arg=4x4xf32"]),
    "nki-opt FILE (Python)": (("kernel",), ["opt", "FILE", "--arg=4x4xf32"]),
    "nki-grade FILE FOLDER": (("assignment",), ["grade", "FILE", "FOLDER"]),
    "nki-run KERNEL OPTION": (("option",), ["run", "--quiet", "FILE"]),
    "nki-opt KERNEL OPTION": (("option",), ["opt", "FILE"]),
}
ENDING = {"module": ".mlir", "graph": ".mlir", "assembly": ".nkiasm", "binary": ".neff", "python": ".py", "config": ".txt",
          "option": ".py", "kernel": ".py", "assignment": ".toml", "array": ".npy", "message": ".txt"}
START = {"module": "module {}", "graph": "module {}", "assembly": "", "binary": "", "python": "", "config": "", "option": "",
         "kernel": "", "assignment": "", "array": "", "message": ""}
KERNEL = b"import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef f(x):\n    return nl.load(x)\n"
ENTRIES: dict[str, tuple[tuple[str, ...], list[str]]] = {
    **{name: (kinds, [sys.executable, "-c", f"from nki_mlir.cli.entry import command\nimport sys\nsys.argv[0] = 'nki'\n"
              f"sys.exit(command({words[0]!r})())", *words[1:]]) for name, (kinds, words) in COMMANDS.items()},
    **{name: ((kind,), [sys.executable, "-c", CALL.format(imports=imports, call=call), "FILE"])
       for name, (kind, imports, call) in API.items()}}


@dataclass
class Ended:
    """How a run ended: its exit status, seconds of CPU time, megabytes, and errors."""

    status: int
    seconds: float
    megabytes: float
    errors: str

    def faults(self, start: float, seconds: float) -> Iterator[str]:
        """Yield what a hostile input must not do: take more than ``seconds`` beyond the start, for example."""
        if self.status not in (0, 1, 2):
            yield f"status {self.status}"
        if "Traceback" in self.errors or len(self.errors) > 20_000:
            yield "a traceback" if "Traceback" in self.errors else "a long error"
        if self.seconds - start > seconds:
            yield f"{self.seconds - start:.2f} s"
        if self.megabytes > MEGABYTES:
            yield f"{self.megabytes:.0f} MB"


def run(entry: str, kind: str, content: bytes, folder: Path) -> Ended:
    """Run an entry on an input of a kind, and return how it ended."""
    file = folder / f"input{ENDING[kind]}"
    options = content.decode().split("\n") if kind == "option" and content else []
    file.write_bytes(KERNEL if kind == "option" else content)
    kernel = folder / "kernel.py"
    kernel.write_bytes(KERNEL)
    name = str(file) + (":f" if kind in ("option", "kernel") else "")
    names = {"FILE": name, "FOLDER": str(folder), "KERNEL": f"{kernel}:f", "4x4xf32=FILE": f"4x4xf32={name}"}
    words = [names.get(word, word) for word in ENTRIES[entry][1]]
    received = folder / "received"
    received.write_bytes(session(file) if entry == "nki-lsp" else content if kind == "message" else b"")
    environment = {**os.environ, "NKI_MLIR_CACHE": "off", "PYTHONPATH": str(ROOT)}
    environment.pop("NKI_MLIR_TRACEBACK", None)
    with open(received, "rb") as source, open(folder / "errors", "w+b") as errors:
        process = os.posix_spawn(words[0], [*words, *options], environment, file_actions=[
            (os.POSIX_SPAWN_DUP2, source.fileno(), 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)])
        _, status, usage = os.wait4(process, 0)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return Ended(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text)


def session(file: Path) -> bytes:
    """Return the messages of an editor that opens a file and leaves."""
    text = file.read_bytes().decode(errors="replace")
    at = {"textDocument": {"uri": file.as_uri(), "text": text}}
    messages = [{"id": 1, "method": "initialize", "params": {}}, {"method": "textDocument/didOpen", "params": at},
                {"id": 2, "method": "shutdown"}, {"method": "exit"}]
    data = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(part), part) for part in data)


def start(entry: str, folder: Path) -> float:
    """Return the CPU time of the entry on an empty input: the interpreter's start and the imports."""
    kind = ENTRIES[entry][0][0]
    return run(entry, kind, START[kind].encode(), folder).seconds


def row(entry: str, begin: float, ends: dict[str, Ended], seconds: float, verbose: bool) -> int:
    """Print the row of an entry, and its faults; return their number."""
    slow, large = (max(ends, key=lambda case: getattr(ends[case], field)) for field in ("seconds", "megabytes"))
    faults = {case: "; ".join(ended.faults(begin, seconds)) for case, ended in ends.items()}
    count = sum(map(bool, faults.values()))
    print(f"| {entry} | {len(ends)} | {sum(ended.status == 0 for ended in ends.values())} | {begin:.2f} | "
          f"{max(0, ends[slow].seconds - begin):.2f} | {slow} | {ends[large].megabytes:.0f} | {large} | {count} |", flush=True)
    for case, ended in ends.items():
        if faults[case] or verbose:
            first = " ".join(ended.errors.strip().splitlines()[:1])
            print(f"    {case}: status {ended.status}, {ended.seconds - begin:.2f} s, {ended.megabytes:.0f} MB, "
                  f"{faults[case] or 'sound'}: {first[:140]}", file=sys.stderr, flush=True)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only entries whose name has this word")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one of N inputs of all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of CPU time beyond the start that an input may take")
    parser.add_argument("--all", action="store_true", help="print each run")
    options = parser.parse_args()
    print("| entry | inputs | accepted | start, s | most beyond it, s | with | most memory, MB | with | faults |\n|" + "---|" * 9)
    failed = number = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "tests.hostile_inputs.situations", name], cwd=ROOT, check=True)
        for entry, (kinds, _) in ENTRIES.items():
            if options.only not in entry and options.only != entry:
                continue
            files = [file for kind in kinds for file in sorted((folder / kind).iterdir())]
            chosen = [file for at, file in enumerate(files, number) if at % options.every == options.every - 1]
            number += len(files)
            if chosen:
                begin = start(entry, folder)
                ends = {file.name: run(entry, file.parent.name, file.read_bytes(), folder) for file in chosen}
                failed += row(entry, begin, ends, options.seconds, options.all)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
