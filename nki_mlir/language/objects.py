# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NKIObject``: the base of classes that kernels use."""

import inspect


class NKIObject:
    """A class of objects for kernels: annotated names are its fields.

    Fields are assigned by position or keyword; then ``__post_init__`` runs. ``@dataclass`` may be put on
    subclasses; it then makes the initializer. Objects with equal fields are equal.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        names = list(dict.fromkeys(n for c in reversed(type(self).__mro__) for n in inspect.get_annotations(c)))
        if len(arguments) > len(names):
            raise TypeError("too many arguments given (varargs not supported)")
        given = dict(zip(names, arguments))
        for name, value in keywords.items():
            if name not in names:
                raise TypeError(f"unexpected keyword argument '{name}'")
            if name in given:
                raise TypeError(f"got multiple values for argument '{name}'")
            given[name] = value
        for name in names:
            setattr(self, name, given[name] if name in given else getattr(type(self), name, None))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Runs after the fields are assigned."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))
