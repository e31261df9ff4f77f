# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.errors``: the documented errors by their names, found among the classes that carry them."""


from nki_mlir.diagnostics import KernelError


def _named() -> dict[str, type[KernelError]]:
    found: dict[str, type[KernelError]] = {}
    pending: list[type[KernelError]] = [KernelError]
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if cls.code.startswith("err_"):
            found.setdefault(cls.code, cls)
    return found


def __dir__() -> list[str]:
    return sorted(_named())


def __getattr__(name: str) -> type[Exception]:
    try:
        return _named()[name]
    except KeyError:
        raise AttributeError(f"there is no error named {name}; the errors are {', '.join(sorted(_named()))}") from None
