# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls as older releases wrote them: recognised before Python binds them, and made into calls of today with a warning.

Orders of parameters are told apart by what stands where they differ; what cannot be told is a call of today.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nki_mlir.language.current import enums as e
from nki_mlir.language.current.errors import NkiTypeError, invalid, user_location, warn

Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]


class Order(NamedTuple):
    """An older order of the parameters: what tells a call in it, and the call to write instead."""

    parameters: str
    tells: Callable[[Arguments, Keywords], bool]
    now: str


class Gone(NamedTuple):
    """A keyword that is no longer: what to write instead, the keyword it became (``""``: it said nothing; None: its
    meaning cannot be told), and its value as that."""

    now: str
    keyword: str | None = None
    value: Callable[[Any], Any] = lambda value: value


def third_is(*kinds: type) -> Callable[[Arguments, Keywords], bool]:
    return lambda arguments, keywords: len(arguments) > 2 and isinstance(arguments[2], kinds)


def offset_third(arguments: Arguments, keywords: Keywords) -> bool:
    """affine_select has its tile fourth; before, the fourth was a number."""
    if len(arguments) > 3:
        return isinstance(arguments[3], (int, np.integer))
    return len(arguments) == 3 and "channel_multiplier" in keywords


def scales_third(arguments: Arguments, keywords: Keywords) -> bool:
    return len(arguments) > 2 and (arguments[2] is None or isinstance(arguments[2], (list, tuple)))


def operator_third(arguments: Arguments, keywords: Keywords) -> bool:
    """dma_copy has its priority third; before, the operator that wrote onto dst."""
    has_operator = len(arguments) > 2 and (callable(arguments[2]) or hasattr(arguments[2], "nki_token"))
    return has_operator or (len(arguments) > 5 and isinstance(arguments[5], bool))


def transport(gpsimd: Any) -> e.dma_engine:
    return e.dma_engine.gpsimd_dma if gpsimd else e.dma_engine.dma


ORDERS = {
    "affine_select": [Order("dst pattern offset channel_multiplier on_true_tile on_false_value cmp_op name",
                            offset_third, "affine_select(dst, pattern, channel_multiplier, on_true_tile, "
                                          "on_false_value, cmp_op, offset=...)")],
    "dma_copy": [Order("dst src dst_rmw_op oob_mode dge_mode unique_indices name", operator_third,
                       "dma_copy(dst, src, priority, oob_mode, dge_mode, engine)"),
                 Order("dst src oob_mode dge_mode engine name", third_is(e.oob_mode),
                       "dma_copy(dst, src, priority, oob_mode, dge_mode, engine)")],
    "dma_compute": [Order("dst srcs scales reduce_op name", scales_third,
                          "dma_compute(dst, srcs, reduce_op, scales)")],
    "dma_transpose": [Order("dst src axes dge_mode oob_mode name",
                            lambda a, k: len(a) > 3 and isinstance(a[3], e.dge_mode),
                            "dma_transpose(dst, src, axes, priority, dge_mode, oob_mode)")],
    "nc_matmul": [Order("dst stationary moving is_stationary_onezero is_moving_onezero is_transpose tile_position "
                        "tile_size perf_mode name", lambda a, k: len(a) > 6 and isinstance(a[6], (tuple, list)),
                        "nc_matmul(..., is_transpose, accumulate, tile_position, tile_size, perf_mode)")],
    "nc_matmul_mx": [Order("dst stationary moving stationary_scale moving_scale tile_position tile_size name",
                           lambda a, k: len(a) > 7 and isinstance(a[7], str),
                           "nc_matmul_mx(..., tile_position, tile_size, accumulate, name)")],
    "sendrecv": [Order("src dst send_to_rank recv_from_rank pipe_id use_gpsimd_dma name",
                       lambda a, k: len(a) > 5 and isinstance(a[5], bool), "sendrecv(..., dma_engine=...)")],
}
KEYWORDS = {
    "dma_copy": {"unique_indices": Gone("dma_compute(unique_indices=)", "")},
    "nc_matmul": {"is_moving_zero": Gone("nc_matmul(is_moving_onezero=)", "is_moving_onezero"),
                  "psumAccumulateFlag": Gone("accumulate=True or accumulate=False")},
    "register_move": {"imm": Gone("register_move(src=)", "src")},
    "sendrecv": {"use_gpsimd_dma": Gone("sendrecv(dma_engine=nisa.dma_engine.gpsimd_dma)", "dma_engine", transport)},
}


def of_today(kind: str) -> Callable[[Arguments, Keywords], tuple[Arguments, Keywords]] | None:
    """What makes an instruction's calls ones that the newest release takes; None where nothing has changed."""
    orders, keywords = ORDERS.get(kind, []), KEYWORDS.get(kind, {})
    if not orders and not keywords:
        return None

    def translate(arguments: Arguments, given: Keywords) -> tuple[Arguments, Keywords]:
        order = next((o for o in orders if o.tells(arguments, given)), None)
        if order is not None:
            arguments, given = by_name(kind, order, arguments, given)
        for old in [k for k in given if k in keywords]:
            gone, value = keywords[old], given.pop(old)
            if value is None:
                continue
            if gone.keyword is None:
                invalid(f"{kind}({old}=) is of an older release", fix=f"write {gone.now}")
            warn(f"{kind}({old}=) is now {gone.now}")
            if gone.keyword:
                given[gone.keyword] = gone.value(value)
        return arguments, given
    return translate


def by_name(kind: str, order: Order, arguments: Arguments, given: Keywords) -> tuple[Arguments, Keywords]:
    """The arguments of an older order, by name from the third on."""
    names = order.parameters.split()
    if len(arguments) > len(names):
        raise NkiTypeError(f"{kind} takes {len(names)} arguments, got {len(arguments)}",
                           fix=f"write {order.now}").located(user_location())
    warn(f"{kind}({', '.join(names[:len(arguments)])}) is now {order.now}")
    return arguments[:2], dict(zip(names[2:], arguments[2:])) | given
