# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operators for instructions and graphs, which name them. What makes a program or a record of one is loaded then."""

from nki_mlir.dialects.programs import Program


class Named:
    """Finds them among the libraries of this process."""

    def program(self, library: str, function: str) -> Program:
        from nki_mlir.customop.kernel_binding import program  # start-up: loads the language
        return program(library, function)

    def record(self, said: dict[str, object]) -> object:
        from nki_mlir.customop.graph_binding import record_from  # start-up: loads MLIR
        return record_from(said)
