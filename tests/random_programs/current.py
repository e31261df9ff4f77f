# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random kernels of the current generation: loops of Python and of the device, registers, destinations.

Its operations are in ``current_rules``.
"""

from math import inf

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.scalar.dtypes import FLOAT32, INT32, DType

from .beta import BetaWriter, kind
from .spelling import CURRENT_HINTS
from .writer import DTYPES, Facts, Loop, Tile

RULES: list = []
MEETINGS: list = []


def rule(weight: int = 1, rules: list = RULES):
    def add(function):
        rules.extend([function] * weight)
        return function
    return add


class CurrentWriter(BetaWriter):
    dtypes = DTYPES
    rules, meetings = RULES, MEETINGS
    modules, hints = {"nl": nl, "nisa": nisa}, CURRENT_HINTS
    grids = ((), (), (), (), (), (2,))
    dynamic = 0                 # loops of the device that are open

    def launch(self, grids: tuple[tuple[int, ...], ...]) -> None:
        super().launch(grids)
        self.ranks = self.pick(1, 1, 1, 1, 1, 1, 2, 3)

    # -- loops ---------------------------------------------------------------------------------------------------------
    def loop(self) -> None:
        name, count = self.name("i"), self.between(1, 3)
        form = self.pick("range", "nl.affine_range", "nl.sequential_range", "nl.static_range", "fori_loop", "while_loop",
                         "dynamic_range")
        self.note(f"loop.{form.removeprefix('nl.')}")
        if form in ("fori_loop", "while_loop", "dynamic_range"):
            return self.device_loop(form, name, count)
        self.emit(f"for {name} in {form}({count}):")
        with self.block(Loop(name, count)):
            self.body()
        return None

    def device_loop(self, form: str, name: str, count: int) -> None:
        """Its count is in a register that is loaded."""
        bound, body = self.register(count), self.name("body")
        if form == "dynamic_range":
            self.emit(f"for {name} in nl.dynamic_range({bound}):")
        elif form == "fori_loop":
            self.emit(f"def {body}({name}):")
        else:
            left = self.name("left")
            self.emit(f"{left} = nl.full((1, 1), {count}, nl.int32)")
            self.emit(f"def {body}({name}):")
        self.dynamic += 1
        with self.block(Loop(name, count, symbolic=False)):
            self.body()
            if form == "while_loop":
                self.emit(f"nisa.tensor_scalar({left}, {left}, nl.subtract, 1)")
                self.emit(f"nisa.register_load({name}, {left})")
                self.emit(f"return {name}")
        self.dynamic -= 1
        if form == "fori_loop":
            self.emit(f"nl.fori_loop({self.between(0, 1)}, {bound}, {body})")
        elif form == "while_loop":
            self.emit(f"nl.while_loop({bound}, {body})")

    def register(self, value: int) -> str:
        """A register that holds a number which is loaded at run time."""
        name, tile = self.name("r"), self.name()
        self.note("register_load")
        self.emit(f"{tile} = nl.full((1, 1), {value}, nl.int32)")
        self.emit(f"{name} = nisa.register_alloc()")
        self.emit(f"nisa.register_load({name}, {tile})")
        return name

    # -- values --------------------------------------------------------------------------------------------------------
    def mask(self, *arguments: object, **keywords: object) -> str:
        return ""

    def branch(self) -> None:
        super().branch()

    def update(self) -> None:
        """Write, in the loops, a tile from before them."""
        kept = self.pick(*self.kept)
        value = self.operand(kept.shape, self.dtypes, lambda t: t.facts.bound < inf)
        text, facts = value.text, value.facts
        if facts.unit < kept.facts.unit and not kept.dtype.is_integer:
            text = f"nl.floor({text}, dtype=nl.float32)"
        if facts.bound > kept.facts.bound:
            text = f"nl.minimum(nl.maximum({text}, {-kept.facts.bound}, dtype=nl.float32), {kept.facts.bound})"
        op = self.pick("maximum", "minimum", "copy")
        self.note("update")
        if op == "copy":
            self.emit(f"nisa.tensor_copy({kept.text}, {text})")
        else:
            self.emit(f"nisa.tensor_tensor({kept.text}, {kept.text}, {text}, nl.{op})")

    def full(self, value: int, shape: tuple[int, ...], dtype: DType) -> str:
        """A tile that is about to be written, in part or again."""
        name = self.name()
        self.emit(f"{name} = nl.full({shape}, {value}, {kind(dtype)})")
        return name

    def into(self, call: str, shape: tuple[int, ...], dtype: DType, facts: Facts, *, space: str = "sbuf",
             before: int | None = None) -> Tile:
        """An instruction that writes ``DST``, a new tile."""
        tile = Tile(self.name(), shape, dtype, facts, space)
        where = ", buffer=nl.psum" if space == "psum" else ""
        if before is None:
            self.emit(f"{tile.text} = nl.ndarray({shape}, {kind(dtype)}{where})")
        else:
            self.emit(f"{tile.text} = nl.full({shape}, {before}, {kind(dtype)}{where})")
            tile = Tile(tile.text, shape, dtype, facts.join(Facts(abs(before), 1)), space)
        self.emit(call.replace("DST", tile.text))
        return self.keep(tile)

    def rounded(self, call: str, shape: tuple[int, ...], rtol: float, atol: float = 0.0) -> None:
        """An instruction that writes ``DST`` with values that executors round differently."""
        tile = Tile(self.name(), shape, FLOAT32, Facts())
        self.emit(f"{tile.text} = nl.ndarray({shape}, nl.float32)")
        self.emit(call.replace("DST", tile.text))
        self.store(tile, *self.tolerance(FLOAT32, rtol, atol))

    def store(self, tile: Tile, rtol: float = 0.0, atol: float = 0.0) -> None:
        if self.conditional or self.dynamic or any(loop.count == 0 for loop in self.loops):
            return
        lead = tuple(loop.count for loop in self.loops)
        out = self.output((*lead, *tile.shape), tile.dtype, rtol, atol)
        subscript = f"[{', '.join(loop.name for loop in self.loops)}]" if lead else ""
        self.emit(f"nisa.dma_copy({out}{subscript}, {tile.text})")

    def integer(self) -> DType:
        return self.pick(INT32, *(d for d in DTYPES if d.is_integer and d.name != "bool"))
