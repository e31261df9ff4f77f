# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The history of public names, and calls in use that no release documents.

The texts beside this file contain the history; for instructions, their entries (``language/entries``) do.

A text has modules in brackets, lines of names that share a history, and an entry for each release that changed them::

    add subtract
        2.20   (x, y, dtype=None)       from this release on, until the next entry
        2.27   -                        gone
        2.29   (x, y) + name            back; the description has a keyword that the signature does not have

``{}`` is the name itself. ``token`` is a value for ``op=`` in that release, which the release does not document as
callable. Names are those of the package ``nki``; entries before 2.27 are of ``neuronxcc.nki``, the beta generation.
Before them are the kinds (``kinds.py``) of parameters whose names would suggest another kind, in both generations or in
one (``beta``, ``current``)::

    rms_norm
        kinds  DIVISOR n

and the calls that need a generation of the core: calls with one value of a parameter, calls with any value of it, or
all calls. The feature's name in messages follows, then the fix on older cores::

    dma_copy
        needs  3 dge_mode=hwdge: {} with dge_mode hwdge: leave dge_mode to the compiler
        needs  4 priority: a priority: leave it out
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import NamedTuple

TEXTS, OTHERS = {"nki.language": "language.txt", "nki.isa": "isa.txt"}, "others.txt"
RELEASES = ("2.20", "2.21", "2.22", "2.23", "2.24", "2.25", "2.26", "2.26.1", "2.27", "2.28", "2.29", "2.29.1", "2.30",
            "2.31", "2.31.1", "2.32")
FIRST_OF_CURRENT = RELEASES.index("2.27")
BETA, CURRENT = "beta", "current"
GONE = "-"
ENTRY = re.compile(r"    (\d+(?:\.\d+)+|kinds|beta|current|needs) +(.+)")
COMMAS = re.compile(r",\s*(?![^(\[]*[)\]])")


class Parameter(NamedTuple):
    """A parameter as documents write it; ``default`` is None if it has none."""

    name: str
    default: str | None
    keyword_only: bool


class Signature(NamedTuple):
    """The signature of a function that one release documents, and all later releases until the next signature."""

    release: str
    text: str
    parameters: tuple[Parameter, ...]
    described: tuple[str, ...]          # keywords that only its description has
    takes_all: bool                     # ``*args``

    @property
    def positional(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters if not p.keyword_only)

    @property
    def names(self) -> tuple[str, ...]:
        return (*(p.name for p in self.parameters), *self.described)


class Need(NamedTuple):
    """A generation of the core that a call needs if it passes ``value`` for ``parameter``. Without ``value`` any value
    needs it; without ``parameter`` every call does."""

    generation: int
    parameter: str
    value: str
    feature: str
    instead: str

    def applies_to(self, value: object) -> bool:
        """Return whether a call with this value of the parameter has the need."""
        return not self.parameter or (getattr(value, "name", value) == self.value if self.value else value is not None)


of_plugins: dict[str, tuple[tuple[str, str], ...]] = {}             # lines of entries by name, as ``texts`` has them


def generation_of(release: str) -> str:
    return CURRENT if RELEASES.index(release) >= FIRST_OF_CURRENT else BETA


def texts(module: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Map names like ``nki.language.add`` to the lines of their entries, each with its first word apart: the names of
    ``nki.language``, of ``nki.isa``, or of all other modules."""
    return entries_in(TEXTS.get(module, OTHERS))


@cache
def entries_in(file: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Map the names in a text to the lines of their entries."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    if file == TEXTS["nki.isa"]:
        from nki_mlir.language.entries import INSTRUCTIONS  # start-up: kernels may use no instruction
        text += "\n".join(["", "[nki.isa]", *(
            f"{name}\n{indent(dedent(entry.releases).strip(), '    ')}" for name, entry in INSTRUCTIONS.items())])
    joined = re.sub(r"\n {12}", " ", text)
    table: dict[str, tuple[tuple[str, str], ...]] = {}
    module, names, entries = "", [], []         # type: ignore[var-annotated]
    for line in [*(line for line in joined.splitlines() if line[:1] != "#"), "[]"]:
        entry = ENTRY.match(line)
        if entry:
            entries.append((entry[1], entry[2]))
            continue
        if entries:
            table |= {name: tuple((word, text.replace("{}", name.rpartition(".")[2])) for word, text in entries)
                      for name in names}
            names, entries = [], []
        if line.startswith("["):
            module = line.strip("[]")
        else:
            names += [f"{module}.{name}" for name in line.split()]
    return table


def add(name: str, lines: tuple[tuple[str, str], ...]) -> None:
    """Add the entry of a plugin's function, which no text has."""
    of_plugins[name] = lines
    history.cache_clear()


def module_of(name: str) -> str:
    return name.rpartition(".")[0]


def lines_of(name: str) -> tuple[tuple[str, str], ...]:
    """Return the lines of a name's entry, each with its first word apart; none if the name has no entry."""
    return texts(module_of(name)).get(name) or of_plugins.get(name, ())


@cache
def history(name: str) -> tuple[tuple[str, str], ...]:
    """Return the entries (release, text) of a name like ``nki.language.add``, oldest first."""
    return tuple(line for line in lines_of(name) if line[0] in RELEASES)


def histories() -> dict[str, tuple[tuple[str, str], ...]]:
    """Map all documented names to their histories."""
    return {name: history(name) for file in (*TEXTS.values(), OTHERS) for name in entries_in(file)}


def has_entry(name: str) -> bool:
    """Return whether some release has a name."""
    return name in texts(module_of(name)) or name in of_plugins


def names_in(module: str) -> list[str]:
    """Return the names that a public module has in any release."""
    return [name.rpartition(".")[2] for name in (*texts(module), *of_plugins) if module_of(name) == module]


def named_kinds(name: str, generation: str) -> dict[str, str]:
    """Map the parameters for which a function's entry names a kind to that kind."""
    lines = [text for word, text in lines_of(name) if word in ("kinds", generation)]
    return {parameter: kind for line in lines for part in line.split(", ") for kind, *parameters in [part.split()]
            for parameter in parameters}


def needs_of(name: str) -> tuple[Need, ...]:
    """Return the features of the machine that calls of a function need."""
    needs = []
    for text in (text for word, text in lines_of(name) if word == "needs"):
        requirement, feature, instead = text.split(": ")
        generation, _, argument = requirement.partition(" ")
        parameter, _, value = argument.partition("=")
        needs.append(Need(int(generation), parameter, value, feature, instead))
    return tuple(needs)


def parsed(release: str, text: str) -> Signature:
    """Parse the signature that an entry writes."""
    inside, _, described = text.rpartition(")")
    parameters, keyword_only, takes_all = [], False, False
    for part in COMMAS.split(inside[1:]):
        name, _, default = part.partition("=")
        if name.startswith("*"):
            keyword_only, takes_all = True, takes_all or name not in ("*", "**kwargs")
        elif name:
            parameters.append(Parameter(name, default or None, keyword_only))
    return Signature(release, text, tuple(parameters), tuple(described.removeprefix(" + ").split(", ")) if described
                     else (), takes_all)


@cache
def signatures(name: str, generation: str) -> tuple[Signature, ...]:
    """Return the distinct signatures of a generation's function, newest first."""
    entries, first_release = history(name), {}      # type: ignore[var-annotated]
    if generation == CURRENT:                           # the last form of the beta generation continues
        continued = [(RELEASES[FIRST_OF_CURRENT], t) for r, t in entries if generation_of(r) == BETA][-1:]
        entries = (*continued, *entries) if RELEASES[FIRST_OF_CURRENT] not in dict(entries) else entries
    for release, text in entries:
        if text.startswith("(") and generation_of(release) == generation:
            first_release.setdefault(text, release)
    return tuple(parsed(release, text) for text, release in reversed(first_release.items()))


def states_of(name: str) -> Iterator[tuple[str, str]]:
    """Yield each release with the entry of a name that holds in it."""
    entries, state = dict(history(name)), GONE
    for release in RELEASES:
        state = entries.get(release, state)
        yield release, state


def releases_with(name: str) -> tuple[str, ...]:
    """Return the releases that have a name."""
    return tuple(release for release, state in states_of(name) if state != GONE)


@cache
def names_of(module: str, generation: str = CURRENT) -> tuple[str, ...]:
    """Return the names that a public module has in the newest release, or for beta in any of its releases."""
    entries_of = {name: history(f"{module}.{name}") for name in names_in(module)}
    if generation == BETA:
        return tuple(name for name, entries in entries_of.items()
                     if any(text != GONE and generation_of(release) == BETA for release, text in entries))
    return tuple(name for name, entries in entries_of.items() if entries and entries[-1][1] != GONE)


@cache
def language_functions(generation: str = CURRENT) -> tuple[str, ...]:
    """Return the names of ``nki.language`` that are functions."""
    module = "nki.language"
    return tuple(name for name in names_of(module, generation) if signatures(f"{module}.{name}", generation))


def published(module: str, generation: str, *sources: ModuleType) -> dict[str, object]:
    """Return the names of a public module that its source modules define."""
    return {name: vars(source)[name] for source in sources for name in names_of(module, generation)
            if name in vars(source)}


def listing(home: Mapping[str, object], module: str, generation: str, *extra: str) -> Callable[[], list[str]]:
    """Return the ``__dir__`` of a public module: the names of all its releases, and the names ``extra``, which public
    code uses."""
    public = sorted({*names_of(module, generation), *extra} & home.keys())
    return lambda: public


def spans(releases: tuple[str, ...]) -> str:
    """Format releases as text: ``2.20 to 2.26.1, 2.29``."""
    runs: list[list[int]] = []
    for number in sorted(map(RELEASES.index, releases)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(RELEASES[r[0]] if len(r) == 1 else f"{RELEASES[r[0]]} to {RELEASES[r[-1]]}" for r in runs)


def releases_of_keyword(name: str, keyword: str) -> tuple[str, ...]:
    """Return the releases whose signature of a function has a keyword."""
    return tuple(release for release, state in states_of(name)
                 if state.startswith("(") and keyword in parsed(release, state).names)


# -- calls in use ------------------------------------------------------------------------------------------------------
# Arguments that kernels in use pass beyond any release's signature, collected from public code of every release. Any
# other argument that no signature has is an error.

# Function -> groups of names for one parameter. A release renamed the parameter, or accepted a name that it did not
# list.
SAME: dict[str, tuple[tuple[str, ...], ...]] = {
    "nki.isa.nc_matmul": (("is_moving_onezero", "is_moving_zero"),),
    "nki.isa.sendrecv": (("dma_engine", "use_gpsimd_dma"),),
    "nki.isa.register_move": (("src", "imm"),),
    "nki.isa.dma_copy": (("oob_mode", "mode"),),
    "nki.language.device_print": (("prefix", "print_prefix"), ("x", "tensor")),
    "nki.language.zeros_like": (("a", "x"),),
    "nki.language.empty_like": (("a", "x"),),
    "nki.language.copy": (("src", "x"),),
    "nki.language.broadcast_to": (("src", "x"),),
    "nki.language.expand_dims": (("data", "x"),),
    "nki.language.static_cast": (("input_data", "arr", "x"),),
    "nki.language.NkiTensor.reshape": (("shape", "new_shape"),),
}

# Function -> signatures, as the table writes them, that calls in use follow.
FOLLOWED: dict[str, tuple[tuple[str, str], ...]] = {
    "nki.isa.sendrecv": (
        ("2.27", "(src, dst, send_to_rank, recv_from_rank, pipe_id, use_gpsimd_dma=False, name=None)"),),
    "nki.language.ndarray": (("2.27", "(shape, dtype, buffer=None, name='', address=None)"),),
    "nki.language.matmul": (("2.27", "(x, y, transpose_x=False)"),),
}

# Function -> parameters that every release requires and calls in use leave out, with their values.
LEFT_OUT: dict[str, dict[str, str]] = {f"nki.language.{name}": {"dtype": "float32"}
                                       for name in ("ndarray", "zeros", "ones", "full", "rand")}

# Labels and hints for a scheduler, which change no value: first for all functions, then for single ones.
HINTS = ("name", "lazy_initialization", "max_free_vec_size", "directives", "precise_schedule")
IGNORED: dict[str, tuple[str, ...]] = {
    "nki.isa.nc_matmul": ("psumAccumulateFlag", "psum_accumulate_flag", "psum_accumulate_flags"),
    "nki.isa.nc_matmul_mx": ("psumAccumulateFlag", "psum_accumulate_flag", "psum_accumulate_flags"),
    "nki.isa.dma_copy": ("unique_indices",),
    "nki.isa.reciprocal": ("engine",),
    "nki.collectives.collective_permute_implicit_current_processing_rank_id": ("num_channels",),
}


def other_names(function: str, name: str) -> tuple[str, ...]:
    """Return the other names of a function's parameter."""
    return tuple(n for group in SAME.get(function, ()) if name in group for n in group if n != name)


def is_ignored(function: str, name: str) -> bool:
    return name in HINTS or name in IGNORED.get(function, ())
