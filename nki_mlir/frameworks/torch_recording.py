# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NEURON_FRAMEWORK_DEBUG=1`` beside the stand-in for ``torch_xla``: the whole program around the calls of kernels.

``torch_xla`` collects operations and runs them as one program when a value is looked at or a step ends. The stand-in
runs each at once. To show the same program, a recorder notes what is computed, and exports it where it would run.
"""

import atexit
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ReferenceType

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from nki_mlir.frameworks import debug_output

MOST_CALLS = 20_000         # of a program; of a longer one the end is shown


class Origin(NamedTuple):
    """Where a tensor comes from: result ``result`` of call ``call``, or parameter ``result`` where that is -1."""

    call: int
    result: int


class Call(NamedTuple):
    function: Any
    arguments: tuple[object, ...]          # with places for tensors
    keywords: dict[str, object]
    alive: list[ReferenceType[torch.Tensor]]                    # weak references of the results


class SyncTensorsGraph(torch.nn.Module):
    """The calls again, as a program of its parameters. Files bear the name that ``torch_xla`` gives its programs."""

    def __init__(self, calls: list[Call], results: list[Origin]) -> None:
        super().__init__()
        self.calls, self.results = calls, results

    def forward(self, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = {Origin(-1, n): value for n, value in enumerate(parameters)}
        needed = needed_calls(self.calls, self.results)
        for number, call in enumerate(self.calls):
            if number in needed:
                arguments, keywords = pytree.tree_map_only(
                    Origin, made.__getitem__, (call.arguments, call.keywords), is_leaf=_is_origin)
                values = call.function(*arguments, **keywords)
                made |= {Origin(number, n): value for n, value in enumerate(pytree.tree_leaves(values))}
        return tuple(made[origin] for origin in self.results)


class Recorder(TorchDispatchMode):
    """Notes the operations of this thread that compute with tensors; what they start from are parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.origins: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self.calls: list[Call] = []
        self.parameters: list[tuple[torch.Size, torch.dtype]] = []
        self.saved = False

    def __torch_dispatch__(self, func: Any, types: object, args: tuple[object, ...] = (),
                           kwargs: dict[str, object] | None = None) -> object:
        kwargs = kwargs or {}
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        if func is torch.ops.aten._local_scalar_dense.default:
            self.write(tensors)                                     # somebody looks at a value
        results = func(*args, **kwargs)
        made = [v for v in pytree.tree_leaves(results) if isinstance(v, torch.Tensor)]
        if made and tensors and torch.Tag.nondeterministic_seeded not in func.tags:
            if len(self.calls) == MOST_CALLS:
                self.forget()
            arguments, keywords = pytree.tree_map_only(torch.Tensor, self.origin_of, (args, kwargs))
            self.calls.append(Call(func, arguments, keywords, [torch.utils.weak.WeakIdRef(t) for t in made]))
            for n, tensor in enumerate(made):
                self.origins[tensor] = Origin(len(self.calls) - 1, n)
        return results

    def origin_of(self, tensor: torch.Tensor) -> Origin:
        if tensor not in self.origins:
            self.origins[tensor] = Origin(-1, len(self.parameters))
            self.parameters.append((tensor.shape, tensor.dtype))
        return self.origins[tensor]

    def write(self, tensors: list[torch.Tensor]) -> None:
        """Write the program that computes tensors, which are parameters from then on."""
        results = [self.origins[t] for t in tensors if t in self.origins and self.origins[t].call >= 0]
        needed = needed_calls(self.calls, results)
        if any(str(self.calls[n].function).startswith("nki.") for n in needed):
            self.saved = True
            # In a separate thread: here the dispatcher is in the middle of an operation, which an export would inherit.
            exporting = threading.Thread(target=self.export, args=(results,))
            exporting.start()
            exporting.join()
        for tensor in tensors:
            self.origins.pop(tensor, None)

    def export(self, results: list[Origin]) -> None:
        from nki_mlir.frameworks.torch_stablehlo import stablehlo_of  # start-up: loads MLIR
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)                  # PyTorch's, about PyTorch's code
                stablehlo_of(*renumbered(self.calls, results, self.parameters))     # which writes it
        except Exception as error:                  # the script runs without the files, too
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            warnings.warn(f"NEURON_FRAMEWORK_DEBUG: the HLO is not written: {reason}", stacklevel=2)

    def step(self) -> None:
        """The end of a step: all tensors that are still there are computed."""
        self.write([tensor for call in self.calls for ref in call.alive if (tensor := ref()) is not None])
        self.forget()

    def forget(self) -> None:
        """All tensors are parameters of what follows."""
        self.calls.clear()
        self.parameters.clear()
        self.origins.clear()


def needed_calls(calls: list[Call], results: list[Origin]) -> set[int]:
    """The calls that results depend on, and those that update what others then read."""
    needed = {origin.call for origin in results} - {-1}
    for number in reversed(range(len(calls))):
        call = calls[number]
        if number in needed or call.function._schema.is_mutable:
            needed |= {origin.call for origin in pytree.tree_leaves((call.arguments, call.keywords), is_leaf=_is_origin)
                       if _is_origin(origin) and origin.call >= 0} | {number}
    return needed


def renumbered(calls: list[Call], results: list[Origin], parameters: list[tuple[torch.Size, torch.dtype]]
               ) -> tuple[Any, ...]:
    """The program of results, and example arguments: only the parameters that it uses, in the order of their use."""
    needed = needed_calls(calls, results)
    order: dict[int, int] = {}

    def used(origin: Origin) -> Origin:
        return Origin(-1, order.setdefault(origin.result, len(order))) if origin.call < 0 else origin
    kept = [call._replace(**dict(zip(("arguments", "keywords"), pytree.tree_map_only(
        Origin, used, (call.arguments, call.keywords), is_leaf=_is_origin)))) if n in needed else call
        for n, call in enumerate(calls)]
    return SyncTensorsGraph(kept, list(results)), *(torch.zeros(shape, dtype=dtype) for shape, dtype in (
        parameters[number] for number in order))


def _is_origin(value: object) -> bool:
    return isinstance(value, Origin)


def start() -> None:
    """Start recording; it never stops."""
    if debug_output.recorders:
        return
    recorder = Recorder()
    debug_output.recorders.append(recorder)
    formatted: Callable[..., str] = torch._tensor_str._str

    def looked_at(tensor: torch.Tensor, **keywords: object) -> str:
        recorder.write([tensor])
        return formatted(tensor, **keywords)
    torch._tensor_str._str = looked_at                      # type: ignore[assignment]
    recorder.__enter__()
    atexit.register(lambda: None if recorder.saved else recorder.step())
