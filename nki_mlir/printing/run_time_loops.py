# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints loops whose trip counts are known at run time, as ``nl.fori_loop`` and ``nl.while_loop``, and registers.

The body of a run-time loop is a function within the kernel. In older releases it is the body of a statement.
"""

from collections.abc import Callable

from nki_mlir.bindings import Value
from nki_mlir.dialects.access import SBUF, Tile, full_tile
from nki_mlir.dialects.nisa.elementwise import TensorScalarOp
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp
from nki_mlir.dialects.nki.movement import Copying, Filling
from nki_mlir.dialects.op import Op
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.kernel_text import AUTOMATIC, KernelText, NamedTensor
from nki_mlir.printing.registers import LoopRegister, LoopTest, Registers
from nki_mlir.printing.releases import has_loop_functions
from nki_mlir.printing.tile_operations import write_statement
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.scalar.predicates import COMPARISONS
from nki_mlir.waist.function import TileInstruction, WhileLoop


def allocate_register(text: KernelText, value: Value, registers: Registers) -> None:
    """Write the allocation of a register, which a capture keeps in a tile."""
    tested = {loop.outer for loop in registers.loops.values() if loop.outer is not None and not loop.step}
    name = "going" if value in tested and not has_loop_functions(text.release) else "register"
    text.allocate(value, NamedTensor(name, (1, 1), INT32, "", "nisa.register_alloc()"))


def write_register(text: KernelText, op: Op, registers: Registers) -> bool:
    """Write the call that sets, loads or stores a register, and return whether the operation is one."""
    known_registers = registers.values | registers.of_loops
    if isinstance(op, BinaryScalarOp | TensorScalarOp) and op.dst.handle in registers.of_loops:
        source = text.tile(op, op.src)
        _write_call(text, "register_load", text.tile(op, op.dst), source)
        return True
    if not isinstance(op, Filling | Copying):
        return False
    sets = op.dst.handle in known_registers
    if isinstance(op, Filling):
        if sets and (new := text.waiting.get(op.dst.handle)) is not None:
            new.expression = f"nisa.register_alloc({round(op.value)})"
            text.emit_allocations(op.dst.handle)
        elif sets:
            _write_call(text, "register_move", text.tile(op, op.dst), str(round(op.value)))
        return sets
    reads = op.src.handle in known_registers
    if sets or reads:
        source = text.tile(op, op.src)
        function = "register_move" if sets and reads else "register_load" if sets else "register_store"
        _write_call(text, function, text.tile(op, op.dst), source)
    return sets or reads


def _write_call(text: KernelText, function: str, target: str, source: str) -> None:
    """Write a call on a register, which has no parameter for its engine."""
    if text.placement is not None:
        text.placement.engines[f"nisa.{function}"] += 1
    text.write(f"nisa.{function}({target}, {source})")


def write_while(text: KernelText, loop: WhileLoop, registers: Registers, body: Callable[[], None]) -> None:
    """Write a loop with a condition, or a loop that counts."""
    register, test = registers.loops.get(loop), registers.tests.get(loop)
    if not has_loop_functions(text.release) and register is not None and not register.step:
        _write_while(text, register, registers, body)
    elif register is not None:
        _write_loop(text, register, registers, body)
    elif test is not None:
        _write_conditional(text, loop, test, body)
    else:
        raise Unprintable(what="a loop whose condition is computed from several numbers",
                          fix="compute the condition in a tile of one element")


def _write_loop(text: KernelText, loop: LoopRegister, registers: Registers, body: Callable[[], None]) -> None:
    """Write a loop whose register is the parameter of its body."""
    begin = loop.begin
    if text.placement is not None and loop.step:
        text.placement.engines["nl.fori_loop"] += 1
    if (number := _first_number(begin, registers)) is not None:
        first = str(number) if loop.step else f"nisa.register_alloc({number})"
    else:
        assert isinstance(begin, Copying)
        first = _register(begin.src.handle, text.tile(begin, begin.src), registers)
    bound = str(loop.limit)
    if not isinstance(loop.limit, int):
        text.emit_allocations(loop.limit)
        bound = _register(loop.limit, text.tensors[loop.limit].name, registers)
    text.flush()
    if not has_loop_functions(text.release):
        _write_range(text, loop, first, bound, body)
        return
    function = text.unique("body", "body")
    parameter = text.unique("i" if loop.step else "going", "i")
    text.tensors[loop.register] = NamedTensor(parameter, (1, 1), INT32, "")
    with text.block(f"def {function}({parameter}):"):
        body()
        if not loop.step:
            text.write(f"return {parameter}")
    if loop.step:
        step = f", step={loop.step}" if loop.step != 1 else ""
        text.write(f"nl.fori_loop({first}, {bound}, {function}{step})")
    else:
        text.write(f"nl.while_loop({first}, {function})")


def _first_number(begin: Op, registers: Registers) -> int | None:
    """Return the number that an operation sets a loop's register to, or None if it copies a tile."""
    if isinstance(begin, Copying):
        return registers.numbers.get(begin.src.handle)
    assert isinstance(begin, Filling)
    return round(begin.value)


def _write_range(text: KernelText, loop: LoopRegister, first: str, bound: str, body: Callable[[], None]) -> None:
    counter = text.unique("i", "i")
    text.tensors[loop.register] = NamedTensor(counter, (1, 1), INT32, "")
    with text.block(f"for {counter} in nl.dynamic_range({first}, {bound}, {loop.step}):"):
        body()


def _write_while(text: KernelText, loop: LoopRegister, registers: Registers, body: Callable[[], None]) -> None:
    """Write a ``while`` statement on a register, which has the operand of the next test at the end of the body."""
    begin = loop.begin
    if loop.outer is not None and loop.outer in registers.values:
        text.emit_allocations(loop.outer)
        name = text.tensors[loop.outer].name
    else:
        number = _first_number(begin, registers)
        first = text.tile(begin, begin.src) if number is None else str(number)          # type: ignore[attr-defined]
        name = text.unique("going", "going")
        text.write(f"{name} = nisa.register_alloc({first})")
        text.tensors[loop.register] = NamedTensor(name, (1, 1), INT32, "")
    text.flush()
    with text.block(f"while {name}:"):
        body()


def _register(value: Value, shown: str, registers: Registers) -> str:
    return shown if value in registers.values | registers.of_loops else f"nisa.register_alloc({shown})"


def beta_condition(loop: WhileLoop, test: LoopTest | None) -> Tile | None:
    """Return the tile that the last operation of a loop compares with 0 for its condition, or None if other operations
    use the condition, too."""
    last = loop.body.nodes[-1] if loop.body.nodes else None
    op = last.instruction if isinstance(last, TileInstruction) else None
    if test is None or not isinstance(op, BinaryScalarOp) or (op.op, op.scalar, op.mask) != ("not_equal", 0, ()):
        return None
    alone = op.dst.handle == test.register and len(list(test.register.uses)) == 3       # the others fill and test it
    return op.src if alone and (test.comparison, test.limit) == ("ne", 0) else None


def _write_beta(text: KernelText, test: LoopTest, condition: Tile, body: Callable[[], None]) -> None:
    text.emit_allocations(test.register)
    name = text.tensors[test.register].name
    if not text.drop_fill(name):
        raise Unprintable(what="a loop that may not run at all in the beta generation",
                          fix="print for the current generation")
    going = text.unique("going" if AUTOMATIC.fullmatch(name) else name, "going")
    text.write(f"{going} = nisa.register_alloc(True)")
    text.flush()
    with text.block(f"while {going}:"):
        body()
        text.write(f"nisa.register_load({going}, {text.tensors[condition.handle].name})")


def _write_conditional(text: KernelText, loop: WhileLoop, test: LoopTest, body: Callable[[], None]) -> None:
    """Write a loop whose register is loaded from a tile."""
    if text.beta:
        condition = beta_condition(loop, test)
        if condition is None:
            raise Unprintable(what="a loop whose condition does not compare a number with 0 in the beta generation",
                              fix="print for the current generation")
        _write_beta(text, test, condition, body)
        return
    shown = _condition(text, test)
    if not has_loop_functions(text.release):
        text.flush()
        going = text.unique("going", "going")
        text.write(f"{going} = nisa.register_alloc({shown})")
        with text.block(f"while {going}:"):
            body()
            text.write(f"nisa.register_load({going}, {_condition(text, test)})")
        return
    first = NamedTensor("register", (1, 1), INT32, "", "nisa.register_alloc()")
    text.allocate(first, first)
    text.flush()
    text.write(f"nisa.register_load({first.name}, {shown})")
    function, going = text.unique("body", "body"), text.unique("going", "going")
    with text.block(f"def {function}({going}):"):
        body()
        text.write(f"nisa.register_load({going}, {_condition(text, test)})")
        text.write(f"return {going}")
    text.write(f"nl.while_loop({first.name}, {function})")


def _condition(text: KernelText, test: LoopTest) -> str:
    """Return the name of a tile of one element that is not 0 while the loop continues. Write the comparison that
    computes it, unless the loop's register is such a tile."""
    if (test.comparison, test.limit) == ("ne", 0):
        text.emit_allocations(test.register)
        return text.tensors[test.register].name
    flag, left = text.temporary((1, 1), INT32, SBUF, name="going"), full_tile(test.register, (1, 1), INT32, SBUF)
    operator = next(c.alu for c in COMPARISONS if c.name == test.comparison)
    if isinstance(test.limit, int):
        write_statement(text, BinaryScalarOp(dst=flag, src=left, op=operator, scalar=float(test.limit)))
    else:
        right = full_tile(test.limit, (1, 1), INT32, SBUF)
        write_statement(text, BinaryOp(dst=flag, lhs=left, rhs=right, op=operator))
    return text.tensors[flag.handle].name
