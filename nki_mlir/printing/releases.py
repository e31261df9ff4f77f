# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites lines for an older release, with the names and parameters of that release.

A parameter that a release lacks is left out if it has its default. A parameter that was renamed gets its older name.
"""

import ast

from nki_mlir.language.signatures import table
from nki_mlir.printing.errors import Unprintable

NEWEST, OLDEST = table.RELEASES[-1], "2.29"
SUPPORTED = table.RELEASES[table.RELEASES.index(OLDEST):]
MODULES = {"nisa": "nki.isa", "nl": "nki.language"}


class UnknownRelease(Unprintable):
    code = "NKI-PRINT-RELEASE"
    message = "the printer cannot write a text for release {release}"
    why = "older releases have no functions that compute tiles; the beta generation is not a release of the current one"
    fix = "choose one of {releases}, or generation beta"


def check_release(release: str) -> None:
    """Raise an error if text cannot be printed for a release."""
    if release not in SUPPORTED:
        raise UnknownRelease(release=release, releases=", ".join(SUPPORTED))


def has_loop_functions(release: str) -> bool:
    """Return whether run-time loops are functions (``nl.fori_loop``) in a release, not statements."""
    return release in table.releases_with("nki.language.fori_loop")


def for_release(line: str, release: str) -> str:
    """Return the line in the form of a release; raise ``Unprintable`` if the release lacks a name or parameter."""
    if release == NEWEST:
        return line
    try:
        tree = ast.parse(line + " pass" if line.endswith(":") else line)
    except SyntaxError:                         # ``else:``, comments
        return line
    changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (name := _public_name(node)) is not None:
            _check_name(name, release)
        if isinstance(node, ast.Call) and (name := _public_name(node.func)) is not None:
            changed = _fit_keywords(node, name, release) or changed
    return ast.unparse(tree) if changed else line


def _public_name(node: ast.expr) -> str | None:
    """Return the public name of a function, such as ``nki.isa.dma_copy`` for ``nisa.dma_copy``."""
    match node:
        case ast.Attribute(value=ast.Name(id=short), attr=name) if short in MODULES:
            return f"{MODULES[short]}.{name}"
    return None


def _public_text(node: ast.expr) -> str:
    """Return the text of a value as signatures have it: members of enumerations stand there without a module."""
    text = ast.unparse(node)
    short, _, name = text.partition(".")
    return name if short in MODULES else text


def _check_name(name: str, release: str) -> None:
    having = table.releases_with(name) if name in table.histories() else SUPPORTED
    if release not in having:
        raise Unprintable(what=f"{name}, which release {release} does not have,",
                          fix=f"print for release {_next(having, release)}")


def _next(having: tuple[str, ...], release: str) -> str:
    later = [r for r in having if table.RELEASES.index(r) > table.RELEASES.index(release)]
    return later[0] if later else NEWEST


def _fit_keywords(call: ast.Call, name: str, release: str) -> bool:
    """Drop and rename parameters of a call; return whether any changed."""
    states = dict(table.states_of(name))
    if not states.get(release, "").startswith("("):
        return False
    parameters = table.parsed(release, states[release]).names
    newest = {p.name: p.default for p in table.parsed(NEWEST, states[NEWEST]).parameters}
    before = [(k.arg, k) for k in call.keywords]
    kept_keywords = []
    for keyword in call.keywords:
        keyword_name = keyword.arg or ""
        older = next((n for n in table.same(name, keyword_name) if n in parameters), None)
        if keyword_name not in parameters and older is not None:
            keyword.arg = older
        elif keyword_name not in parameters:
            if _public_text(keyword.value) == newest.get(keyword_name):
                continue
            having = table.releases_of_keyword(name, keyword_name)
            raise Unprintable(what=f"{keyword_name}={ast.unparse(keyword.value)} of {name}, which release {release} "
                                   f"does not "
                              "have,", fix=f"print for release {_next(having, release)}")
        kept_keywords.append(keyword)
    call.keywords = kept_keywords
    return [(k.arg, k) for k in kept_keywords] != before
