# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes calls of older releases of the current generation in the form of a newer one."""

import enum
import functools
from collections.abc import Callable, Mapping

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nki_mlir.language.current import isa
from nki_mlir.language.signatures.older_releases import MODULES, NEWEST, has_parameter
from nki_mlir.language.signatures.table import RELEASES, releases_with
from nki_mlir.migration.expressions import BUFFERS, MODULE
from nki_mlir.migration.names import RENAMED, Names, unresolved
from nki_mlir.migration.older_shapes import (
    EQUAL_COUNTS,
    EQUAL_RANKS,
    LEFT_RESHAPE,
    LEFT_TRANSPOSE,
    first_elements,
    shape_of,
    with_dimensions,
)
from nki_mlir.migration.parameters import unique_numbers
from nki_mlir.migration.python_trees import python_tree
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.returned_tensors import ReturnedTensors, returned_tensors
from nki_mlir.migration.terms import factor
from nki_mlir.migration.tree_transformer import TreeTransformer
from nki_mlir.migration.unbound_calls import why_absent, why_unbound

KEYWORDS = {"nisa.register_move": {"imm": "src"}, "nisa.nc_matmul": {"is_moving_zero": "is_moving_onezero",
                                                                     "is_stationary_zero": "is_stationary_onezero"},
            "nl.zeros_like": {"a": "x"}, "nl.empty_like": {"a": "x"},
            "nl.device_print": {"prefix": "print_prefix", "x": "tensor"}}
DEAD = {"nisa.nc_matmul": {"psumAccumulateFlag", "psum_accumulate_flag", "psum_accumulate_flags"},
        "nisa.nc_matmul_mx": {"psum_accumulate_flag"}, "nki.jit": {"platform_target", "mode"},
        "nisa.dma_copy": {"unique_indices"},
        "nccl.collective_permute_implicit_current_processing_rank_id": {"num_channels"}}
WITHOUT_DTYPE = {"nisa.tensor_copy", "nisa.scalar_tensor_tensor"}       # 2.27 ignores dtype=: the destination has it
POSITIONS = {"nisa.affine_select": ("dst", "pattern", "offset", "channel_multiplier", "on_true_tile",
                                    "on_false_value", "cmp_op", "name"),
             "nisa.dma_compute": ("dst", "srcs", "scales", "reduce_op", "name"),
             "nisa.nc_matmul": ("dst", "stationary", "moving", "is_stationary_onezero", "is_moving_onezero",
                                "is_transpose", "tile_position", "tile_size", "perf_mode", "name"),
             "nisa.dma_copy": ("dst", "src", "dst_rmw_op", "oob_mode", "dge_mode", "unique_indices", "name"),
             "nisa.dma_transpose": ("dst", "src", "axes", "dge_mode", "oob_mode", "name")}
RANGES = {"nl.affine_range", "nl.sequential_range", "nl.static_range"}
INTEGERS = {"int8", "int16", "int32", "uint8", "uint16", "uint32"}
DTYPE_WORDS = INTEGERS | {"float32", "float16", "bfloat16"}
REPLACED = RANGES | {"nl.par_dim", "nisa.tensor_copy_dynamic_src", "nisa.tensor_copy_dynamic_dst"}
REGIONS = {"sbuf": "sbuf", "psum": "psum", "hbm": "shared_hbm"}         # names that kernels of 2.27 do not import
ENUMS: dict[str, type[enum.Enum]] = {"dge_mode": isa.dge_mode, "engine": isa.engine, "oob_mode": isa.oob_mode,
                                     "reduce_cmd": isa.reduce_cmd}
CREATION = {"nl.ndarray": ("shape", "dtype", "buffer"), "nl.zeros": ("shape", "dtype", "buffer"),
            "nl.ones": ("shape", "dtype", "buffer"), "nl.full": ("shape", "fill_value", "dtype", "buffer"),
            "nl.shared_identity_matrix": ("n", "dtype")}


def newest(text: str, report: MigrationReport, release: str = RELEASES[-1], is_current: bool = True) -> str:
    """Return the text with calls as ``release`` documents them. Texts that import no ``nki`` do not change. With
    ``is_current``, a person wrote the text for the current generation, and calls that no release takes are reported."""
    names = Names(text)
    if names.is_beta or not names.imports_nki:
        return text
    regions = {name for _, name in unresolved(text)} & REGIONS.keys()
    numbers = unique_numbers(python_tree(text))
    return transformed(text, lambda lines: _Newest(names, report, lines, RELEASES.index(release), regions,
                                                   is_current, numbers))


class NodeLines:
    """The line of each node of a tree. The first call computes them: most texts of a person need no report."""

    def __init__(self, module: cst.Module) -> None:
        self.module = module

    @functools.cached_property
    def _by_id(self) -> dict[int, int]:
        positions = MetadataWrapper(self.module, unsafe_skip_copy=True).resolve(PositionProvider)
        return {id(node): position.start.line for node, position in positions.items()}

    def of(self, node: cst.CSTNode) -> int:
        return self._by_id.get(id(node), 1)


def transformed(text: str, transformer: Callable[[NodeLines], TreeTransformer]) -> str:
    """Return a text as ``transformer`` changes it, which gets the lines of the nodes."""
    module = cst.parse_module(text)
    return module.visit(transformer(NodeLines(module))).code


def _older(name: str, values: list[cst.BaseExpression]) -> bool:
    """Return whether positional arguments follow the older order."""
    def at(k: int) -> cst.BaseExpression | None:
        return values[k] if k < len(values) else None
    third, fourth, seventh = at(2), at(3), at(6)
    match name:
        case "nisa.affine_select":
            return isinstance(third, (cst.Integer, cst.UnaryOperation)) and isinstance(
                fourth, (cst.Integer, cst.UnaryOperation))
        case "nisa.dma_compute":
            return isinstance(third, (cst.List, cst.Tuple)) or (third is not None and MODULE.code_for_node(
                third) == "None")
        case "nisa.nc_matmul":
            return isinstance(seventh, cst.Tuple)
        case "nisa.dma_copy":
            return third is not None and not isinstance(third, cst.Integer)
        case "nisa.dma_transpose":
            return fourth is not None and not isinstance(fourth, cst.Integer)
    return False


class _Newest(TreeTransformer):
    def __init__(self, names: Names, report: MigrationReport, lines: NodeLines, release: int,
                 regions: set[str], is_current: bool, numbers: Mapping[str, str]) -> None:
        super().__init__()
        self.names, self.report, self.lines, self.release, self.regions = names, report, lines, release, regions
        self.is_current = is_current
        self.nl, self.nisa = names.alias("nl"), names.alias("nisa")
        self.dtypes: dict[str, str] = {}            # name of a tensor -> its dtype; "" where assignments differ
        self.shapes: dict[str, tuple[str, ...]] = {}        # name of a tensor of the function -> its sizes, or ()
        self.numbers = numbers                      # constants of the file, which nothing else binds -> their texts
        self.in_psum: set[str] = set()              # names of tensors that a call creates in PSUM
        self.registers: set[str] = set()            # names of registers of an engine
        self.kernels = 0                            # number of kernels around a node
        self.launched: set[str] = set()             # kernels of the text so far

    def _changed(self, node: cst.CSTNode, text: str) -> None:
        self.report.changed(self.lines.of(node), text)

    def _add_manual(self, node: cst.CSTNode, why: str) -> None:
        if why and self.is_current:
            self.report.add_manual(self.lines.of(node), why)

    def _add_if_absent(self, node: cst.BaseExpression) -> None:
        meaning = self.names.meaning(node)
        if meaning not in REPLACED and RELEASES[self.release] == NEWEST:        # else older_texts reports it
            self._add_manual(node, why_absent(meaning))

    def _has(self, meaning: str, parameter: str) -> bool:
        """Return whether a function has a parameter in the release that the text is for."""
        package, _, name = meaning.partition(".")
        return has_parameter(f"{MODULES[package]}.{name}", parameter, RELEASES[self.release])

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Rewrite names that a later release replaced."""
        package, _, name = self.names.meaning(original_node).partition(".")
        new = RENAMED.get(name) if package == "nl" else None
        if RELEASES[self.release] != NEWEST:
            return updated_node
        if new is None:
            self._add_if_absent(original_node)
            return updated_node
        self._changed(original_node, f"the name becomes {new}")
        return cst.parse_expression(f"{self.nl}.{new}")

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Write arguments by the names and in the order of the newest signature."""
        meaning = self.names.meaning(original_node.func)
        if meaning in RANGES:
            self._changed(original_node, f"{meaning} becomes range")
            return updated_node.with_changes(func=cst.Name("range"))
        if meaning == "nl.par_dim" and len(updated_node.args) == 1:
            self._changed(original_node, "nl.par_dim is removed: dimension 0 is the partition")
            return updated_node.args[0].value
        if (method := self._method(original_node, updated_node, meaning)) is not None:
            return method
        if not meaning.startswith(("nl.", "nisa.", "nki.", "nccl.")):
            return updated_node
        if isinstance(original_node.func, cst.Name):
            self._add_if_absent(original_node.func)
        match meaning, updated_node.args:
            case "nl.shared_constant", [cst.Arg(value=constant), cst.Arg(value=dtype)]:
                self._changed(original_node, "the parameter dtype of nl.shared_constant becomes astype")
                text = f"{factor(MODULE.code_for_node(constant))}.astype({MODULE.code_for_node(dtype)})"
                return updated_node.with_changes(args=[cst.Arg(cst.parse_expression(text))])
            case "nl.rsqrt", [first, *later] if self._reads_psum(first.value) and RELEASES[self.release] == NEWEST:
                self._changed(original_node, "nl.rsqrt reads no PSUM: its operand is copied to SBUF")
                copied = cst.parse_expression(f"{self.nl}.copy({MODULE.code_for_node(first.value)})")
                return updated_node.with_changes(args=[first.with_changes(value=copied), *later])
            case "nl.dynamic_range", _ if RELEASES[self.release] == NEWEST:
                self._changed(original_node, f"nl.dynamic_range stays, which release {NEWEST} deprecates: write a "
                              "function and nl.fori_loop")
        arguments = self._transposed(meaning, original_node, list(updated_node.args))
        if meaning in ("nisa.dma_copy", "nl.store") and not self._has("nisa.dma_copy", "dst_rmw_op"):
            arguments = self._on_chip(meaning, original_node, arguments)
        rewrite = self._argument(meaning, original_node)
        arguments = [a for k, argument in enumerate(arguments) if (a := rewrite(k, argument)) is not None]
        if meaning == "nisa.memset":
            arguments = self._integral(original_node, arguments)
        function = updated_node.func
        if meaning in ("nisa.tensor_copy_dynamic_src", "nisa.tensor_copy_dynamic_dst") and RELEASES[
                self.release] not in releases_with(f"nki.isa.{meaning[5:]}"):
            self._changed(original_node, "a copy of a view with a run-time offset becomes nisa.tensor_copy")
            function = cst.parse_expression(f"{self.nisa}.tensor_copy")
        by_name = {a.keyword.value: a for a in arguments if a.keyword is not None}
        if meaning == "nisa.dma_copy" and "dst_rmw_op" in by_name and not self._has(meaning, "dst_rmw_op"):
            return self._accumulating(original_node, arguments, by_name)
        self._add_manual(original_node, why_unbound(meaning, arguments, self.names))
        if function is updated_node.func and len(arguments) == len(updated_node.args) and all(
                a is b for a, b in zip(arguments, updated_node.args)):
            return updated_node
        if arguments:
            arguments[-1] = arguments[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(func=function, args=arguments)

    def _on_chip(self, meaning: str, node: cst.Call, arguments: list[cst.Arg]) -> list[cst.Arg]:
        """Copy the source of a transfer to SBUF if it is a tensor in PSUM, which no DMA reads since release 2.29."""
        source = next((a for k, a in enumerate(arguments) if (a.keyword.value if a.keyword is not None else (
            "dst", "src")[min(k, 1)]) in ("src", "value")), None)
        if source is None or not self._reads_psum(source.value):
            return arguments
        self._changed(node, f"{meaning} reads no PSUM: its source is copied to SBUF")
        copied = cst.parse_expression(f"{self.nl}.copy({MODULE.code_for_node(source.value)})")
        return [a.with_changes(value=copied) if a is source else a for a in arguments]

    def _method(self, node: cst.Call, call: cst.Call, meaning: str) -> cst.BaseExpression | None:
        """Return the call of a method of a tensor or of a memory in the newest form; None for other calls."""
        match call:
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="reshape")), args=[cst.Arg(
                    keyword=cst.Name(value="new_shape"), value=shape)]) if not meaning:
                self._changed(node, "the parameter new_shape of reshape becomes positional")
                positional = call.with_changes(args=[cst.Arg(shape)])
                return self._reshaped(node, positional) or positional
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="reshape"))) if not meaning:
                return self._reshaped(node, call)
            case cst.Call(func=cst.Attribute(value=cst.Name(value=region), attr=cst.Name(value="view"))) if (
                    region in self.regions):
                return self._tensor_of(region, node, call)
            case cst.Call(func=cst.Attribute(attr=cst.Name(value="view")), args=[cst.Arg(value=cst.SimpleString(
                    value=quoted))]) if self.kernels and (word := quoted.strip("'\"")) in DTYPE_WORDS:
                self._changed(node, f"the string for dtype becomes {self.nl}.{word}")
                return call.with_changes(args=[cst.Arg(cst.parse_expression(f"{self.nl}.{word}"))])
        return None

    def _reshaped(self, node: cst.Call, call: cst.Call) -> cst.BaseExpression | None:
        """Return the view of the first elements that a reshape to fewer elements is; None for other calls."""
        match call:
            case cst.Call(func=cst.Attribute(value=cst.Name(value=tensor), attr=cst.Name(value="reshape")),
                          args=[cst.Arg(value=shape)]) if self.release >= EQUAL_COUNTS:
                view = first_elements(tensor, self.shapes.get(tensor, ()), shape_of(shape), self.numbers)
                if view:
                    self._changed(node, "a reshape to fewer elements becomes a view of the first elements of each row")
                    return cst.parse_expression(view)
                self._add_manual(node, LEFT_RESHAPE if view is not None else "")
        return None

    def _transposed(self, meaning: str, node: cst.Call, arguments: list[cst.Arg]) -> list[cst.Arg]:
        """Return arguments in the newest form; the destination of a transpose by a DMA gets the dimensions of one
        element that its source has."""
        arguments = self._named(meaning, node, arguments)
        if meaning != "nisa.dma_transpose" or self.release < EQUAL_RANKS:
            return arguments
        by_name = {a.keyword.value if a.keyword is not None else ("dst", "src", "axes")[min(k, 2)]: a
                   for k, a in enumerate(arguments)}
        dst, rank = by_name.get("dst"), len(shape_of(by_name["axes"].value if "axes" in by_name else None))
        if dst is None or not isinstance(dst.value, cst.Name):
            return arguments
        name = dst.value.value
        sizes = self.shapes.get(name, ())
        if not sizes or len(sizes) >= rank:
            return arguments
        if text := with_dimensions(name, len(sizes), rank):
            self._changed(node, "the destination gets the dimensions of one element that the transposed source has")
            return [a.with_changes(value=cst.parse_expression(text)) if a is dst else a for a in arguments]
        self._add_manual(node, LEFT_TRANSPOSE)
        return arguments

    def _tensor_of(self, region: str, node: cst.Call, call: cst.Call) -> cst.BaseExpression:
        """Return the creation of a tensor for ``sbuf.view(dtype, shape)`` of release 2.27."""
        values = {a.keyword.value if a.keyword is not None else ("dtype", "shape")[min(k, 1)]: a.value
                  for k, a in enumerate(call.args)}
        if values.keys() != {"dtype", "shape"}:
            self._add_manual(node, f"{region}.view without a dtype and a shape: create a tensor with {self.nl}.ndarray")
            return call
        memory = f"{self.nl}.{REGIONS[region]}"
        self._changed(node, f"{region}.view becomes a tensor in {memory}")
        shape, dtype = (MODULE.code_for_node(values[n]) for n in ("shape", "dtype"))
        word = dtype.strip("'\"")
        dtype = f"{self.nl}.{word}" if dtype != word in DTYPE_WORDS else dtype
        return cst.parse_expression(f"{self.nl}.ndarray({shape}, dtype={dtype}, buffer={memory})")

    def _named(self, meaning: str, node: cst.Call, arguments: list[cst.Arg]) -> list[cst.Arg]:
        positional = [a.value for a in arguments if a.keyword is None]
        if meaning not in POSITIONS or not _older(meaning, positional):
            return arguments
        names = POSITIONS[meaning]
        if meaning == "nisa.dma_copy" and "oob_mode" in MODULE.code_for_node(positional[2]):
            names = ("dst", "src", "oob_mode", "dge_mode", "engine", "name")
        if len(positional) > len(names):            # no release takes as many
            return arguments
        self._changed(node, f"{meaning} gets its arguments by name, because the order of its parameters changed")
        return [a if a.keyword is not None else keyword_argument(names[k], a.value) for k, a in enumerate(arguments)]

    def _accumulating(self, node: cst.Call, arguments: list[cst.Arg], by_name: dict[str, cst.Arg]
                      ) -> cst.BaseExpression:
        values = [MODULE.code_for_node(a.value) for a in arguments if a.keyword is None]
        texts = {n: MODULE.code_for_node(a.value) for n, a in by_name.items()}
        dst, src = texts.get("dst") or values[0], texts.get("src") or values[-1]
        operator = texts["dst_rmw_op"]
        self._changed(node, "a DMA that accumulates becomes nisa.dma_compute")
        mode = f", oob_mode={texts['oob_mode']}" if "oob_mode" in texts else ""
        return cst.parse_expression(f"{self.nisa}.dma_compute(dst={dst}, srcs=[{src}, {dst}], "
                                    f"reduce_op={operator}{mode})")

    def _integral(self, node: cst.Call, arguments: list[cst.Arg]) -> list[cst.Arg]:
        """Write the value of a tile of integers as an integer, which newer releases require."""
        by_name = {a.keyword.value if a.keyword is not None else ("dst", "value")[min(k, 1)]: a
                   for k, a in enumerate(arguments)}
        dst, value = by_name.get("dst"), by_name.get("value")
        if dst is None or value is None:
            return arguments
        name = dst.value.value if isinstance(dst.value, cst.Subscript) else dst.value
        number = value.value.evaluated_value if isinstance(value.value, cst.Float) else 0.5
        if not (isinstance(name, cst.Name) and self.dtypes.get(name.value) in INTEGERS and number == int(number)):
            return arguments
        self._changed(node, "the value for a tile of integers becomes an integer")
        return [a.with_changes(value=cst.Integer(str(int(number)))) if a is value else a for a in arguments]

    def visit_Assign(self, node: cst.Assign) -> None:
        """Note the dtypes of tensors, and registers, by the names to which they are assigned."""
        target, value = node.targets[0].target, node.value
        if isinstance(target, cst.Name):
            dtype, shape = "", tuple[str, ...]()
            if isinstance(value, cst.Call) and (names := CREATION.get(self.names.meaning(value.func))):
                arguments = {a.keyword.value if a.keyword is not None else names[min(k, len(names) - 1)]: a.value
                             for k, a in enumerate(value.args)}
                if self.names.meaning(arguments.get("buffer", target)) == "nl.psum":
                    self.in_psum.add(target.value)
                shape = shape_of(arguments.get("shape"))
                if "dtype" in arguments:
                    dtype = MODULE.code_for_node(arguments["dtype"]).strip("'\"").rpartition(".")[2]
            if isinstance(value, cst.Call) and self.names.meaning(value.func) == "nisa.register_alloc":
                self.registers.add(target.value)
            self.shapes[target.value] = shape if self.shapes.get(target.value, shape) == shape else ()
            self.dtypes[target.value] = dtype if self.dtypes.get(target.value, dtype) == dtype else ""

    def visit_While(self, node: cst.While) -> None:
        if RELEASES[self.release] == NEWEST and isinstance(node.test, cst.Name) and node.test.value in self.registers:
            self._changed(node, f"the loop while {node.test.value} stays, which release {NEWEST} deprecates: write a "
                                "function and nl.while_loop")

    def _reads_psum(self, value: cst.BaseExpression) -> bool:
        """Return whether an operand is a tensor in PSUM or a part of one."""
        tensor = value.value if isinstance(value, cst.Subscript) else value
        return isinstance(tensor, cst.Name) and tensor.value in self.in_psum

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        """Count the kernels around a node, and forget the tensors of the function before."""
        self.shapes = {}
        self.kernels += self._is_kernel(node)
        if self._is_kernel(node):
            self.launched.add(node.name.value)

    def visit_Subscript(self, node: cst.Subscript) -> None:
        """Report a launch of a kernel of the file on a grid of several axes."""
        if isinstance(node.value, cst.Name) and node.value.value in self.launched and not self.kernels and (
                len(node.slice) > 1):
            self._add_manual(node, "a launch grid of several axes: a launch of the current generation has 1 or 2 cores")

    def _is_kernel(self, node: cst.FunctionDef) -> bool:
        return any("jit" in self.names.meaning(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator)
                   for d in node.decorators)

    def leave_ComparisonTarget(self, original_node: cst.ComparisonTarget, updated_node: cst.ComparisonTarget
                               ) -> cst.ComparisonTarget:
        """Keep ``is`` only for None: kernels have no other use of it."""
        operator, with_none = updated_node.operator, MODULE.code_for_node(updated_node.comparator) == "None"
        if not self.kernels or with_none or not isinstance(operator, cst.Is | cst.IsNot):
            return updated_node
        new = cst.Equal() if isinstance(operator, cst.Is) else cst.NotEqual()
        self._changed(original_node.comparator, f"'is' becomes {MODULE.code_for_node(new).strip()}, because kernels "
                                                "have it for None alone")
        return updated_node.with_changes(operator=new)

    def _argument(self, meaning: str, node: cst.Call) -> Callable[[int, cst.Arg], "cst.Arg | None"]:
        def rewrite(position: int, argument: cst.Arg) -> cst.Arg | None:
            parameters = CREATION.get(meaning, ())
            name = argument.keyword.value if argument.keyword is not None else parameters[position] if position < len(
                parameters) else ""
            text = MODULE.code_for_node(argument.value)
            word = text.strip("'\"") if text[:1] in "'\"" else ""
            new = KEYWORDS.get(meaning, {}).get(name)
            if new is not None and not self._has(meaning, name):
                self._changed(node, f"the parameter {name} of {meaning} becomes {new}")
                return argument.with_changes(keyword=cst.Name(new))
            is_dead = name in DEAD.get(meaning, ()) or (meaning in WITHOUT_DTYPE and name == "dtype" and any(
                a.keyword is not None and a.keyword.value == "dst" for a in node.args))
            if is_dead and not self._has(meaning, name):
                self._changed(node, f"{meaning} loses its parameter {name}, which the release does not have")
                return None
            if meaning == "nisa.dma_copy" and name == "dst_rmw_op" and text == "None" and not self._has(meaning, name):
                return None
            if argument.keyword is not None and text == "None" and (
                    (name == "buffer" and parameters) or (name == "mask" and not self._has(meaning, name))):
                self._changed(node, f"{meaning} loses {name}=None, which the release does not have")
                return None
            if name == "buffer" and text in self.regions:
                self._changed(node, f"{text} becomes {self.nl}.{REGIONS[text]}")
                return argument.with_changes(value=cst.parse_expression(f"{self.nl}.{REGIONS[text]}"))
            if meaning == "nisa.sendrecv" and name == "use_gpsimd_dma" and self._has(meaning, "dma_engine"):
                self._changed(node, "the engine of nisa.sendrecv becomes a member of an enumeration")
                if text in ("True", "False"):
                    chosen = "gpsimd_dma" if text == "True" else "dma"
                    return keyword_argument("dma_engine", cst.parse_expression(f"{self.nisa}.dma_engine.{chosen}"))
                return keyword_argument("dma_engine", cst.parse_expression(
                    f"{self.nisa}.dma_engine.gpsimd_dma if {text} else {self.nisa}.dma_engine.dma"))
            replaced = ""
            if (name == "buffer" and f"nl.{word}" in BUFFERS) or (name == "dtype" and word in DTYPE_WORDS):
                replaced = f"{self.nl}.{word}"
            elif name == "perf_mode" and word:
                replaced = f"{self.nisa}.matmul_perf_mode.{word}"
            elif name in ENUMS and isinstance(argument.value, cst.Integer):
                replaced = next((f"{self.nisa}.{name}.{member.name}" for member in ENUMS[name]
                                 if member.value == argument.value.evaluated_value), "")
            if replaced:
                self._changed(node, f"the {'string' if word else 'number'} for {name} becomes {replaced}")
                return argument.with_changes(value=cst.parse_expression(replaced))
            return argument
        return rewrite

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        """Write decorators without arguments, signatures without a separator, and results that all cores see."""
        if not self._is_kernel(original_node):
            return updated_node
        self.kernels -= 1
        decorators = [d.with_changes(decorator=d.decorator.func) if isinstance(d.decorator, cst.Call)
                      and not d.decorator.args else d for d in updated_node.decorators]
        parameters = updated_node.params
        if parameters.kwonly_params and isinstance(parameters.star_arg, cst.ParamStar):
            self._changed(original_node, "keyword-only parameters become positional, because a kernel has no others")
            parameters = parameters.with_changes(params=_positional(parameters), kwonly_params=(),
                                                 star_arg=cst.MaybeSentinel.DEFAULT)
        function = updated_node.with_changes(decorators=decorators, params=parameters)
        returned = returned_tensors(original_node)
        changed = function.visit(ReturnedTensors(self.names, returned, self.nl)) if returned else function
        assert isinstance(changed, cst.FunctionDef)
        if not changed.deep_equals(function):
            self._changed(original_node, "the results of the kernel move to nl.shared_hbm")
        return changed


def _positional(parameters: cst.Parameters) -> list[cst.Param]:
    """Return all parameters. A parameter without a default that follows one with a default gets the default None."""
    positional, has_default = list(parameters.params), any(p.default is not None for p in parameters.params)
    for parameter in sorted(parameters.kwonly_params, key=lambda p: p.default is not None):
        if parameter.default is None and has_default:
            plain = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
            parameter = parameter.with_changes(default=cst.Name("None"), equal=plain)
        positional.append(parameter)
    last = positional[-1]
    if not (isinstance(last.comma, cst.Comma) and isinstance(last.comma.whitespace_after, cst.ParenthesizedWhitespace)):
        positional[-1] = last.with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return positional


def keyword_argument(name: str, value: cst.BaseExpression) -> cst.Arg:
    return cst.Arg(value, keyword=cst.Name(name),
                   equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
