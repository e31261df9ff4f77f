# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports calls in files of the current generation that no release of it takes, such as calls in the beta form.

    y = nisa.activation(op=nl.exp, data=x)      the beta generation returns a tile, the current one writes into ``dst``
"""

from collections.abc import Sequence

import libcst as cst

from nki_mlir.language.signatures.older_releases import MODULES, NEWEST, OF_CURRENT, signature_in
from nki_mlir.language.signatures.table import (
    BETA,
    Signature,
    has_entry,
    other_names,
    releases_of_keyword,
    releases_with,
    signatures,
    spans,
)
from nki_mlir.migration.names import Names

TENSORS = {"dst", "src", "data", "data0", "data1", "data2", "stationary", "moving", "pattern", "on_true_tile"}


def public_name(meaning: str) -> str:
    """Return ``nki.isa.iota`` for ``nisa.iota``, or an empty text for other names."""
    package, _, name = meaning.partition(".")
    return f"{MODULES[package]}.{name}" if package in MODULES and name else ""


def why_absent(meaning: str) -> str:
    """Return that the newest release lacks a public name, or an empty text if it has it."""
    name = public_name(meaning)
    if not has_entry(name) or NEWEST in releases_with(name):
        return ""
    having = releases_with(name)
    return f"{name}, which release {NEWEST} does not have ({spans(having)} {'has' if len(having) == 1 else 'have'})"


def why_unbound(meaning: str, arguments: Sequence[cst.Arg], names: Names) -> str:
    """Return why the arguments of a call do not bind in the newest release, or an empty text if they do, or if the text
    does not show it."""
    name = public_name(meaning)
    signature = signature_in(name, NEWEST) if name else None
    if signature is None or any(a.star for a in arguments):
        return ""
    by_name = {a.keyword.value for a in arguments if a.keyword is not None}
    missing = _missing(name, signature, arguments)
    if has_beta_form(meaning, arguments, names):
        return f"a call of {meaning} in the beta form: create its destination, and pass it as dst"
    if missing:
        return f"a call of {meaning} without {' and '.join(missing)}, which release {NEWEST} requires"
    unknown = [n for n in by_name if n not in signature.names and not any(
        r in OF_CURRENT for r in releases_of_keyword(name, n))]
    if "mask" in unknown:
        return f"{meaning} has no mask in the current generation: slice its operands"
    return f"{meaning} has no parameter {unknown[0]} in the current generation" if unknown else ""


def has_beta_form(meaning: str, arguments: Sequence[cst.Arg], names: Names) -> bool:
    """Return whether the arguments of an instruction that writes ``dst`` bind in the beta generation, in which it
    returns its result, and not in the newest release."""
    name = public_name(meaning)
    signature = signature_in(name, NEWEST) if name else None
    if signature is None or "dst" not in signature.names or any(a.star for a in arguments):
        return False
    by_position = zip(signature.positional, [a for a in arguments if a.keyword is None])
    has_strange = any(p in TENSORS and _is_token(a.value, names) for p, a in by_position)
    return (has_strange or bool(_missing(name, signature, arguments))) and _is_beta(name, arguments)


def _missing(name: str, signature: Signature, arguments: Sequence[cst.Arg]) -> list[str]:
    """Return the parameters without a default that a call does not pass."""
    by_position = dict(zip(signature.positional, [a for a in arguments if a.keyword is None]))
    by_name = {a.keyword.value for a in arguments if a.keyword is not None}
    passed = {*by_position, *by_name, *(other for n in by_name for other in other_names(name, n))}
    return [p.name for p in signature.parameters if p.default is None and p.name not in passed]


def _is_token(node: cst.BaseExpression, names: Names) -> bool:
    """Return whether an argument is an operator or a dtype."""
    return names.meaning(node).startswith(("nl.", "np."))


def _is_beta(name: str, arguments: Sequence[cst.Arg]) -> bool:
    """Return whether the arguments bind to a signature of the beta generation."""
    return any(_binds(form, arguments) for form in signatures(name, BETA))


def _binds(form: Signature, arguments: Sequence[cst.Arg]) -> bool:
    positional = [p.name for p in form.parameters][:sum(a.keyword is None for a in arguments)]
    passed = {*positional, *(a.keyword.value for a in arguments if a.keyword is not None)}
    return all(p.name in passed for p in form.parameters if p.default is None)
