# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The form in an older release of the current generation of a call that the newest release documents.

A parameter that a release lacks is left out if it has its default. A parameter that was renamed gets its older name. A
parameter that a release requires, and newer ones do not, gets their default.
"""

from nki_mlir.language.signatures import table

NEWEST = table.RELEASES[-1]
OF_CURRENT = table.RELEASES[table.FIRST_OF_CURRENT:]
MODULES = {"nisa": "nki.isa", "nl": "nki.language", "nccl": "nki.collectives", "nki": "nki"}
TENSOR = "nki.language.NkiTensor"
METHODS_BEFORE = ("ap", "reshape", "view")      # which kernels called before a release documented them

# Function or parameter -> the first release in which it means what it means in the newest, and what it does before
CHANGED = {
    "nki.isa.range_select.on_false_value": ("2.29", "ignores the value"),
    "nki.isa.range_select.reduce_cmd": ("2.29", "ignores the value"),
    "nki.isa.quantize_mx": ("2.31", "halves the scales of blocks"),
    "nki.language.num_programs": ("2.29", "counts the programs of all axes"),
}
# What the releases that ignore the value of a parameter use
INSTEAD = {"nki.isa.range_select.on_false_value": "-3.4028234663852886e+38",
           "nki.isa.range_select.reduce_cmd": "reduce_cmd.reset_reduce"}
MAY_BE_NONE = ("nki.isa.dma_compute.scales",)   # parameters without a default that calls in use set to None


class Lacking(Exception):
    """A release has no form of a name or parameter: ``missing`` says which, and the releases that have one."""

    def __init__(self, missing: str, having: tuple[str, ...]) -> None:
        super().__init__(missing)
        self.missing, self.having = missing, having


def next_release(having: tuple[str, ...], release: str) -> str:
    """Return the first release after another one among those that have something; the newest if there is none."""
    return next((r for r in having if table.RELEASES.index(r) > table.RELEASES.index(release)), NEWEST)


def check_name(name: str, release: str) -> None:
    """Raise ``Lacking`` if the release lacks a public name, or a function in it means something else."""
    having = table.releases_with(name) if table.has_entry(name) else OF_CURRENT
    if release not in having:
        raise Lacking(f"{name}, which release {release} does not have,", having)
    check_meaning(name, release)


def check_call(name: str, release: str) -> None:
    """Raise ``Lacking`` if a function of the newest release is only a value of parameters in the release."""
    states = dict(table.states_of(name))
    if states.get(NEWEST, "").startswith("(") and not states[release].startswith("("):
        raise Lacking(f"a call of {name}, which release {release} does not have,",
                      tuple(r for r, state in states.items() if state.startswith("(")))


def check_method(method: str, release: str) -> None:
    """Raise ``Lacking`` if tensors of the release lack a method that tensors of the newest release have."""
    if method not in METHODS_BEFORE and table.has_entry(f"{TENSOR}.{method}"):
        check_name(f"{TENSOR}.{method}", release)


def check_meaning(name: str, release: str) -> None:
    """Raise ``Lacking`` if a function or parameter means something else in the release."""
    first, before = CHANGED.get(name, (release, ""))
    if table.RELEASES.index(release) < table.RELEASES.index(first):
        raise Lacking(f"{name}, of which release {release} {before},", OF_CURRENT[OF_CURRENT.index(first):])


def has_parameter(name: str, parameter: str, release: str) -> bool:
    """Return whether the signature of a function in a release has a parameter."""
    return release in table.releases_of_keyword(name, parameter)


def parameter_in(name: str, parameter: str, value: str, release: str) -> str | None:
    """Return the name of a function's parameter in a release; None if the parameter is to be left out, because it has
    its default ``value``. Raise ``Lacking`` if the release has no such parameter."""
    older = signature_in(name, release)
    if older is None:
        return parameter
    if parameter in older.names:
        if not _is_used(f"{name}.{parameter}", value):
            check_meaning(f"{name}.{parameter}", release)
        return parameter
    renamed = next((n for n in table.other_names(name, parameter) if n in older.names), None)
    if renamed is not None:
        return renamed
    if value == _defaults(name).get(parameter):
        return None
    raise Lacking(f"{parameter}={value} of {name}, which release {release} does not have,",
                  table.releases_of_keyword(name, parameter))


def _is_used(parameter: str, value: str) -> bool:
    """Return whether releases that ignore the value of a parameter use this value."""
    try:
        return abs(float(value) - float(INSTEAD.get(parameter, ""))) <= 1e31        # in float32 they are equal
    except ValueError:
        return parameter in INSTEAD and f".{value}".endswith(f".{INSTEAD[parameter]}")


def required_in(name: str, parameters: set[str], release: str) -> dict[str, str]:
    """Return the parameters with their values that a call in a release has in addition to ``parameters``, because only
    newer releases have defaults for them. Raise ``Lacking`` if a parameter has another default in the release that no
    value of it replaces."""
    older, defaults, added = signature_in(name, release), _defaults(name), dict[str, str]()
    for parameter in older.parameters if older is not None and not name.endswith("_range") else ():
        default = defaults.get(parameter.name)
        if parameter.name in parameters or default is None:
            continue
        if parameter.default is None and (default != "None" or f"{name}.{parameter.name}" in MAY_BE_NONE):
            added[parameter.name] = default
        elif parameter.default is None or (parameter.default, default) == ("bool", "None") or (
                parameter.default != default and f"{name}.{parameter.name}" in CHANGED.keys() - INSTEAD.keys()):
            raise Lacking(f"a call of {name} without {parameter.name} in release {release},",
                          tuple(r for r in OF_CURRENT if _default_in(name, parameter.name, r) == default))
    return added


def _default_in(name: str, parameter: str, release: str) -> str | None:
    signature = signature_in(name, release)
    return next((p.default for p in signature.parameters if p.name == parameter), None) if signature else None


def signature_in(name: str, release: str) -> table.Signature | None:
    """Return the signature of a function in a release; None for other names, and for those that the newest lacks."""
    states = dict(table.states_of(name))
    if not states.get(release, "").startswith("(") or not states.get(NEWEST, "").startswith("("):
        return None
    return table.parsed(release, states[release])


def _defaults(name: str) -> dict[str, str | None]:
    return {p.name: p.default for p in table.parsed(NEWEST, dict(table.states_of(name))[NEWEST]).parameters}
