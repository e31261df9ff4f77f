# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites lines for the beta generation: results of functions are assigned, patterns are index vectors.

    nisa.activation(dst=rows, op=nl.exp, data=t0)       rows[...] = nisa.activation(op=nl.exp, data=t0, dtype=...)
    nisa.dma_copy(dst=rows, src=x[0:64, :])             rows[...] = nl.load(x[0:64, :])
    nisa.nc_matmul(dst=t1, ..., accumulate=True)        t1[...] += nisa.nc_matmul(...)
"""

import ast
import re
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from math import prod

from nki_mlir.language.beta import isa, language
from nki_mlir.language.entries import REGULAR
from nki_mlir.machine import Machine
from nki_mlir.printing.beta_operands import BetaOperand, Tensors, index_vector, is_tile, operand
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.tile_text import dtype_text, shape_text
from nki_mlir.scalar.dtypes import DType

IMPORTS = "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n"
ELEMENTWISE = ("data", "data1", "data2", "src", "on_true_tile", "on_true", "on_false", "predicate", "data0")
UNPAIRED = ("tensor_reduce", "nc_matmul", "nc_transpose", "dma_transpose", "max8", "nc_find_index8", "local_gather",
            "bn_stats", "bn_aggr", "nc_match_replace8")         # operands differ in shape
# functions whose result has the dtype of the data if no other is named; transposes take no other
OF_DTYPE_OF_DATA = ("nc_transpose", "dma_transpose", "activation", "activation_reduce", "tensor_copy", "tensor_reduce",
                    "tensor_scalar")
Keywords = dict[str, ast.expr]


def imports_of(text: str) -> str:
    """Return the imports that a kernel's text needs."""
    used_names = [name for name in ("mutable_tensor", "scalar") if re.search(rf": {name}\b|= {name}\(", text)]
    return IMPORTS + (f"from neuronxcc.nki.typing import {', '.join(used_names)}\n" if used_names else "")


def _missing(description: str) -> Unprintable:
    return Unprintable(what=f"{description}, which the beta generation does not have,", fix="print for the current "
                                                                                            "generation")


def beta_line(line: str, tensors: Tensors) -> str:
    """Return a line of the current generation as one of the beta generation; raise ``Unprintable`` if it has no such
    form."""
    shown = _line(line, tensors)
    for name in re.findall(r"\bnl\.(\w+)", shown):
        if not hasattr(language, name):
            raise _missing(f"nki.language.{name}")
    return shown


def _line(line: str, tensors: Tensors) -> str:
    try:
        statement = ast.parse(line + " pass" if line.endswith(":") else line).body[0]
    except (SyntaxError, IndexError):                   # ``else:``, ``return``, comments
        return line
    match statement:
        case ast.For(target=target, iter=ast.Call(func=ast.Name(id="range"), args=bounds)):
            return f"for {ast.unparse(target)} in nl.sequential_range({', '.join(map(ast.unparse, bounds))}):"
        case ast.For() | ast.FunctionDef():
            raise _missing("a loop that counts to a number of the run time")
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
            return f"{name} = {_value(call, tensors)}"
        case ast.Expr(value=ast.Call() as call):
            return _statement(call, tensors)
    return line


def defined_tile(line: str, tensors: Tensors) -> tuple[str, tuple[int, ...]] | None:
    """Return the name of a tile that a line assigns completely and that the line's function can define, with the shape
    of the function's result."""
    assigned = re.fullmatch(r"(\w+)(?:\.reshape\((\([\d, ]+\))\))?\[\.\.\.\] = (.*)", line)
    if assigned is None or (name := assigned[1]) not in tensors:
        return None
    region, value = tensors[name].region, assigned[3]
    shape = ast.literal_eval(assigned[2]) if assigned[2] else tensors[name].shape
    in_psum = value.startswith("nisa.nc_matmul(") or (
        value.startswith("nisa.nc_transpose(") and "engine=nisa.engine.tensor" in value)
    return (name, shape) if region == ("nl.psum" if in_psum else "nl.sbuf") else None


def psum_fill(line: str, tensors: Tensors) -> tuple[str, str] | None:
    """Return the name of a tile in PSUM that a line fills completely, and the line of the function that allocates and
    fills it."""
    filled = re.fullmatch(r"(\w+)\[\.\.\.\] = nisa\.memset\((\([\d, ]+\)), ([^,()]+), (nl\.\w+)\)", line)
    if filled is None or filled[1] not in tensors or tensors[filled[1]].region != "nl.psum":
        return None
    name, shape, value, dtype = filled.groups()
    function, number = ("zeros", "") if float(value) == 0 and value[0] != "-" else ("full", f", {value}")
    return name, f"{name} = nl.{function}({shape}{number}, dtype={dtype}, buffer=nl.psum)"


def _function(call: ast.Call) -> tuple[str, str]:
    """Return the module and the name of the called function, such as ``("nisa", "activation")``."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return module, name
    return "", ""


def _value(call: ast.Call, tensors: Tensors) -> str:
    module, name = _function(call)
    if (module, name) == ("nisa", "register_alloc"):
        if call.args and ast.unparse(call.args[0]) == "True":
            return "scalar(True)"
        if not call.args or isinstance(call.args[0], ast.Constant):
            raise _missing("a register")
        return f"scalar({_text(call.args[0], tensors)})"
    if (module, name) in (("nl", "ndarray"), ("nl", "program_id"), ("nl", "shared_constant"), ("nl", "rand")):
        return ast.unparse(call)
    if module != "nl" or not hasattr(language, name):
        raise _missing(f"nki.{'isa' if module == 'nisa' else 'language'}.{name}")
    if name == "broadcast_to":
        row, shape = operand(call.args[0], tensors), ast.unparse(call.args[1])
        row = row.shaped((row.shape[0], *ast.literal_eval(shape)[1:])) or row       # the array of tiles has more axes
        return f"nl.copy({row}.broadcast_to({shape}))"
    arguments = [_text(a, tensors) for a in call.args]
    return f"nl.{name}({', '.join([*arguments, *(f'{k.arg}={ast.unparse(k.value)}' for k in call.keywords)])})"


def _statement(call: ast.Call, tensors: Tensors) -> str:
    module, name = _function(call)
    if module == "nl" and name in ("device_print", "random_seed"):
        return f"nl.{name}({', '.join(_text(a, tensors) for a in call.args)})"
    if (module, name) == ("nisa", "register_load"):
        return f"{ast.unparse(call.args[0])} = scalar({_text(call.args[1], tensors)})"
    arguments: Keywords = {k.arg: k.value for k in call.keywords if k.arg}
    if module != "nisa" or "dst" not in arguments:
        raise _missing(f"nki.{'isa' if module == 'nisa' else 'language'}.{name}")
    target = operand(arguments.pop("dst"), tensors)
    match name:
        case "dma_copy":
            return _transfer(target, arguments, tensors)
        case "dma_compute":
            return _accumulating_transfer(target, arguments, tensors)
        case "memset":
            engine = f", engine={ast.unparse(arguments['engine'])}" if "engine" in arguments else ""
            return _assigned(target, f"nisa.memset({shape_text(target.shape)}, {ast.unparse(arguments['value'])}, "
                                     f"{dtype_text(target.dtype)}{engine})")
        case "iota":
            return _assigned(target, f"nisa.iota({_counted(target, arguments)}, dtype={dtype_text(target.dtype)})")
        case "affine_select":
            comparison = "==" if ast.unparse(arguments["cmp_op"]) == "nl.equal" else ">="
            source, value = _text(arguments["on_true_tile"], tensors), ast.unparse(arguments["on_false_value"])
            return _assigned(target, f"nisa.affine_select(pred={_counted(target, arguments)} {comparison} 0, "
                                     f"on_true_tile={source}, on_false_value={value}, "
                                     f"dtype={dtype_text(target.dtype)})")
        case "nc_n_gather":
            data, indices = (operand(arguments[p], tensors) for p in ("data", "indices"))
            return _assigned(_fitted(target, indices.shape), f"nl.gather_flattened({data}, {indices})")
    return _instruction(name, target, arguments, tensors)


def _instruction(name: str, target: BetaOperand, keywords: Keywords, tensors: Tensors) -> str:
    """Return the call of a function that both generations have."""
    function = getattr(isa, name, None)
    if function is None:
        raise _missing(f"nki.isa.{name}")
    parameters: Mapping[str, Parameter] = signature(function).parameters
    accumulates = ast.unparse(keywords.pop("accumulate")) if "accumulate" in keywords else "False"
    for parameter, value in keywords.items():
        if parameter not in parameters and parameter != "perf_mode":            # documents do not list this one
            raise _missing(f"{parameter}={ast.unparse(value)} of nki.isa.{name}")
    target, reshaped = _in_shape_of_beta(name, target, keywords, tensors)
    shown = {p: _text(v, tensors) for p, v in keywords.items()} | reshaped | _columns(name, keywords, tensors)
    if name == "tensor_scalar_reduce" and shown.get("operand0") == "None":      # an operator of one operand
        shown["operand0"] = "0.0"
    if name == "tensor_scalar" and shown.get("operand0") == "None":
        if "op1" in shown or not hasattr(language, shown["op0"].removeprefix("nl.")):
            raise _missing(f"op0={shown['op0']} of nki.isa.{name}")
        return _assigned(target, f"{shown['op0']}({shown['data']}, dtype={dtype_text(target.dtype)})")
    if name == "nc_transpose" and "engine" not in keywords:
        shown["engine"] = f"nisa.engine.{'tensor' if target.in_psum else 'vector'}"
    arguments = [f"{p}={v}" for p, v in shown.items()]
    if "dst" in parameters:
        return f"nisa.{name}({', '.join([f'dst={target}', *arguments])})"
    if "dtype" in parameters and not _is_default_dtype(name, target.dtype, keywords, tensors):
        arguments.append(f"dtype={dtype_text(target.dtype)}")
    return _assigned(target, f"nisa.{name}({', '.join(arguments)})", accumulates == "True")


def _is_default_dtype(name: str, dtype: DType, keywords: Keywords, tensors: Tensors) -> bool:
    """Return whether the result of a function has a dtype if the call names none."""
    if name in OF_DTYPE_OF_DATA:
        moved = keywords.get("data", keywords.get("src"))
        return moved is not None and operand(moved, tensors).dtype is dtype
    entry = REGULAR.get(name)
    if entry is not None and entry.dtype is not None:
        return entry.dtype is dtype
    parameters = ("data1", "data2") if name == "tensor_tensor" else () if entry is None else entry.tiles
    tiles = [operand(keywords[p], tensors) for p in parameters if p in keywords and is_tile(keywords[p], tensors)]
    return dtype.is_float and bool(tiles) and all(tile.dtype is dtype for tile in tiles)


def _in_shape_of_beta(name: str, target: BetaOperand, keywords: Keywords, tensors: Tensors
                      ) -> tuple[BetaOperand, dict[str, str]]:
    """Return the destination in the shape that the function of beta returns, and the texts of operands that beta takes
    in another shape than the current generation."""
    match name:
        case "tensor_reduce":
            data, axes = operand(keywords["data"], tensors), ast.literal_eval(keywords["axis"])
            axes = axes if isinstance(axes, list) else [axes]
            if all(n == 1 or k in axes for k, n in enumerate(data.shape) if k) and len(data.shape) > 2:
                row = data.shaped((data.shape[0], prod(data.shape[1:])))
                if row is not None and not re.search(r"nl\.arange\(|\.reshape\(", str(row)):
                    return _fitted(target, (data.shape[0], 1)), {"data": str(row), "axis": "1"}
            kept_shape = tuple(n for k, n in enumerate(data.shape) if k not in axes)
            return _fitted(target, kept_shape if len(kept_shape) > 1 else (*kept_shape, 1)), {}
        case "tensor_partition_reduce":
            return _fitted(target, (1, *operand(keywords["data"], tensors).shape[1:])), {}
        case "nc_matmul":
            stationary, moving = operand(keywords["stationary"], tensors), operand(keywords["moving"], tensors)
            if "perf_mode" in keywords:
                target = _fitted(target, (stationary.shape[2], *moving.shape[2:]))
                return target, {"stationary": str(stationary), "moving": str(moving), "perf_mode": '"double_row_gen3"'}
            stationary = _matrix(stationary)
            moving = moving.shaped((moving.shape[0], prod(moving.shape[1:]))) or moving
            return (_fitted(target, (stationary.shape[1], *moving.shape[1:])),
                    {"stationary": str(stationary), "moving": str(moving)})
        case "nc_transpose":
            source = operand(keywords["data"], tensors)
            return target, {"data": str(source.shaped((source.shape[0], prod(source.shape[1:]))) or source)}
        case "dma_transpose":
            source = operand(keywords["src"], tensors)
            rank = len(ast.literal_eval(keywords["axes"])) if "axes" in keywords else 2
            of_tiles = rank == 2 < len(source.shape)            # a tile in an array of tiles
            return target, {"src": str(_matrix(source))} if of_tiles else {}
        case "local_gather":
            source, index = operand(keywords["src_buffer"], tensors), operand(keywords["index"], tensors)
            elements = ast.literal_eval(keywords["num_elem_per_idx"]) if "num_elem_per_idx" in keywords else 1
            return _fitted(target, (source.shape[0], *index.shape[1:], Machine.gpsimd_group, elements)), {}
    if name in UNPAIRED:
        return target, {}
    elementwise = (*ELEMENTWISE, "operand1") if name == "scalar_tensor_tensor" else ELEMENTWISE
    pairs = {p: operand(v, tensors) for p, v in keywords.items() if p in elementwise and is_tile(v, tensors)}
    target, *other_operands = _paired([target, *pairs.values()])
    return target, {p: str(o) for p, o in zip(pairs, other_operands)}


def _columns(name: str, keywords: Keywords, tensors: Tensors) -> dict[str, str]:
    """Return the texts of operands with one value a partition, which have two axes, whatever the data have."""
    parameters = ("operand0", "bias", "scale", *(() if name == "scalar_tensor_tensor" else ("operand1",)))
    tiles = {p: operand(keywords[p], tensors) for p in parameters if p in keywords and is_tile(keywords[p], tensors)}
    return {p: str(_fitted(tile, (tile.shape[0], 1))) for p, tile in tiles.items() if prod(tile.shape[1:]) == 1}


def _matrix(tile: BetaOperand) -> BetaOperand:
    """Return a tile with one free axis."""
    return _fitted(tile, (tile.shape[0], prod(tile.shape[1:])))


def _fitted(tile: BetaOperand, shape: tuple[int, ...]) -> BetaOperand:
    fitted = tile.shaped(shape)
    if fitted is None:
        raise Unprintable(what=f"{tile} with the shape {list(shape)} in the beta generation",
                          fix="print for the current generation")
    return fitted


def _paired(operands: Sequence[BetaOperand]) -> list[BetaOperand]:
    """Return the operands of an elementwise function in one shape: the one with the fewest index vectors, then the
    fewest reshapes."""
    shapes = dict.fromkeys([*(o.shape for o in operands), *(o.squeezed for o in operands)])
    in_shapes = [[o.shaped(shape) for o in operands] for shape in shapes]
    fitting = [[o for o in fitted if o is not None] for fitted in in_shapes if None not in fitted]
    if not fitting:
        return [_fitted(o, operands[0].shape) for o in operands]

    def forms(fitted: Sequence[BetaOperand]) -> list[int]:
        return [sum(str(o).count(form) for o in fitted) for form in ("nl.arange(", ".reshape(")]
    return min(fitting, key=forms)


def _assigned(target: BetaOperand, value: str, adds: bool = False) -> str:
    return f"{target.assigned} {'+=' if adds else '='} {value}"


def _text(node: ast.expr, tensors: Tensors) -> str:
    """Return the text of an argument: a tile in the form of beta, any other value unchanged."""
    if isinstance(node, ast.List):
        return f"[{', '.join(_text(item, tensors) for item in node.elts)}]"
    if is_tile(node, tensors):
        return str(operand(node, tensors))
    return ast.unparse(node)


def _transfer(target: BetaOperand, keywords: Keywords, tensors: Tensors) -> str:
    target, source = _paired([target, operand(keywords.pop("src"), tensors)])
    keywords.pop("engine", None)               # beta cannot name the engine that triggers a transfer
    bounded = "oob_mode" in keywords
    if source.in_hbm and not target.in_hbm and not bounded:
        converted = "" if source.dtype is target.dtype else f", dtype={dtype_text(target.dtype)}"
        return _assigned(target, f"nl.load({source}{converted})")
    if target.in_hbm and not source.in_hbm and not bounded:
        return f"nl.store({target}, {source})"
    arguments = [f"dst={target}", f"src={source}", *(f"{k}={ast.unparse(v)}" for k, v in keywords.items())]
    return f"nisa.dma_copy({', '.join(arguments)})"


def _accumulating_transfer(target: BetaOperand, arguments: Keywords, tensors: Tensors) -> str:
    first, *added = [operand(node, tensors) for node in arguments["srcs"].elts]        # type: ignore[attr-defined]
    target, first, *added = _paired([target, first, *added])
    if str(first) != str(target) or len(added) != 1 or "oob_mode" in arguments:
        raise _missing("nki.isa.dma_compute of tensors other than its destination")
    return f"nisa.dma_copy(dst={target}, src={added[0]}, dst_rmw_op={ast.unparse(arguments['reduce_op'])})"


def _counted(target: BetaOperand, arguments: Keywords) -> str:
    """Return the index vectors that count like the instruction: from partition to partition, and along the free
    axes."""
    pattern, offset = ast.literal_eval(arguments["pattern"]), ast.unparse(arguments["offset"])
    counts = [target.shape[0], *(count for _, count in pattern)]
    steps = [ast.literal_eval(arguments["channel_multiplier"]), *(step for step, _ in pattern)]
    return index_vector(offset, [step if n > 1 else 0 for step, n in zip(steps, counts)], counts, keep_all=True)
