# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Finds from its bytecode what Python code may change in addition to its local variables.

A capture that finds state changed checks whether the kernel's code could have changed it. Names are exact: a global, a
closure cell or an attribute changes by an instruction that has its name. Items of containers have no name, so any
subscript store, in-place operator or call of a mutating method counts as a change of all of them.
"""

import dis
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType

GLOBALS, CELLS, ATTRIBUTES = (frozenset({f"{verb}_{kind}" for verb in ("STORE", "DELETE")})
                              for kind in ("GLOBAL", "DEREF", "ATTR"))
ITEMS = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
MUTATORS = frozenset("""
    __delitem__ __iadd__ __ior__ __setitem__ add append appendleft byteswap clear copyto difference_update discard
    extend extendleft fill frombytes heapify heappop heappush insert insort insort_left insort_right itemset
    intersection_update move_to_end partition pop popitem popleft put putmask remove reset resize reverse rotate set
    setdefault setfield setflags setitem shuffle sort subtract symmetric_difference_update update""".split())
ANYTHING = frozenset("setattr delattr globals vars __dict__ __setattr__ __delattr__ exec eval".split())


@dataclass
class Stores:
    """The names that code stores to or deletes, whether it may change items, and whether it may change anything
    (``exec``)."""

    scopes: set[str] = field(default_factory=set)
    cells: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    items: bool = False
    anything: bool = False

    def add(self, code: CodeType) -> None:
        """Add the stores of this code and of the functions in it."""
        names = {*code.co_names}
        self.items |= not MUTATORS.isdisjoint(names)
        self.anything |= not ANYTHING.isdisjoint(names)
        for instruction in dis.get_instructions(code):
            match instruction.opname:
                case operation if operation in GLOBALS:
                    self.scopes.add(instruction.argval)
                case operation if operation in CELLS:
                    self.cells.add(instruction.argval)
                case operation if operation in ATTRIBUTES:
                    self.attributes.add(instruction.argval)
                case operation if operation in ITEMS or operation.startswith("INPLACE_"):
                    self.items = True
                case "BINARY_OP" if instruction.argrepr.endswith("="):
                    self.items = True
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                self.add(inner)


def stores_of(codes: Iterable[CodeType]) -> Stores:
    """Return the objects that any of these codes may change."""
    stores = Stores()
    for code in codes:
        stores.add(code)
    return stores
