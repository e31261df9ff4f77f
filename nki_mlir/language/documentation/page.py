# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The text of an instruction's documentation: from its page, its signature, its kinds and its operations' classes."""

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.language.documentation.instruction_examples import BETA_EXAMPLES, EXAMPLES
from nki_mlir.language.documentation.instructions import COMMON, INSTRUCTIONS, Page
from nki_mlir.language.signatures.table import BETA, CURRENT

if TYPE_CHECKING:
    from nki_mlir.language.signatures.binding import Function

EXAMPLES_OF = {CURRENT: EXAMPLES, BETA: BETA_EXAMPLES}


class Paragraph(NamedTuple):
    title: str
    lines: list[str]

    def text(self) -> str:
        return "\n".join([f"{self.title}:", *(f"    {line}" for line in self.lines)])


def cost(cls: type[Op]) -> list[str]:
    """The formula of a class's cycles, as the simulator computes it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls.cycles))).body[0]
    assert isinstance(body, ast.FunctionDef)
    statements = [s for s in body.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    text = "\n".join(ast.unparse(s) for s in statements).replace("self.", "").replace("machine.", "")
    return text.removeprefix("return ").replace("\nreturn ", "\n").splitlines()


def performance(page: Page) -> list[Paragraph]:
    """Engines and cycles of the operations that the instruction becomes."""
    engines, cycles = [], []
    for name in page.ops:
        cls = REGISTRY[f"nisa.{name}"]
        since = f", from NeuronCore-v{cls.since} on" if cls.since > 2 else ""
        engines.append(" or ".join(e.value for e in cls.engines) + since + (f" ({name})" if page.ops[1:] else ""))
        lines = cost(cls)
        lines[-1] += " cycles of the engine" + (", then the transfer in its queue" if cls.queued else "")
        cycles += [f"{name}: {lines[0]}" if page.ops[1:] else lines[0], *lines[1:]]
    cycles.append("Names beside the operands' are the machine's: nki_mlir.machine.Machine says what they are.")
    return [Paragraph("Engine", engines), Paragraph("Cost", cycles)]


def description(function: "Function", sentence: str) -> str:
    """What ``help()`` shows of a function that has a page; "" without one."""
    module, _, name = function.name.rpartition(".")
    page, example = INSTRUCTIONS.get(name), EXAMPLES_OF[function.generation.name].get(name)
    if module != "nki.isa" or page is None or example is None:
        return ""
    arguments = []
    for parameter in function.shown().parameters:
        kind = function.kind(parameter)
        said = [kind.what if kind is not None else "", page.takes.get(parameter) or COMMON.get(parameter, "")]
        arguments.append(f"{parameter}: {'; '.join(s for s in said if s)}")
    paragraphs = [Paragraph("Arguments", arguments), Paragraph("Result", [page.result]),
                  Paragraph("Errors", [page.errors, "They point at the line of the call."]), *performance(page),
                  Paragraph("Example", textwrap.dedent(example).strip().splitlines()),
                  Paragraph("Source", [f"nki.isa.{name}, NKI API reference"])]
    return "\n\n".join([sentence, *(p.text() for p in paragraphs)])
