# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites lines for an older release, with the names and parameters of that release."""

import ast

from nki_mlir.language.signatures import older_releases, table
from nki_mlir.language.signatures.older_releases import MODULES, NEWEST, Lacking
from nki_mlir.printing.errors import Unprintable

SUPPORTED = older_releases.OF_CURRENT
OLDEST = SUPPORTED[0]


class UnknownRelease(Unprintable):
    code = "NKI-PRINT-RELEASE"
    message = "the printer cannot write a text for release {release}"
    why = "the beta generation is not a release of the current one"
    fix = "choose one of {releases}, or generation beta"


def check_release(release: str) -> None:
    """Raise an error if text cannot be printed for a release."""
    if release not in SUPPORTED:
        raise UnknownRelease(release=release, releases=", ".join(SUPPORTED))


def has_loop_functions(release: str) -> bool:
    """Return whether run-time loops are functions (``nl.fori_loop``) in a release, not statements."""
    return release in table.releases_with("nki.language.fori_loop")


def has_regions_in_order(release: str) -> bool:
    """Return whether a release has regions in which no instruction moves."""
    return release in table.releases_with("nki.language.no_reorder")


def has_orders(release: str) -> bool:
    """Return whether a release orders an instruction after others (``depends_on``)."""
    return release in table.releases_with("nki.isa.NkiInstruction.depends_on")


def has_method(method: str, release: str) -> bool:
    """Return whether tensors of a release have a method."""
    return release in table.releases_with(f"{older_releases.TENSOR}.{method}")


def for_release(line: str, release: str) -> str:
    """Return the line in the form of a release; raise ``Unprintable`` if the release lacks a name or parameter."""
    if release == NEWEST:
        return line
    try:
        tree = ast.parse(line + " pass" if line.endswith(":") else line)
    except SyntaxError:                         # ``else:``, comments
        return line
    changed = False
    try:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (name := _public_name(node)) is not None:
                older_releases.check_name(name, release)
            if isinstance(node, ast.Call) and (name := _public_name(node.func)) is not None:
                older_releases.check_call(name, release)
                changed = _fit_keywords(node, name, release) or changed
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                older_releases.check_method(node.func.attr, release)
    except Lacking as lacking:
        following = older_releases.next_release(lacking.having, release)
        raise Unprintable(what=lacking.missing, fix=f"print for release {following}") from None
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


def _fit_keywords(call: ast.Call, name: str, release: str) -> bool:
    """Drop, rename and add parameters of a call, whose arguments have names; return whether any changed."""
    before = [(k.arg, k) for k in call.keywords]
    kept_keywords = []
    for keyword in call.keywords:
        keyword.arg = older_releases.parameter_in(name, keyword.arg or "", _public_text(keyword.value), release)
        if keyword.arg is not None:
            kept_keywords.append(keyword)
    signature = older_releases.signature_in(name, release)
    passed = {k.arg or "" for k in kept_keywords} | {*(signature.positional[:len(call.args)] if signature else ())}
    missing = older_releases.required_in(name, passed, release)
    kept_keywords += [ast.keyword(n, ast.parse(value, mode="eval").body) for n, value in missing.items()]
    call.keywords = kept_keywords
    return [(k.arg, k) for k in kept_keywords] != before
