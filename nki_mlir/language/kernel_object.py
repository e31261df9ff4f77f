# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Defines ``NKIObject``, the class of objects that kernels construct and take, with the language's initializer."""

import dataclasses
import inspect
import re
from types import FunctionType, MemberDescriptorType
from typing import Any, ClassVar, get_origin

NAMES = "__nki_fields__"                # the fields that a class adds, in the order of its text
NO_FIELD = r"(\w+\.)*(ClassVar|KW_ONLY)\b"


class BodyAnnotations(dict[str, object]):
    """The annotations of a class body. They record each name in the order of the text, with names that have no
    annotation."""

    def __init__(self, order: dict[str, None]) -> None:
        super().__init__()
        self.order = order

    def __setitem__(self, name: str, annotation: object) -> None:
        self.order[name] = None
        super().__setitem__(name, annotation)


class ClassBody(dict[str, object]):
    """The namespace of a class body. It records names, annotated or not, in the order of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.order: dict[str, None] = {}
        self.annotations = BodyAnnotations(self.order)
        super().__setitem__("__annotations__", self.annotations)

    def __setitem__(self, name: str, value: object) -> None:
        self.order[name] = None
        super().__setitem__(name, value)


class ObjectType(type):
    """The type of ``NKIObject`` and its subclasses, which records their fields."""

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: object) -> ClassBody:
        return ClassBody()

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], /, **options: Any) -> "ObjectType":
        contents = dict(namespace)
        body = namespace if isinstance(namespace, ClassBody) else None       # a dict is of ``dataclass(slots=True)``
        if body is not None:
            contents["__annotations__"] = {**body.annotations}
        created = super().__new__(cls, name, bases, contents, **options)
        if body is not None and bases and getattr(created, "__init__") is NKIObject.__init__:   # noqa: B009  a class
            created.declare(body)
        return created

    def declare(self, body: ClassBody) -> None:
        """Record the fields, and keep ``@dataclass`` from replacing the initializer.

        ``dataclass`` gets attributes without annotation as keyword-only fields, which may precede others without
        default.
        """
        annotations: dict[str, object] = self.__annotations__
        if any(isinstance(a, dataclasses.InitVar) or a is dataclasses.InitVar for a in annotations.values()):
            return                                          # only Python's initializer passes these on
        plain = [n for n in body.order if n not in annotations and self.is_value(n, body[n])]
        setattr(self, NAMES, tuple(n for n in body.order
                                   if n in plain or (n in annotations and is_field(annotations[n]))))
        self.__init__ = NKIObject.__init__                  # type: ignore[misc]
        keywords = {n: object for n in plain if type(body[n]).__hash__ is not None}
        if keywords and dataclasses.KW_ONLY not in annotations.values():
            annotations["_"] = dataclasses.KW_ONLY
        annotations |= keywords

    def is_value(self, name: str, value: object) -> bool:
        """Return whether an attribute is data: no method, property or class that the body defines."""
        if re.fullmatch("__.*__", name) or (isinstance(value, type) and is_inside(value, self)):
            return False
        return not hasattr(type(value), "__get__") or is_of_language(value)


def is_inside(value: type, outer: type) -> bool:
    return value.__module__ == outer.__module__ and value.__qualname__.startswith(outer.__qualname__ + ".")


def is_of_language(value: object) -> bool:
    """Return whether a value is a function such as ``nl.silu``, which is a value in a class, not a method of it."""
    return isinstance(value, FunctionType) and (value.__module__ or "").startswith("nki_mlir.")


def is_field(annotation: object) -> bool:
    if isinstance(annotation, str):
        return re.match(NO_FIELD, annotation) is None
    return not (annotation in (ClassVar, dataclasses.KW_ONLY) or get_origin(annotation) is ClassVar)


def is_frozen(cls: type) -> bool:
    parameters = getattr(cls, "__dataclass_params__", None)
    return parameters is not None and bool(parameters.frozen)


def declaration(cls: type, name: str) -> "dataclasses.Field[object] | None":
    """Return the declaration of a field by ``dataclasses.field(...)`` or the decorator, or None."""
    value = getattr(cls, name, None)
    declared: dataclasses.Field[object] | None = getattr(cls, "__dataclass_fields__", {}).get(name)
    return value if isinstance(value, dataclasses.Field) else declared


def default_of(cls: type, name: str) -> object:
    """Return the value of a field without an argument: its default, else None."""
    value, declared = getattr(cls, name, None), declaration(cls, name)
    if declared is None or not (value is None or isinstance(value, (MemberDescriptorType, dataclasses.Field))):
        return value
    if declared.default is not dataclasses.MISSING:
        return declared.default
    return None if declared.default_factory is dataclasses.MISSING else declared.default_factory()


class NKIObject(metaclass=ObjectType):
    """The base class of objects for kernels. Its fields are the annotated names and the attributes with a value.

    Fields are assigned by position, in the order of the text, or by keyword; a missing one gets its default, else
    None. Then ``__post_init__`` runs. The same holds under ``@dataclass``, whose ``frozen=True`` is respected. A
    class with an ``__init__`` is constructed by it. Objects with equal fields are equal.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        cls = type(self)
        fields = dict.fromkeys(n for c in reversed(cls.__mro__) for n in vars(c).get(NAMES, inspect.get_annotations(c)))
        declared = {n: declaration(cls, n) for n in fields}      # torch.compile traces no walrus in a comprehension
        names = [n for n, field in declared.items() if field is None or field.init]
        if len(arguments) > len(names):
            raise TypeError("too many arguments given (varargs not supported)")
        values = dict(zip(names, arguments))
        for name, value in keywords.items():
            if name not in names:
                raise TypeError(f"unexpected keyword argument '{name}'")
            if name in values:
                raise TypeError(f"got multiple values for argument '{name}'")
            values[name] = value
        assign = object.__setattr__ if is_frozen(cls) else setattr
        for name in fields:
            assign(self, name, values[name] if name in values else default_of(cls, name))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Do nothing. A subclass overrides this to run code after its fields are assigned."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))
