# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Composes a function's documentation from its page, its signature, its kinds and its operations' classes.

It also describes the names beside the functions in ``help(nl)`` and ``help(nisa)``: dtypes, memories, enumerations.
"""

import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import ml_dtypes
import numpy as np

from nki_mlir.dialects import catalog
from nki_mlir.dialects.nisa.accumulating import COMMANDS
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.language.documentation import instructions, language
from nki_mlir.language.entries import INSTRUCTIONS
from nki_mlir.language.entries.entry import Page
from nki_mlir.language.signatures.table import BETA, CURRENT, releases_with, signatures, spans
from nki_mlir.machine import machine_named
from nki_mlir.machine.engine import VECTOR_HAS_NOT
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.dtypes import BOOL, DType, dtype_of

T = TypeVar("T")
TARGETS = ("trn1", "trn2", "trn3")
OPERANDS = {"dst": "the result", "src": "the operand", "predicate": "the condition", "moving": "the second operand"}
LOCATED = "The message names the line of the call."


def by_name(table: dict[str, T]) -> dict[str, T]:
    """Return the table with one entry for each name; a key of ``table`` may list several names."""
    return {name: value for names, value in table.items() for name in names.split()}


ISA, LANGUAGE, TENSOR, COLLECTIVES = "nki.isa", "nki.language", "nki.language.NkiTensor", "nki.collectives"
PAGES = {
    **{(ISA, g): {n: e.page_of(g == BETA) for n, e in INSTRUCTIONS.items()} for g in (CURRENT, BETA)},
    (LANGUAGE, CURRENT): by_name(language.PAGES), (LANGUAGE, BETA): by_name(language.PAGES) | language.BETA_PAGES,
    (TENSOR, CURRENT): language.VIEWS, (COLLECTIVES, CURRENT): instructions.COLLECTIVES}
COMMON = {ISA: instructions.COMMON, LANGUAGE: language.COMMON, TENSOR: language.COMMON_OF_VIEWS,
          COLLECTIVES: instructions.COMMON_OF_COLLECTIVES}


def texts(file: str) -> dict[str, dict[str, str]]:
    """Return the texts of a file, by section (a line in brackets) and name. Each text is indented below its names."""
    sections: dict[str, dict[str, str]] = {}
    names, section = list[str](), dict[str, str]()
    for line in Path(__file__).with_name(file).read_text("utf-8").splitlines():
        if line.startswith("    "):
            section |= {name: section.get(name, "") + f"{line[4:]}\n" for name in names}
        elif line.startswith("["):
            section, names = sections.setdefault(line.strip("[]"), {}), []
        elif line and not line.startswith("#"):
            names = [*(n for n in names if n not in section), *line.split()]
    return sections


def returning(example: str) -> str:
    """Return an example for the beta generation, in which instructions return their tiles instead of writing ``dst``. A
    tile that the example does not compare then needs no declaration."""
    tiles = {name: kind for names, kind in re.findall(r"(?m)^(\w[\w, ]*): (.+)", example) for name in names.split(", ")}
    lines: list[str] = []
    for line in example.splitlines():
        call = re.fullmatch(r"nisa\.(\w+)\(dst=(\w+), (.+)", line)
        if call and (beta := signatures(f"{ISA}.{call[1]}", BETA)) and "dst" not in beta[0].names:
            function, tile, arguments = call.groups()
            if function == "memset":
                dtype, shape = tiles[tile].rstrip("]").split("[")
                arguments = f"shape=({shape}), {arguments.removesuffix(')')}, dtype=nl.{dtype})"
            line = f"{tile} = nisa.{function}({arguments}"
            if not re.search(rf"\n{tile}\b.* == ", example):
                lines.remove(f"{tile}: {tiles[tile]}")
        lines.append(line)
    return "\n".join(lines)


_examples = texts("examples.txt")
_examples[ISA] |= {name: textwrap.dedent(entry.example).strip("\n") for name, entry in INSTRUCTIONS.items()}
_examples[f"{ISA} beta"] |= {name: textwrap.dedent(entry.beta_example).strip("\n") or returning(_examples[ISA][name])
                             for name, entry in INSTRUCTIONS.items()}
EXAMPLES = {(module, generation): _examples[module] | (_examples[f"{module} beta"] if generation == BETA else {})
            for module, generation in PAGES}


def example(module: str, name: str, generation: str) -> str:
    """Return a function's example; "" without one."""
    text = EXAMPLES.get((module, generation), {}).get(name, "")
    return filled(text, name).strip()


def filled(text: str, name: str) -> str:
    return text.replace("{name}", name).replace("{formula}", language.FORMULAS.get(name, ""))


def text_for(generation: str, text: str) -> str:
    """Return the part of a text for a generation: before " | " for beta, after it for current."""
    beta, _, current = text.partition(" | ")
    return current if current and generation == CURRENT else beta


class Paragraph(NamedTuple):
    title: str
    lines: list[str]

    def text(self) -> str:
        return "\n".join([f"{self.title}:", *(f"    {line}" for line in self.lines)])


def cost(cls: type[Op]) -> str:
    """Return a sentence that says what the time of an op class is proportional to."""
    if cls.queued:
        return "The engine issues a transfer, which then runs in its queue."
    if cls.work is Op.work:
        walked = "the tile" if cls.walked == "piece" else cls.walked
        return f"The engine takes time for each element of {walked} in a partition."
    return " ".join(str(inspect.getdoc(cls.work)).replace("``", "").split())


def names_of_laws(cls: type[Op]) -> list[str]:
    """Return the names of the laws that a class's own ``work`` uses, up to the dot that precedes a variant. The first
    is ``law`` if ``work`` reads it. Other strings in ``work`` do not name laws."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls.work))).body[0]
    assert isinstance(body, ast.FunctionDef)
    nodes = [node for statement in body.body[1:] for node in ast.walk(statement)]
    texts = [cls.law for node in nodes if isinstance(node, ast.Attribute) and node.attr == "law"]
    texts += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return list(dict.fromkeys(name for text in texts if (name := text.partition(".")[0])))


def laws(cls: type[Op], has_roots: bool) -> list[str]:
    """Return the cycles of each element, on each engine and target, by the laws that the work's names begin with.

    ``has_roots`` says whether the documented function can have an operator to which the law ``roots`` applies.
    """
    lines = []
    for kind in [cls.law] if cls.work is Op.work else names_of_laws(cls):
        if kind == "roots" and not has_roots:
            continue
        for engine in cls.engines:
            tables = {name: machine_named(name).costs.engines[engine].laws for name in TARGETS}
            rates = ", ".join(f"{float(table[kind].per_element):g} ({name})" for name, table in tables.items()
                              if kind in table)
            lines += [f"{kind} on {engine.value}, cycles for each element of a partition: {rates}"] if rates else []
    return lines


def performance(page: Page, parameters: Collection[str], has_roots: bool) -> list[Paragraph]:
    """Return the engines and work of the operations that the instruction becomes. Sentences use the parameters' names,
    or the phrases of ``OPERANDS`` for operands that are not parameters.
    """
    catalog.load()
    engines, work = [], []
    for name in page.ops:
        cls = REGISTRY[f"nisa.{name}"]
        since = f", from NeuronCore-v{cls.since} on" if cls.since > 2 else ""
        *leading, last = (engine.value for engine in cls.engines)
        choice = f"{', '.join(leading)} or {last}" if leading else last
        engines.append(choice + since + (f" ({name})" if page.ops[1:] else ""))
        text = re.sub(r"\w+", lambda word: OPERANDS.get(word[0], word[0]) if word[0] not in parameters else word[0],
                      cost(cls))
        work += [f"{name}: {text}" if page.ops[1:] else text, *laws(cls, has_roots)]
    work.append("Costs differ between machines; nki_mlir.machine has their formulas and sources.")
    return [Paragraph("Engine", engines), Paragraph("Cost", work)]


def domain(name: str) -> str:
    """Return a sentence that tells where the hardware's table of a function ends; "" for a function without such a
    table."""
    function = ACTIVATIONS.get(name)
    if function is None or not function.is_bounded:
        return ""
    low, high = function.valid_range
    quantity = "the magnitude of x" if function.by_magnitude else "x"
    return (f" The simulator warns if {quantity} is outside of {low:.3g} to {high:.3g}, the range of the engine's "
            "table.")


def argument(kind: str, takes: str) -> str:
    """Return the phrase that describes an argument by its kind and by what a page says, which may name the kind."""
    if kind == "a tile" and takes.startswith(("[", "in ")):
        return f"{kind} {takes}"
    kinds = (kind, "a list", "a tensor", "an array", "a tile or", "a [1, 1] tile", "a number or")
    names_kind = takes.startswith(kinds) or {
        "a dtype": "dtype" in takes, "True or False": takes.startswith("True"),
        "a tuple of integers": "integers" in takes}.get(kind, False)
    return "; ".join(phrase for phrase in ("" if names_kind else kind, takes) if phrase)


def commands_of(name: str, generation: str) -> str:
    """Return the phrase for the commands that an instruction's ``reduce_cmd`` takes."""
    commands = (generation == CURRENT and INSTRUCTIONS[name].commands) or COMMANDS
    return "one of " + ", ".join(f"nisa.reduce_cmd.{command}" for command in commands)


def description(function: str, generation: str, kinds: Mapping[str, str], sentence: str) -> str:
    """Return the text of ``help()`` for a function that has a page; "" without one.

    Arguments:
        function: the documented name, with its module
        generation: the generation whose function it is
        kinds: the phrase for the kind of each parameter, in their order; "" where the name says nothing about it
        sentence: what the function does
    """
    module, _, name = function.rpartition(".")
    has_roots = module == ISA or name in VECTOR_HAS_NOT
    page, shown = PAGES.get((module, generation), {}).get(name), example(module, name, generation)
    if page is None or not shown:
        return ""
    arguments = []
    for parameter, kind in kinds.items():
        kind = commands_of(name, generation) if parameter == "reduce_cmd" else kind
        takes = text_for(generation, page.takes.get(parameter) or COMMON[module].get(parameter, ""))
        arguments.append(f"{parameter}: {argument(kind, takes)}")
    result = filled(text_for(generation, page.result), name) + (domain(name) if module == LANGUAGE else "")
    errors = text_for(generation, page.errors)
    paragraphs = [Paragraph("Arguments", arguments or ["none"]), Paragraph("Result", [result]),
                  Paragraph("Errors", [errors] if errors == "None." else [errors, LOCATED]),
                  *(performance(page, kinds, has_roots) if page.ops else []), Paragraph("Example", shown.splitlines()),
                  Paragraph("Source", [f"{function}, NKI API reference, "
                                       f"releases {spans(releases_with(function))}"])]
    return "\n\n".join([sentence, *(p.text() for p in paragraphs)])


# -- names beside functions --------------------------------------------------------------------------------------------
SENTENCES = {
    "sbuf": "memory on the chip, 128 partitions, which all engines read and write",
    "psum": "memory on the chip where products are summed: 128 partitions of 8 banks of 512 float32",
    "hbm": "nl.private_hbm", "private_hbm": "memory of the device that one program sees",
    "shared_hbm": "memory of the device that all programs of a launch see: the memory of inputs and outputs",
    "tile_size": "limits of tiles on the kernel's target, such as pmax, the partitions, and gemm_moving_fmax",
    "mgrid": "mgrid[a:b, c:d] is an index for each axis, by position or as .p (partition), .x, .y, .z and .w",
    "average": "the mean, an operator of reductions", "bypass": "no operation, an operator of nisa.activate2",
    "prelu": "x above 0, relu_param * x below: a function of nisa.activate2",
    "DType": "str, as dtypes are annotated", "tensor": "nl.NkiTensor, as parameters are annotated",
    "range": "Python's range", "Tensor": "nki.tensor, a tensor or a view of one", "dma_engine": "what moves data",
}


def of_dtype(dtype: DType) -> str:
    """Return a phrase that describes the values of an element type."""
    element, packed, _ = dtype.name.partition("_x4")
    if packed:
        return f"four {element} in {dtype.bits} bits, operands of nisa.nc_matmul_mx"
    if dtype is BOOL:
        return "0 or 1, in a byte"
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        return f"integers of {dtype.bits} bits, {limits.min} to {limits.max}"
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    if not dtype.mantissa:
        return f"powers of 2 in {dtype.bits} bits, up to {most:.6g}: scales of nisa.nc_matmul_mx"
    return f"floats of {dtype.bits} bits, {dtype.mantissa} of them mantissa, up to {most:.6g}"


def sentence(name: str, value: object) -> str:
    """Return one sentence about a public name."""
    if isinstance(value, (DType, np.dtype)):
        return of_dtype(dtype_of(value))
    if name in SENTENCES:
        return SENTENCES[name]
    if isinstance(value, enum.Enum):
        return f"nisa.{value}"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return f"{str(inspect.getdoc(value)).splitlines()[0]} Members: {', '.join(value.__members__)}."
    return (inspect.getdoc(value) or "").split("\n")[0]


def values(module: str, generation: str) -> dict[str, object]:
    """Return the public names of a module beside its functions, with their values."""
    home = importlib.import_module(f"nki_mlir.language.{generation}.{module.rpartition('.')[2]}")
    return {name: value for name in dir(home) for value in [vars(home)[name]] if not hasattr(value, "record")}


def contents(module: str, generation: str) -> str:
    """Return the names of a module beside its functions: a sentence for each, then an example of each form."""
    names = values(module, generation)
    lines = [f"{name}: {sentence(name, value)}" for name, value in names.items()]
    shown = {EXAMPLES[module, generation][name]: example(module, name, generation) for name in reversed(names)}
    examples = "\n\n".join(textwrap.indent(text, "    ") for text in reversed(shown.values()))
    return "\n".join(["Other names:", *(f"    {line}" for line in lines), "", "Examples:", examples])
