# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.errors``: the documented errors by their names, found among the error classes by code."""


from nki_mlir.diagnostics import KernelError


def _named() -> dict[str, type[KernelError]]:
    classes: dict[str, type[KernelError]] = {}
    pending: list[type[KernelError]] = [KernelError]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if cls.code.startswith("err_"):
            classes.setdefault(cls.code, cls)
    return classes


def __dir__() -> list[str]:
    return sorted(_named())


def __getattr__(name: str) -> type[Exception]:
    try:
        return _named()[name]
    except KeyError:
        raise AttributeError(f"there is no error named {name}; the errors are {', '.join(sorted(_named()))}") from None
