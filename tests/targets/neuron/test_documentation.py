# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/isa.md says what the code does: tables of control instructions and encodings, numbers, the example."""

import re
import struct
from pathlib import Path

from nki_mlir.dialects.isa.instruction import COMPARISONS, CONTROLS, REGISTERS, SEMAPHORE_MAX
from nki_mlir.machine import machine_named
from nki_mlir.targets.neuron.codegen.unroll_loops import BODY, UNROLL_LIMIT
from nki_mlir.targets.neuron.format.assembly import header, parse_program
from nki_mlir.targets.neuron.format.container import PREAMBLE, SECTION
from nki_mlir.targets.neuron.format.encoding import DESCRIPTOR, DTYPES, HEADER, SLOT, TERM, UPDATE, WAIT, WAITS

TEXT = (Path(__file__).parents[3] / "docs" / "isa.md").read_text()


def table(title):
    """Rows of the table whose second column has this title: (first, second, third) cells."""
    rows = TEXT.split(f"| {title} |", 1)[1].split("\n\n", 1)[0].split("\n")[2:]
    return [[cell.strip() for cell in row.split("|")[1:4]] for row in rows if row.startswith("|")]


def offsets(form: struct.Struct) -> list[tuple[int, int]]:
    """(offset, size) of each field."""
    fields, at = [], 0
    for code in re.findall(r"\d*[a-zA-Z]", form.format):
        size = struct.calcsize("<" + code)
        fields.append((at, size))
        at += size
    return fields


def test_control_instructions():
    rows = {m: (code, fields) for m, code, fields in
            re.findall(r"^\| `([A-Z_]+)` \| (0x\w+) \|([^|]*)\|", TEXT, re.MULTILINE)}
    assert rows.keys() == CONTROLS.keys()
    for mnemonic, (code, fields) in rows.items():
        assert int(code, 16) == CONTROLS[mnemonic].opcode
        assert re.findall(r"`(\w+)`", fields) == list(CONTROLS[mnemonic].kinds())
    assert f"(`{' '.join(COMPARISONS)}`)" in TEXT


def test_preamble():
    assert [(int(offset), int(size)) for offset, _, size in table("preamble")] == offsets(PREAMBLE)
    assert f"an entry of {SECTION.size} bytes for each section" in TEXT


def test_header():
    rows = [(int(offset), int(size)) for offset, _, size in table("header") if size]
    assert rows == [*offsets(HEADER), (HEADER.size, WAIT.size * WAITS), (HEADER.size + WAIT.size * WAITS, UPDATE.size)]
    assert int(table("header")[-1][0]) == HEADER.size + WAIT.size * WAITS + UPDATE.size
    assert f"slots of {SLOT} bytes" in TEXT


def test_descriptor():
    rows = [(int(offset), int(size)) for offset, _, size in table("descriptor") if offset and size]
    assert rows == offsets(DESCRIPTOR)
    assert [size for _, size in offsets(TERM)] == [1, 1, 2, 4]


def test_dtypes():
    listed = re.search(r"^dtypes: (.*?)\.$", TEXT, re.MULTILINE | re.DOTALL)
    assert re.findall(r"(\d+)\s+`(\w+)`", listed[1]) == [(str(k), d.asm) for k, d in enumerate(DTYPES)]


def test_numbers():
    assert f"{UNROLL_LIMIT:,} instructions" in TEXT and f"about {BODY:,} instructions" in TEXT
    assert f"counts from 0 to {SEMAPHORE_MAX:,}" in TEXT and f"{SEMAPHORE_MAX // 16:,} transfers" in TEXT
    assert f"It has {REGISTERS} registers" in TEXT
    machines = [machine_named(f"trn{k}") for k in (1, 2, 3)]
    assert [m.sbuf_physical_bytes_per_partition // 1024 for m in machines] == [192, 224, 256]
    assert all(m.semaphores == 256 and m.psum_banks == 8 and m.psum_bank_bytes == 2048 for m in machines)


def test_example__is_read_as_it_stands():
    block = TEXT.split("## Text", 1)[1].split("```")[1].strip("\n").split("\n")
    lines = [re.sub(r"  +.*", "", line) for line in block if line.startswith(".") and not line.startswith(".stream")]
    lines = [line for line in lines if not line.startswith((".semaphore", ".queue"))]
    lines += [".semaphore 0 Tensor", ".queue 0 qSyncIO0 sp 0"]
    program = parse_program("\n".join(lines))
    assert program.kernel == "pipeline" and [v.kind for v in program.variables] == [
        "input", "output", "internal", "constant"]
    assert list(header(program))[:3] == [".nki_isa 1", ".kernel pipeline", ".target trn2"]
