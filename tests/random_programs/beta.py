# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels of the beta generation: statements, loops and masks. Its operations are in ``beta_rules``."""

from dataclasses import replace
from math import inf

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.scalar.dtypes import BOOL, FLOAT32, INT32, DType

from .spelling import BETA_HINTS, respelled
from .writer import DTYPES, Facts, Loop, Output, Program, Tile, Writer

RULES: list = []
MEETINGS: list = []                     # rules of programs that run side by side


def kind(dtype: DType) -> str:
    """Return the language's name of a dtype."""
    return f"nl.{dtype.name}_" if dtype is BOOL else f"nl.{dtype.name}"


def rule(weight: int = 1, rules: list = RULES):
    def add(function):
        rules.extend([function] * weight)
        return function
    return add


class BetaWriter(Writer):
    dtypes = tuple(d for d in DTYPES if d.name != "float8_e4m3fn")
    rules, meetings = RULES, MEETINGS
    modules, hints = {"nl": nl, "nisa": nisa}, BETA_HINTS
    grids: tuple[tuple[int, ...], ...] = ((), (), (), (), (), (2,), (3,), (2, 2), (1, 3))

    # -- masks ---------------------------------------------------------------------------------------------------------
    def mask(self, shape: tuple[int, ...], boxes: bool = False, often: bool = False, fold: bool = False) -> str:
        """``, mask=...`` over tiles of a shape, or nothing. ``boxes``: comparisons of one axis each.

        ``fold``: of an operation that is not elementwise, which takes no ``!=`` and no ``|``.
        """
        if not often and not self.maybe(3):
            return ""
        axes = [f"nl.arange({n})[{', '.join(':' if k == a else 'None' for k in range(len(shape)))}]"
                for a, n in enumerate(shape)]
        names = [loop.name for loop in self.loops if loop.symbolic]

        def comparison() -> str:
            a = self.between(0, len(shape) - 1)
            n = shape[a]
            offset = f" + {self.pick(*names)} * {self.between(-2, 2)}" if names and self.maybe(3) else ""
            forms = [f"({axes[a]} < {self.between(0, n)}{offset})", f"({axes[a]} >= {self.between(0, n - 1)}{offset})",
                     f"({axes[a]} == {self.between(0, n - 1)}{offset})"]
            forms += [f"({name} {self.pick('<', '>=', '==')} {self.between(0, 2)})" for name in names]
            if not boxes:
                b = self.between(0, len(shape) - 1)
                forms += [f"({axes[a]} * {self.between(1, 2)} + {axes[b]} <= {self.between(0, n + shape[b])}{offset})",
                          f"({axes[a]} >= {axes[b]}{offset})", f"({axes[a]} == {axes[b]})"]
                forms += [] if fold else [f"({axes[a]} != {self.between(0, n - 1)})"]
            self.note("mask.comparison")
            return self.pick(*forms)
        if not boxes and not fold and self.maybe(4):
            self.note("mask.or")
            left, right = (comparison().replace("!=", "<").replace("==", "<") for _ in range(2))
            return f", mask={left} | {right}"
        first = comparison()
        if "!=" in first or self.maybe():
            return f", mask={first}"
        return f", mask={first} & {comparison().replace('!=', '<')}"

    def rows_mask(self, rows: int, group: int = 1) -> str:
        """``, mask=...`` of the rows of a tile, by groups of so many, or nothing."""
        if not self.maybe(3):
            return ""
        names = [loop.name for loop in self.loops if loop.symbolic]
        offset = f" + {self.pick(*names)} * {group}" if names and self.maybe() else ""
        self.note("mask.rows")
        return f", mask=nl.arange({rows})[:, None] {self.pick('<', '>=')} {self.between(0, (rows - 1) // group) * group}{offset}"

    # -- statements ----------------------------------------------------------------------------------------------------
    def statement(self) -> None:
        if self.budget <= 0:
            self.emit("pass")
            return
        self.budget -= 1
        choice = self.between(0, 11)
        deep = len(self.loops) - len(self.grid) >= 3
        if choice <= 1 and not deep:
            return self.loop()
        if choice == 2 and not deep and any(loop.symbolic for loop in self.loops):
            return self.branch()
        if choice == 3 and self.kept:
            return self.update()
        self.operation()
        return None

    def operation(self) -> None:
        apart = (not self.grid and self.ranks == 1) or self.conditional or not self.maybe(3)
        for _ in range(8):
            before = len(self.outputs)
            if self.pick(*(self.rules if apart else self.meetings))(self) is not False:
                return
            assert before == len(self.outputs)
        self.fresh(self.shape(), FLOAT32)

    def body(self) -> None:
        before = len(self.lines)
        for _ in range(self.between(1, 3)):
            self.statement()
        if len(self.lines) == before:
            self.emit("pass")

    def loop(self) -> None:
        name = self.name("i")
        count = self.between(0 if self.maybe(6) else 1, 3)
        kind = self.pick("sequential_range", "sequential_range", "affine_range", "static_range", "range", "while")
        self.note(f"loop.{kind}")
        if kind == "while":
            return self.while_loop(count)
        self.emit(f"for {name} in {'' if kind == 'range' else 'nl.'}{kind}({count}):")
        parallel = kind == "affine_range" or any(loop.parallel for loop in self.loops)
        with self.block(Loop(name, count, parallel)):
            self.body()
        return None

    def while_loop(self, count: int) -> None:
        """Write a loop of the device, whose number of iterations is in a tile."""
        left, going = self.name("left"), self.name("going")
        self.emit(f"{left} = nl.full((1, 1), {count + 1}, nl.int32)")
        self.emit(f"{going} = scalar(True)")
        self.emit(f"while {going}:")
        parallel = any(loop.parallel for loop in self.loops)
        with self.block(Loop(going, count + 1, parallel, symbolic=False)):
            self.body()
            self.emit(f"{left}[...] = nl.subtract({left}, 1)")
            self.emit(f"{going} = scalar({left})")

    def branch(self) -> None:
        name = self.pick(*(loop.name for loop in self.loops if loop.symbolic))
        self.emit(f"if {name} {self.pick('<', '>', '==')} {self.between(0, 2)}:")
        self.note("if")
        self.conditional += 1
        with self.block():
            self.body()
        if self.maybe():
            self.emit("else:")
            with self.block():
                self.body()
        self.conditional -= 1

    def update(self) -> None:
        """Write, in the loops, all or a part of a tile from before them, perhaps under a mask."""
        kept = self.pick(*self.kept)
        if any(loop.parallel for loop in self.loops):
            return
        value = self.operand(kept.shape, self.dtypes, lambda t: t.facts.bound < inf)
        text = value.text
        if value.facts.unit < kept.facts.unit and not kept.dtype.is_integer:
            text = f"nl.floor({text}, dtype=nl.float32)"
        if value.facts.bound > kept.facts.bound:
            text = f"nl.minimum(nl.maximum({text}, {-kept.facts.bound}, dtype=nl.float32), {kept.facts.bound})"
        match self.between(0, 3):
            case 0:
                self.emit(f"{kept.text}[...] = nl.copy({text}{self.mask(kept.shape)})")
            case 1 if len(kept.shape) == 2 and kept.shape[1] > 1:
                to = self.between(1, kept.shape[1])
                names = [loop.name for loop in self.loops if loop.symbolic and loop.count + to <= kept.shape[1]]
                start = self.pick("0", *names)
                self.emit(f"{kept.text}[:, nl.ds({start}, {to})] = ({text})[:, {kept.shape[1] - to}:{kept.shape[1]}]")
            case 2:
                self.emit(f"{kept.text}[...] = nl.maximum({kept.text}, {text}{self.mask(kept.shape)})")
            case _:
                self.emit(f"{kept.text}[...] = {text}")
        self.note("update")

    # -- results -------------------------------------------------------------------------------------------------------
    def let(self, expression: str, shape: tuple[int, ...], dtype: DType, facts: Facts, space: str = "sbuf") -> Tile:
        """Assign an exact value to a new name or to a declared tile."""
        tile = Tile(self.name(), shape, dtype, facts, space)
        if space == "sbuf" and self.maybe(6):
            self.emit(f"{tile.text} = nl.full({shape}, 1, {kind(dtype)})")
            self.emit(f"{tile.text}[...] = {expression}")
            tile = Tile(tile.text, shape, dtype, facts.join(Facts(1, 1)), space)
        else:
            self.emit(f"{tile.text} = {expression}")
            if self.maybe():                            # what Python sees of it
                self.emit(f"assert {tile.text}.dtype == {kind(dtype)} and {tile.text}.shape == {shape}")
                self.note("dtype and shape")
        return self.keep(tile)

    def inexact(self, expression: str, shape: tuple[int, ...], dtype: DType, rtol: float, atol: float = 0.0) -> None:
        """Store a value that executors round differently."""
        name = self.name()
        self.emit(f"{name} = {expression}")
        self.store(Tile(name, shape, dtype, Facts()), *self.tolerance(dtype, rtol, atol))

    def store(self, tile: Tile, rtol: float = 0.0, atol: float = 0.0) -> None:
        """Store to a part of a new output, which the loop variables select."""
        counts = [loop for loop in self.loops if loop.symbolic]
        if self.conditional or any(loop.count == 0 for loop in counts):
            return
        lead = tuple(loop.count for loop in counts)
        out = self.output((*lead, *tile.shape), tile.dtype, rtol, atol)
        subscript = ", ".join([*(loop.name for loop in counts), "..."]) if counts else "..."
        self.emit(f"nl.store({out}[{subscript}], {tile.text})")

    # -- the whole -----------------------------------------------------------------------------------------------------
    def program(self) -> Program:
        return self.spelled(self.draft())

    def spelled(self, draft: Program) -> Program:
        """Return the program with other spellings of its calls."""
        return replace(draft, text=respelled(draft.text, self.draw, self.modules, self.hints))

    def draft(self) -> Program:
        """Return the program with the spelling of each call that its rule has."""
        self.launch(self.grids)
        for _ in range(self.between(0, 2)):
            dtype = self.pick(FLOAT32, FLOAT32, *(d for d in self.dtypes if d.bits > 8 and d.name != "tfloat32"))
            kept = Tile(self.name("kept"), self.shape(), dtype, Facts(16, 0.125) if dtype.is_float else Facts(16, 1))
            self.emit(f"{kept.text} = nl.full({kept.shape}, {self.between(0, 3)}, {kind(dtype)})")
            self.kept.append(kept)
        while self.budget > 0:
            self.statement()
        for tile in [*self.kept, *self.scopes[0][-12:]]:
            self.store(tile)
        if not self.outputs:
            self.store(self.fresh(self.shape(), FLOAT32))
        self.declared += [f"    {o.name} = nl.ndarray({o.shape}, {kind(o.dtype)}, buffer=nl.shared_hbm)" for o in self.outputs]
        head = f"def kernel({', '.join(f'{x}: mutable_tensor' if x in self.updated else x for x in self.inputs)}):"
        self.outputs += [Output(x, self.inputs[x].shape, INT32 if x == "m_int32" else FLOAT32) for x in self.updated]
        if self.maybe(8):
            self.outputs.append(self.pick(*self.outputs))       # returned twice
        tail = f"    return {', '.join(o.name for o in self.outputs)}"
        text = "\n".join([head, *self.declared, *self.lines, tail])
        return Program(text, self.inputs, self.outputs, self.used, self.grid, self.ranks)
