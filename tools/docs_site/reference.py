# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generate the reference pages of the site: a page for each group of names, and an index of each module."""

import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from nki_mlir.cli.opt import pass_summaries
from nki_mlir.language.documentation.page import EXAMPLES, example, sentence, values
from nki_mlir.language.signatures.table import BETA, CURRENT
from nki_mlir.passes.pass_manager import pass_named
from tests.language.example_kernels import home_of, public
from tests.test_public_docstrings import MODULES
from tools import error_reference, export_dialects, op_reference
from tools.docs_site.groups import GROUPS, WRITTEN, names
from tools.docs_site.language_examples import output
from tools.docs_site.long_pages import in_parts
from tools.docs_site.markdown import code, entry, prose, sections, signature

ROOT = Path(__file__).resolve().parents[2]
TITLES = {BETA: "beta generation (`neuronxcc.nki`)", CURRENT: "current generation (`nki`)"}
Pages = dict[str, str]


def page(title: str, *lines: str) -> str:
    return "\n".join([f"# {title}", "", *lines]).rstrip() + "\n"


def contents(*entries: str, depth: int = 1, is_shown: bool = True) -> list[str]:
    """Return a table of contents, which is also in the menu."""
    return ["```{toctree}", f":maxdepth: {depth}", *([] if is_shown else [":hidden:"]), "", *entries, "```", ""]


def first(docstring: str) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join(sections(docstring)[""].split("\n\n")[0].split())


# -- the language ------------------------------------------------------------------------------------------------------
def function_page(generation: str, module: str, group: str, functions: dict[str, Any]) -> str:
    title, text = GROUPS[module][group]
    lines, written = [], WRITTEN[module]
    listed = [n for n in text.split() if n in functions]
    for name in listed:
        about = prose(first(functions[name].__doc__))
        lines.append(f"- [`{written}.{name}`](#{anchor(generation, written, name)}): {about}")
    lines += [""]
    for name in listed:
        function = functions[name]
        call = signature(function, f"{written}.{name}")
        lines += [f"({anchor(generation, written, name)})=",
                  *entry(f"{written}.{name}", call, inspect.getdoc(function) or "", output(generation, module, name))]
    return page(title, f"Of the {TITLES[generation]}. Examples declare their tiles first; the last lines give their "
                       "values after the call in NumPy. The output of the example follows.", "", *lines)


def anchor(generation: str, written: str, name: str) -> str:
    return f"{generation}-{written}-{name}".replace("_", "-").lower()


def values_page(generation: str, module: str) -> str:
    """Return the page of names other than functions: dtypes, memories, enumerations, classes."""
    members, lines = values(module, generation), []
    for name, value in members.items():
        lines += [f"## `{WRITTEN[module]}.{name}`", "", prose(sentence(name, value)), "",
                  *code(example(module, name, generation))]
    return page("Dtypes, memories and other names", f"Of the {TITLES[generation]}.", "", *lines)


def language() -> Pages:
    pages: Pages = {}
    for module, generation in EXAMPLES:
        public_names, where = public(module, generation), f"{generation}/{WRITTEN[module]}"
        unknown = set(public_names) - set(names(module))
        assert not unknown, f"tools/docs_site/groups.py does not say where these are: {sorted(unknown)}"
        groups = [g for g, (_, text) in GROUPS[module].items() if set(text.split()) & set(public_names)]
        for group in groups:
            pages[f"{where}/{group}"] = function_page(generation, module, group, public_names)
        if WRITTEN[module] in ("nl", "nisa"):
            groups.append("values")
            pages[f"{where}/values"] = values_page(generation, module)
        doc = (inspect.getdoc(home_of(module, generation)) or "").partition("\n\n")[0]
        pages[f"{where}/index"] = page(f"`{WRITTEN[module]}`, {generation}", prose(" ".join(doc.split())), "",
                                       *contents(*groups, depth=2))
    for generation in (BETA, CURRENT):
        homes = [f"{WRITTEN[m]}/index" for m, g in EXAMPLES if g == generation]
        pages[f"{generation}/index"] = page(f"The {generation} generation", "", *contents(*homes, "nki", "more"))
    return pages


# -- nki, nki_mlir, frameworks -----------------------------------------------------------------------------------------
WHERE = {
    "beta/nki": ["nki_mlir.language.beta.nki"], "current/nki": ["nki_mlir.language.current.nki"],
    "current/more": ["nki_mlir.language.current.compiler", "nki_mlir.language.current.driver",
                     "nki_mlir.language.current.compiled", "nki_mlir.language.current.host_arrays",
                     "nki_mlir.language.current.runtime"],
    "beta/more": ["nki_mlir.language.beta.compiler", "nki_mlir.language.beta.typing"],
    "frameworks/jax": ["nki_mlir.frameworks.jax", "nki_mlir.frameworks.jax_neuronx"],
    "frameworks/torch": ["nki_mlir.frameworks.torch", "nki_mlir.frameworks.torch_neuronx",
                         "nki_mlir.frameworks.torch_device", "nki_mlir.frameworks.torch_xla"],
    "frameworks/programs": ["nki_mlir.frameworks.stablehlo", "nki_mlir.frameworks.torch_stablehlo",
                            "nki_mlir.frameworks.recovery", "nki_mlir.frameworks.framework_kernel"],
    "frameworks/customop": ["nki_mlir.customop"],
    "package/compat": ["nki_mlir.compat", "nki_mlir.compat.nkipy_runtime"],
}
PACKAGE = {"nki_mlir", "nki_mlir.language.lowered"}         # each has a page
MODULE_TITLES = {
    "beta/nki": "`nki`, beta", "current/nki": "`nki`, current", "beta/more": "Compiler and types, beta",
    "current/more": "Compiler and kernels' metadata, current", "frameworks/jax": "JAX", "frameworks/torch": "PyTorch",
    "frameworks/programs": "StableHLO programs", "frameworks/customop": "C++ operators",
    "package/compat": "`nki_mlir.compat`",
}


def signature_of(name: str, value: Any) -> str:
    try:
        return signature(value, name) if not dataclasses.is_dataclass(value) else name
    except (ValueError, TypeError):
        return name


def module_lines(name: str) -> list[str]:
    """Return the names in a module's ``__all__``, and the public methods of its classes."""
    try:
        home = importlib.import_module(name)
    except ImportError as error:
        return [f"## `{name}`", "", f"Not shown: the site was built without it ({prose(str(error))}).", ""]
    lines = [f"## `{name}`", "", prose(inspect.getdoc(home) or ""), ""]
    for label in home.__all__:
        value = getattr(home, label)
        if not inspect.isclass(value) and not inspect.isroutine(value):
            continue
        lines += entry(label, signature_of(label, value), inspect.getdoc(value) or "", level=3)
        if inspect.isclass(value):
            lines += member_lines(value, level=4)
    return lines


def member_lines(cls: type, level: int) -> list[str]:
    """Return the public methods of a class, and the properties with a docstring."""
    lines = []
    for name, member in vars(cls).items():
        docstring = inspect.getdoc(member) or ""
        if name[0] != "_" and (inspect.isfunction(member) or (isinstance(member, property) and docstring)):
            lines += entry(f"{cls.__name__}.{name}", signature_of(name, member), docstring, level=level)
    return lines


def modules() -> Pages:
    listed = {m for page_modules in WHERE.values() for m in page_modules} | PACKAGE
    assert listed == set(MODULES), f"tools/docs_site/reference.py does not say where these are: {set(MODULES) ^ listed}"
    pages = {where: page(MODULE_TITLES[where], *(line for name in page_modules for line in module_lines(name)))
             for where, page_modules in WHERE.items()}
    pages["frameworks/index"] = page("Frameworks and C++ operators", "",
                                     *contents("jax", "torch", "programs", "customop"))
    pages["package/index"] = package_page()
    return pages


def package_page() -> str:
    """Return the page of ``nki_mlir`` and the result of ``kernel.lower``."""
    import nki_mlir
    from nki_mlir.language.kernel import Kernel
    from nki_mlir.language.lowered import KernelCost, Lowered, Profile, Spec
    lines = ["A module `nki_mlir.plugin` has the names for [plugins](../../documents/plugins.md).", "",
             *(line for name in nki_mlir.__all__ for value in [getattr(nki_mlir, name)] if callable(value)
               for line in entry(f"nki_mlir.{name}", signature_of(name, value), inspect.getdoc(value) or "")),
             *entry("kernel.lower", signature_of("lower", Kernel.lower), inspect.getdoc(Kernel.lower) or ""),
             *(line for cls in (Lowered, Profile, KernelCost, Spec) for line in (
                 *entry(cls.__name__, cls.__name__, inspect.getdoc(cls) or ""), *member_lines(cls, level=3)))]
    return page("`nki_mlir`", first(inspect.getdoc(nki_mlir) or ""), "", *contents("compat"), *lines)


# -- commands, passes, dialects, errors --------------------------------------------------------------------------------
COMMANDS = {f"nki-{name}": f"nki_mlir.cli.{name}" for name in (
    "opt", "run", "translate", "migrate", "score", "tune", "grade", "calibrate", "env")}
COMMANDS |= {"nki-lsp": "nki_mlir.cli.language_server", "python -m nki_mlir": "nki_mlir"}


def commands() -> Pages:
    lines = []
    for name, module in COMMANDS.items():
        text = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT,
                              check=True).stdout
        lines += [f"## `{name}`", "", *code(text, "text")]
    return {"commands": page("Commands", "What `--help` of each says.", "", *lines)}


def pass_paragraph(name: str, text: str) -> list[str]:
    """Format a paragraph of a pass's docstring: its sentence, a module before and after, or prose."""
    if text.startswith("before"):
        return code(text, "text")
    text = text.removeprefix(f"{name}: ")
    return [prose(text[0].upper() + text[1:]), ""]


def pass_tests(name: str) -> list[Path]:
    return sorted((ROOT / "lit_tests").rglob(f"{name}.mlir"))


def pass_example(name: str) -> list[str]:
    """Return the first case of a pass's FileCheck test: its input, and the checked output."""
    for file in pass_tests(name):
        case = next((c for c in file.read_text().split("// -----") if "CHECK" in c), "").strip()
        text = "\n".join(line for line in case.splitlines() if not re.match(r"// (SPDX|RUN)", line))
        return [f"From `{file.relative_to(ROOT)}`, which is tested: the module that goes in, with the lines that must "
                "come out as `CHECK`.", "", *code(text.strip(), "mlir")]
    return []


def passes() -> Pages:
    lines = []
    for summary in sorted(pass_summaries(), key=lambda p: p.name):
        cls = type(pass_named(summary.name))
        levels = [getattr(level, "title", level) for level in (cls.reads, cls.writes)]
        about = "any level" if levels[0] is None else f"{levels[0]} to {levels[1]}" if len({*levels}) > 1 else levels[0]
        doc = (inspect.getdoc(sys.modules[cls.__module__]) or summary.text).split("\n\n")
        lines += [f"## `{summary.name}`", "", *(p for text in doc for p in pass_paragraph(summary.name, text)),
                  f"**Levels.** {about}.", ""]
        if summary.options:
            lines += ["| option | default | |", "|---|---|---|",
                      *(f"| `{n}` | `{default}` | {prose(text)} |" for n, default, text in summary.options), ""]
        lines += pass_example(summary.name)
    return {"passes": page("Passes", "Run by `nki-opt --NAME`, or `nki_mlir.opt(module, \"NAME\")`.", "", *lines)}


def dialects() -> Pages:
    classes = export_dialects.dialects()
    introduction = op_reference.INTRODUCTION.partition("# Operations\n")[2].strip()
    pages = {"dialects/index": page("Dialects", introduction, "", *contents(*(d.DIALECT_NAMESPACE for d in classes)))}
    for dialect in classes:
        text = op_reference.reference([dialect]).partition(f"\n## {dialect.DIALECT_NAMESPACE}\n")[2]
        pages[f"dialects/{dialect.DIALECT_NAMESPACE}"] = page(f"`{dialect.DIALECT_NAMESPACE}`",
                                                              re.sub(r"^### ", "## ", text, flags=re.MULTILINE))
    return pages


AREAS = {"language": "Language and kernels", "capture": "Capture", "targets": "Executors and targets",
         "frameworks": "Frameworks", "customop": "C++ operators", "cli": "Commands"}


def errors() -> Pages:
    """Return the pages of errors, by the part of the project that reports most of a code."""
    by_code: dict[str, list[error_reference.Template]] = defaultdict(list)
    for template in error_reference.templates():
        by_code[template.code].append(template)
    areas: dict[str, list[str]] = defaultdict(list)
    for name in sorted(by_code):
        area = by_code[name][0].module.split(".")[1]
        areas[area if area in AREAS else "compiler"].append(name)
    pages = {}
    titles = {**AREAS, "compiler": "Compiler"}
    for area, listed in areas.items():
        pages[f"errors/{area}"] = page(f"Errors: {titles[area]}", *error_reference.page_of(
            {name: by_code[name] for name in listed}))
    pages["errors/index"] = page("Errors", error_reference.HEAD.partition("`make docs`). ")[2].strip(), "",
                                 *contents(*(a for a in titles if a in areas), depth=2))
    return pages


INTRODUCTION = """The build of the site writes these pages from the code, and runs each example to show its output.

| looking for | |
|---|---|
| functions of kernels | [`nl`](current/nl/index.md), [`nisa`](current/nisa/index.md), [`nki`](current/nki.md) |
| views of tensors, collectives | [views](current/tensor/views.md), [`ncc`](current/ncc/collectives.md) |
| the same of the beta generation | [beta](beta/index.md) |
| lowering, passes and profiles from Python | [`nki_mlir`](package/index.md) |
| JAX, PyTorch, StableHLO, C++ operators | [frameworks](frameworks/index.md) |
| a command and its options | [commands](commands.md) |
| what a pass does | [passes](passes.md) |
| an operation in IR | [dialects](dialects/index.md) |
| the code of an error | [errors](errors/index.md) |
| whether a name is there, and what runs it | [coverage](coverage.md) |
"""


def index() -> str:
    return page("Reference", INTRODUCTION, "", *contents(
        "current/index", "beta/index", "package/index", "frameworks/index", "commands", "passes", "dialects/index",
        "errors/index", "coverage", is_shown=False))


def pages() -> Pages:
    """Return every page of the reference, by its name without suffix."""
    all_pages = {"index": index(), **language(), **modules(), **commands(), **passes(), **dialects(), **errors()}
    return {part: text for name, page_text in all_pages.items() for part, text in in_parts(name, page_text).items()}
