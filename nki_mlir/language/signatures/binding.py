# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Converts calls in any release's form to calls of the function in its newest form.

A call is tried against the signatures of its generation, newest first, then against those of the other generation. It
follows the first signature that its arguments bind to and whose parameters take their values, so that an ambiguous call
follows the newest. The way in which a number of positional arguments and a set of keywords bind is memoized.
"""

import ast
import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce, update_wrapper, wraps
from types import CodeType
from typing import Any, SupportsIndex, TypeVar

from nki_mlir.capture.builder import leave_out_outside_kernels, require_generation
from nki_mlir.diagnostics import InternalError, KernelError, NkiMlirError
from nki_mlir.dialects.verifier import HostOperand
from nki_mlir.language import older_forms
from nki_mlir.language.signatures import kinds, table
from nki_mlir.language.signatures.forms import BindingForm, BindingPlan, BoundArgument
from nki_mlir.language.signatures.kinds import KINDS, REFUSED, TILE, GenerationValues, ParameterKind, or_none
from nki_mlir.language.signatures.parameter_names import name_operand, name_parameters
from nki_mlir.language.signatures.table import BETA, CURRENT, LEFT_OUT, Need, Parameter, Signature, signatures
from nki_mlir.similar_names import REDUCTIONS, nearest

R = TypeVar("R")            # a function's result, in whichever form it is called


class Description(str):
    """A function's documentation, which is short until it is displayed.

    ``help()``, editors and notebooks first expand its tabs, which composes the page. Functions cannot have
    documentation that is computed on request.
    """

    record: "Function"
    sentence: str

    def __new__(cls, text: str, record: "Function", sentence: str) -> "Description":
        description = super().__new__(cls, text)
        description.record, description.sentence = record, sentence
        return description

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        from nki_mlir.language.documentation.page import description  # start-up: imported on first use
        function, shown = self.record, list(self.record.__signature__.parameters)[self.record.skip:]
        kinds = {p: kind.description if (kind := function.kind(p)) is not None else "" for p in shown}
        page = description(function.name, function.generation.name, kinds, self.sentence)
        return (page or str.__str__(self)).expandtabs(tabsize)

    def below(self, heading: str) -> "Description":
        return Description(heading + self, self.record, heading + self.sentence)


class ShownSignature(inspect.Signature):
    """A signature whose text names functions that are defaults as a call does, without their addresses."""

    def __str__(self) -> str:
        return self.with_names(super().__str__())

    def format(self, **options: Any) -> str:
        """Return the text that ``help()`` of Python 3.13 and newer shows."""
        return self.with_names(super().format(**options))       # type: ignore[misc]

    def with_names(self, text: str) -> str:
        for parameter in self.parameters.values():
            default = parameter.default
            if callable(default) and not isinstance(default, type):
                package = "np" if default.__module__.startswith("numpy") else "nl"
                text = text.replace(repr(default), f"{package}.{default.__name__}")
        return text


class Contents(str):
    """A module's documentation; when it is displayed it also lists the module's names beside its functions."""

    def __new__(cls, text: str, module: str, generation: str) -> "Contents":
        contents = super().__new__(cls, text)
        contents.__dict__.update(module=module, generation=generation)
        return contents

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        from nki_mlir.language.documentation.page import contents  # start-up: imported on first use
        return f"{str.__str__(self)}\n\n{contents(**self.__dict__)}".expandtabs(tabsize)


# -- what differs between the two packages -----------------------------------------------------------------------------
PLACED, KEYWORD_ONLY = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY


class Generation(ABC):
    """The difference between the two packages: what values are, and how errors read.

    Functions are written with the names of their newest signature and without its defaults, which the table has.
    """

    def __init__(self, name: str, names: dict[str, object]) -> None:
        """Set the values of ``names``, which defaults in the table use; a string is a module's name."""
        self.name, self.names, self.values = name, names, GenerationValues()
        self.defaults: dict[str, object] = {}

    def default(self, text: str) -> object:
        """Return the value of a default as the table writes it."""
        if text not in self.defaults:
            try:
                self.defaults[text] = ast.literal_eval(text)
            except ValueError:
                root, *attributes = text.split(".")
                source = self.names[root]
                self.defaults[text] = reduce(getattr, attributes, importlib.import_module(source)
                                             if isinstance(source, str)
                                             else source)
        return self.defaults[text]

    def signature_of(self, newest: Signature, without: str = "") -> inspect.Signature:
        """Return a signature of the table as Python's, without a parameter that is not the function's."""
        return inspect.Signature([inspect.Parameter(
            p.name, KEYWORD_ONLY if p.keyword_only else PLACED,
            default=inspect.Parameter.empty if p.default is None else self.default(p.default))
            for p in newest.parameters if p.name != without])

    def with_defaults(self, function: Callable[..., object], name: str) -> None:
        """Give a function the defaults of its newest signature. A parameter without a default there may have one in the
        function."""
        newest = signatures(name, self.name)[:1]
        defaults = {p.name: p.default for s in newest for p in s.parameters if p.default is not None}
        table = {n: self.default(text) for n, text in (LEFT_OUT.get(name, {}) | defaults).items()}
        code = function.__code__
        names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        positional, named = names[:code.co_argcount], names[code.co_argcount:]
        function_defaults = dict(zip(reversed(positional), reversed(function.__defaults__ or ())))
        function_defaults |= function.__kwdefaults__ or {}
        if differ := [n for n in function_defaults if n in table and function_defaults[n] != table[n]]:
            raise InternalError(f"{name} has defaults of {', '.join(differ)} that are not the table's")
        all_defaults = table | function_defaults
        function.__defaults__ = tuple(all_defaults[n] for n in positional if n in all_defaults)
        function.__kwdefaults__ = {n: all_defaults[n] for n in named if n in all_defaults}

    @abstractmethod
    def word(self, kind: ParameterKind) -> str:
        """Return the name of the values of a kind in messages; "" if functions themselves report wrong values."""

    @abstractmethod
    def refuse(self, function: "Function", parameter: str, kind: ParameterKind, value: object) -> None:
        """Raise the error of a rejected value; return if the function itself reports it."""

    @abstractmethod
    def unbound(self, function: "Function", text: str) -> NkiMlirError:
        """Return the error of arguments that bind to no signature."""

    def translated(self, error: KernelError) -> Exception:
        """Convert an error of the core to this generation's."""
        return error

    @abstractmethod
    def cross(self, function: "Function", arguments: dict[str, object]) -> object:
        """Make a call in a form of the other generation."""

    @abstractmethod
    def report(self, text: str) -> None:
        """Report a form that the newest release does not have."""


IMPORTED_AS = {"nki.language": "nl", "nki.isa": "nisa"}


class Function:
    """A public function: the parameters of the Python function, and the signatures of its name.

    It is last in the chain of wrapped functions in which Python looks for a signature, so that it is computed on
    request, not when a module is imported.
    """

    def __init__(self, function: Callable[..., object], name: str, generation: Generation, bound_first: bool = False
                 ) -> None:
        self.function, self.name, self.generation = function, name, generation
        self.title, self.skip = name.rpartition(".")[2], int(bound_first)
        self.named_kinds = table.named_kinds(name, generation.name)
        self.__wrapped__ = function
        self.plans: dict[tuple[object, ...], BindingPlan] = {}
        module = name.removesuffix(f".{self.title}")
        self.imported_name = f"{IMPORTED_AS.get(module, module)}.{self.title}"      # as kernels write it
        needs = [need for need in table.needs_of(name) if need.parameter in ("", *self.newest.names)]
        if needs:
            self.function = self.guarded(needs)

    def guarded(self, needs: Sequence[Need]) -> Callable[..., object]:
        """Wrap the function so that it first reports the features of a call that the machine lacks."""
        function, names = self.function, self.python_signature.positional
        defaults = {n: p.default for n, p in self.parameters.items()}
        # For each need its parameter, the number of the positional argument for it, and its default.
        looks = [(need, n := need.parameter, names.index(n) if n in names else len(names), defaults.get(n))
                 for need in needs]

        @wraps(function)
        def run(*values: object, **named: object) -> object:
            for need, name, at, default in looks:
                value = named[name] if name in named else values[at] if at < len(values) else default
                if (value is not None and need.applies_to(value)) or not name:
                    require_generation(need.generation, need.feature, need.instead)
            return function(*values, **named)
        return run

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(list(inspect.signature(self.__wrapped__).parameters.items())[self.skip:])

    @cached_property
    def python_signature(self) -> Signature:
        """The parameters of the Python function as a signature."""
        kinds = inspect.Parameter
        parameters = [Parameter(n, None if p.default is p.empty else "default", p.kind is kinds.KEYWORD_ONLY)
                for n, p in self.parameters.items() if p.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)]
        takes_all = any(p.kind is kinds.VAR_POSITIONAL for p in self.parameters.values())
        return Signature("", "", tuple(parameters), (), takes_all)

    @property
    def newest(self) -> Signature:
        """The newest documented signature; that of the Python function if there is none."""
        documented = table.signatures(self.name, self.generation.name)
        return documented[0] if documented else self.python_signature

    @cached_property
    def __signature__(self) -> inspect.Signature:
        """The newest signature, for ``help()`` and editors."""
        kinds, empty, newest = inspect.Parameter, inspect.Parameter.empty, self.newest
        parameters = list(inspect.signature(self.__wrapped__).parameters.values())
        shown = [p.replace(annotation=empty) for p in parameters[:self.skip]]
        shown += ([p.replace(annotation=empty) for n, p in self.parameters.items() if n in newest.names]
                  if newest is self.python_signature else self.generation.signature_of(newest).parameters.values())
        shown += [self.parameters[n].replace(annotation=empty) for n in newest.described if n in self.parameters]
        if newest.takes_all:
            shown.insert(sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in shown), kinds("args", kinds.VAR_POSITIONAL))
        return ShownSignature(shown)

    def description(self) -> str:
        """Return the function's documentation: its effect and the values of its parameters; the complete page on
        request."""
        takes = [f"    {p.name}: {kind.description}" for p in self.newest.parameters
                 if (kind := self.kind(p.name)) is not None and kind.description]
        text = inspect.cleandoc(self.function.__doc__ or "")
        return Description("\n".join([text, "", *takes]) if takes else text, self, text)

    def candidates(self) -> list[tuple[Signature, bool]]:
        """Return the signatures that a call may follow, with whether they are the other generation's; best first."""
        generation, other_generation = self.generation.name, CURRENT if self.generation.name == BETA else BETA
        followed = table.FOLLOWED.get(self.name, ()) if generation == CURRENT else ()
        signatures = [self.python_signature, *table.signatures(self.name, generation),
                      *(table.parsed(r, text) for r, text in followed)]
        return [(s, False) for s in signatures] + [(s, True) for s in table.signatures(self.name, other_generation)]

    # -- binding -------------------------------------------------------------------------------------------------------
    def kind(self, parameter: str) -> ParameterKind | None:
        """Return the kind of a parameter: the function's entry decides, else the parameter's name. Parameters of
        methods have other names."""
        if parameter in self.named_kinds:
            kind: ParameterKind = getattr(kinds, self.named_kinds[parameter])
            return kind
        return None if self.skip else KINDS.get(parameter)

    def bound_argument(self, at: int | str, parameter: Parameter | None, target: str) -> BoundArgument:
        """Return an argument for a parameter of a signature, which maps to the function's parameter ``target``."""
        if parameter is None:
            return BoundArgument(at, "", None, None)
        kind = self.kind(at if isinstance(at, str) and at in KINDS else parameter.name)
        if kind is None:
            return BoundArgument(at, target, None, None)
        target_parameter = self.parameters.get(target)
        default = target_parameter.default if target_parameter is not None else None
        convert = kind.make(self.generation.values)
        if parameter.default is not None and (kind.holds_none or parameter.default == "None" or default is None):
            convert = or_none(convert, None if default is inspect.Parameter.empty else default)
        return BoundArgument(at, target, convert, kind)

    def target(self, parameter: str) -> str | None:
        """Return the function's parameter for a signature's parameter: "" for one that has no effect, None if the
        function has no such parameter."""
        for name in (parameter, *table.other_names(self.name, parameter)):
            if name in self.parameters:
                return name
        return "" if table.is_ignored(self.name, parameter) else None

    def binds(self, signature: Signature, count: int, keywords: Sequence[str], crosses: bool) -> BindingForm | None:
        """Return how ``count`` positional arguments and these keywords bind to a signature; None if they do
        not bind."""
        by_name = {p.name: p for p in signature.parameters} | {
            n: Parameter(n, "None", True) for n in signature.described}
        positional = signature.positional
        if count > len(positional) and not signature.takes_all:
            return None
        pairs: list[tuple[int | str, Parameter | None]] = [
            (k, by_name[positional[k]] if k < len(positional) else None) for k in range(count)]
        bound_names = set(positional[:count])
        for keyword in keywords:
            match = next((n for n in (keyword, *table.other_names(self.name, keyword)) if n in by_name), None)
            if match is not None and match not in bound_names:
                bound_names.add(match)
                pairs.append((keyword, by_name[match]))

            elif match is None and keyword in self.parameters and not crosses:
                pairs.append((keyword, Parameter(keyword, "None", True)))       # used in code, though in no signature
            elif match is None and table.is_ignored(self.name, keyword):
                pairs.append((keyword, None))
            else:
                return None
        if any(p.default is None and p.name not in bound_names for p in signature.parameters):
            return None
        return self.form(signature, pairs, crosses)

    def form(self, signature: Signature, pairs: list[tuple[int | str, Parameter | None]], crosses: bool
             ) -> BindingForm | None:
        bound_arguments, positional = [], self.python_signature.positional
        for at, parameter in pairs:
            target = "" if parameter is None else parameter.name if crosses else self.target(parameter.name)
            if target is None:
                return None
            bound_arguments.append(self.bound_argument(at, parameter, target))
        is_in_order = not crosses and all(g.parameter == (positional[g.at] if g.at < len(positional) else "")
                                          for g in bound_arguments if isinstance(g.at, int))
        if not is_in_order and any(parameter is None and isinstance(at, int) for at, parameter in pairs):
            return None
        newest_names = set(self.newest.names)
        direct = is_in_order and all(g.parameter == g.at and g.at in newest_names for g in bound_arguments
                                     if isinstance(g.at, str))
        return BindingForm(signature, tuple(bound_arguments), is_in_order, direct, crosses)

    def plan(self, count: int, keywords: tuple[str, ...]) -> BindingPlan:
        distinct: dict[object, BindingForm] = {}
        for signature, crosses in self.candidates():
            form = self.binds(signature, count, keywords, crosses)
            if form is not None:
                distinct.setdefault(tuple((g.at, g.parameter, id(g.kind)) for g in form.arguments), form)
        forms = tuple(distinct.values())
        if not forms or not forms[0].direct:
            return BindingPlan(forms, False, (), ())
        distinguishing = {at for form in forms[1:] for at in self.distinguishing(forms[0], form)}
        looks = [(g.at, g.convert) for g in forms[0].arguments if g.convert is not None and (
            g.at in distinguishing or (g.kind is not None and (not g.kind.only_tests or self.generation.word(g.kind))))]
        return BindingPlan(forms, True,
                           tuple((at + self.skip, convert) for at, convert in looks if isinstance(at, int)),
                           tuple((at, convert) for at, convert in looks if isinstance(at, str)))

    @staticmethod
    def distinguishing(newest: BindingForm, other: BindingForm) -> list[int | str]:
        """Return the arguments that distinguish the newest form from another: the first that is a tile only in the
        newest form, else all whose kinds differ."""
        kinds = {g.at: g.kind for g in other.arguments}
        differ = [g for g in newest.arguments if g.kind is not kinds[g.at]]
        tiles = [g for g in differ if g.kind is TILE and (kind := kinds[g.at]) is not None and not kind.is_tile]
        return [g.at for g in (tiles[:1] or differ)]

    def call_by_keyword(self, keywords: dict[str, object]) -> object:
        """Make a call in a form of the function's generation, all by keyword."""
        key = ("by keyword", *keywords)
        if key not in self.plans:
            plan_of_all = self.plan(0, tuple(keywords))
            self.plans[key] = plan_of_all._replace(forms=tuple(f for f in plan_of_all.forms if not f.crosses))
        plan = self.plans[key]
        _, arguments, _ = self.resolve(plan, (), keywords)
        return self.function(**arguments)

    def departure(self, form: BindingForm) -> str:
        """Describe how a call differs from the newest form."""
        newest = f"the newest is {self.title}{self.newest.text}"
        if form.signature.release and form.signature is not self.newest:
            return f"{self.title}{form.signature.text} is the form of release {form.signature.release}; {newest}"
        old = [str(g.at) for g in form.arguments if isinstance(g.at, str) and g.at not in self.newest.names]
        return f"{self.title}({'=, '.join(old)}=) is of another release; {newest}"

    # -- calls that are not of the newest form -------------------------------------------------------------------------
    def resolve(self, plan: BindingPlan, arguments: tuple[object, ...], keywords: dict[str, object]
                ) -> tuple[tuple[object, ...], dict[str, object], BindingForm]:
        """Return the arguments of the function by the first form that takes them, or raise the error if none does."""
        for form in plan.forms:
            values = []
            for g in form.arguments:
                value = arguments[g.at] if isinstance(g.at, int) else keywords[g.at]
                values.append(value if g.convert is None else g.convert(value))
                if values[-1] is REFUSED:
                    break
            else:
                return *form.as_function_takes(values), form
        if not plan.forms or plan.forms[0].crosses:
            raise self.generation.unbound(self, self.unknown(keywords) or self.mismatch(arguments, keywords))
        form = plan.forms[0]
        values = [arguments[g.at] if isinstance(g.at, int) else keywords[g.at] for g in form.arguments]
        refused = [(g.parameter, g.kind, value) for g, value in zip(form.arguments, values)
                   if g.kind is not None and g.convert is not None and g.convert(value) is REFUSED]
        for k, (parameter, kind, value) in enumerate(refused):
            if k == 0 or not kind.only_tests:           # the function relies on values that are converted
                self.generation.refuse(self, parameter, kind, value)
        return *form.as_function_takes(values), form              # the function raises the error

    def unknown(self, keywords: Mapping[str, object]) -> str:
        """Describe an unknown keyword: the nearest parameter, or the other releases that have it; "" if none is."""
        signatures = [self.python_signature, *(s for g in (BETA, CURRENT) for s in table.signatures(self.name, g))]
        names = dict.fromkeys(n for s in signatures for n in s.names)
        for keyword in keywords:
            if keyword in self.parameters or table.is_ignored(self.name, keyword) or (
                    table.other_names(self.name, keyword)):
                continue
            suggestion = keyword if keyword in names else nearest(keyword, names)
            text = f"{self.title}() got an unexpected keyword argument '{keyword}'"
            if suggestion in self.newest.names:
                return f"{text}; did you mean {suggestion}=?"
            if keyword in ("axis", "dim", "keepdims") and self.title in REDUCTIONS:
                return f"{text}; nl.{REDUCTIONS[self.title]} combines the elements of an axis"
            since = table.spans(table.releases_of_keyword(self.name, suggestion)) if suggestion else ""
            return f"{text}; '{suggestion}' is a parameter of the releases {since}" if since else text
        return ""

    def mismatch(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> str:
        """Return Python's message about arguments that do not bind."""
        if arguments and not self.python_signature.positional and not self.python_signature.takes_all:
            return f"{self.title}() takes its arguments by keyword, as in {self.title}({self.newest.names[0]}=...)"
        try:
            inspect.signature(self.function).bind(*((None,) * self.skip), *arguments, **keywords)
        except TypeError as error:
            return f"{self.title}(): {error}"
        return f"{self.title}() takes {self.newest.text or 'other arguments'}"


def bound(function: Callable[..., R], table_name: str, generation: Generation) -> Callable[..., R]:
    """Return the function in a form that calls of all releases can use. A method's arguments are counted after
    ``self``."""
    if not hasattr(function, "__signature__"):
        generation.with_defaults(function, table_name)
    record = Function(function, table_name, generation, bound_first=is_method(function))
    run, plans, skip = record.function, record.plans, record.skip

    def call(*arguments: object, **keywords: object) -> Any:
        key = (len(arguments), *keywords)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = record.plan(len(arguments) - skip, tuple(keywords))
        try:
            if plan.is_newest and (converted := plan.converted(arguments, keywords)) is not None:
                values, named = converted
                return run(*values, **named)
            resolved, named, form = record.resolve(plan, arguments[skip:], keywords)
            if form is not plan.forms[0] or not form.direct:
                if older_forms.are_reported():
                    generation.report(record.departure(form))
                if form.crosses:
                    return generation.cross(record, named)
            return run(*arguments[:skip], *resolved, **named)
        except KernelError as error:
            if isinstance(error, HostOperand):
                name_operand(error, record.title, record.__signature__,
                             plan.forms[0].by_name(arguments[skip:], keywords))
            elif error.fields:
                name_parameters(error, plan.forms[0].by_name(arguments[skip:], keywords))
            translated = generation.translated(error)
            try:
                if translated is error:
                    raise
                raise translated from error
            except NkiMlirError as shown:
                leave_out_outside_kernels(shown)
                raise
        except NkiMlirError as error:
            leave_out_outside_kernels(error)
            raise
    update_wrapper(call, function)
    call.__dict__.pop("__signature__", None)            # the Python function's; the record has the newest one
    call.__name__, call.__doc__ = record.title, record.description()
    call.record = call.__wrapped__ = record             # type: ignore[attr-defined]
    return call


def is_method(function: Callable[..., object]) -> bool:
    code: CodeType = function.__code__
    return code.co_argcount > 0 and code.co_varnames[0] == "self"
