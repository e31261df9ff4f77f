# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NEURON_FRAMEWORK_DEBUG=1`` beside the stand-in for ``torch_xla``: the complete program around the calls of kernels.

``torch_xla`` collects operations and runs them as one program when a script reads a value or ends a step. The stand-in
runs each operation at once. To write the same program, a recorder notes the operations and exports them at that point.
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

MOST_CALLS = 20_000         # limit for a program; only the end of a longer one is written


class Origin(NamedTuple):
    """Where a tensor comes from: result number ``result`` of call number ``call``; -1 as ``call`` denotes parameter
    ``result``."""

    call: int
    result: int


class Call(NamedTuple):
    function: Any
    arguments: tuple[object, ...]          # with an Origin for each tensor
    keywords: dict[str, object]
    alive: list[ReferenceType[torch.Tensor]]                    # weak references of the results


class SyncTensorsGraph(torch.nn.Module):
    """The recorded calls as a module of its parameters. The class name is the name that ``torch_xla`` gives its
    programs."""

    def __init__(self, calls: list[Call], results: list[Origin]) -> None:
        super().__init__()
        self.calls, self.results = calls, results

    def forward(self, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values_by_origin = {Origin(-1, n): value for n, value in enumerate(parameters)}
        needed_numbers = needed_calls(self.calls, self.results)
        for number, call in enumerate(self.calls):
            if number in needed_numbers:
                arguments, keywords = pytree.tree_map_only(
                    Origin, values_by_origin.__getitem__, (call.arguments, call.keywords), is_leaf=_is_origin)
                values = call.function(*arguments, **keywords)
                values_by_origin |= {Origin(number, n): value for n, value in enumerate(pytree.tree_leaves(values))}
        return tuple(values_by_origin[origin] for origin in self.results)


class Recorder(TorchDispatchMode):
    """A mode that records the operations of its thread on tensors; tensors from elsewhere become parameters."""

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
            self.write(tensors)                                     # the script reads a value
        results = func(*args, **kwargs)
        produced = [v for v in pytree.tree_leaves(results) if isinstance(v, torch.Tensor)]
        if produced and tensors and torch.Tag.nondeterministic_seeded not in func.tags:
            if len(self.calls) == MOST_CALLS:
                self.clear()
            arguments, keywords = pytree.tree_map_only(torch.Tensor, self.origin_of, (args, kwargs))
            self.calls.append(Call(func, arguments, keywords, [torch.utils.weak.WeakIdRef(t) for t in produced]))
            for n, tensor in enumerate(produced):
                self.origins[tensor] = Origin(len(self.calls) - 1, n)
        return results

    def origin_of(self, tensor: torch.Tensor) -> Origin:
        if tensor not in self.origins:
            self.origins[tensor] = Origin(-1, len(self.parameters))
            self.parameters.append((tensor.shape, tensor.dtype))
        return self.origins[tensor]

    def write(self, tensors: list[torch.Tensor]) -> None:
        """Write the program that computes these tensors; they are parameters of later programs."""
        results = [self.origins[t] for t in tensors if t in self.origins and self.origins[t].call >= 0]
        needed_numbers = needed_calls(self.calls, results)
        if any(str(self.calls[n].function).startswith("nki.") for n in needed_numbers):
            self.saved = True
            # In a separate thread: an export here would run inside of the operation that is being dispatched.
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
                stablehlo_of(*renumbered(self.calls, results, self.parameters))     # stablehlo_of writes the program
        except Exception as error:                  # the script runs without the files, too
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            warnings.warn(f"NEURON_FRAMEWORK_DEBUG: the HLO is not written: {reason}", stacklevel=2)

    def step(self) -> None:
        """Write the program of all live tensors at the end of a step."""
        self.write([tensor for call in self.calls for ref in call.alive if (tensor := ref()) is not None])
        self.clear()

    def clear(self) -> None:
        """Drop the recorded calls, so that all tensors are parameters of later calls."""
        self.calls.clear()
        self.parameters.clear()
        self.origins.clear()


def needed_calls(calls: list[Call], results: list[Origin]) -> set[int]:
    """Return the numbers of the calls on which the results depend, and of the calls that update tensors."""
    needed_numbers = {origin.call for origin in results} - {-1}
    for number in reversed(range(len(calls))):
        call = calls[number]
        if number in needed_numbers or call.function._schema.is_mutable:
            needed_numbers |= {origin.call for origin in pytree.tree_leaves((call.arguments, call.keywords),
                                                                            is_leaf=_is_origin)
                               if _is_origin(origin) and origin.call >= 0} | {number}
    return needed_numbers


def renumbered(calls: list[Call], results: list[Origin], parameters: list[tuple[torch.Size, torch.dtype]]
               ) -> tuple[Any, ...]:
    """Return the program of the results with only the parameters that it uses, in the order of their use, and example
    arguments for it."""
    needed_numbers = needed_calls(calls, results)
    order: dict[int, int] = {}

    def used(origin: Origin) -> Origin:
        return Origin(-1, order.setdefault(origin.result, len(order))) if origin.call < 0 else origin
    renumbered_calls = [call._replace(**dict(zip(("arguments", "keywords"), pytree.tree_map_only(
        Origin, used, (call.arguments, call.keywords), is_leaf=_is_origin)))) if n in needed_numbers else call
        for n, call in enumerate(calls)]
    return SyncTensorsGraph(renumbered_calls, list(results)), *(torch.zeros(shape, dtype=dtype) for shape, dtype in (
        parameters[number] for number in order))


def _is_origin(value: object) -> bool:
    return isinstance(value, Origin)


def start() -> None:
    """Start recording for the rest of the process."""
    if debug_output.recorders:
        return
    recorder = Recorder()
    debug_output.recorders.append(recorder)
    formatted: Callable[..., str] = torch._tensor_str._str

    def written_and_formatted(tensor: torch.Tensor, **keywords: object) -> str:
        recorder.write([tensor])
        return formatted(tensor, **keywords)
    torch._tensor_str._str = written_and_formatted                      # type: ignore[assignment]
    recorder.__enter__()
    atexit.register(lambda: None if recorder.saved else recorder.step())
