# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The vendor's tables about streams: positions, semaphores and their updates, iterations of device loops."""

from pathlib import PurePath

from nki_mlir.targets.neuron.format.assembly import amount_text
from nki_mlir.targets.neuron.profile.document import Document
from nki_mlir.targets.neuron.profile.semaphore_updates import CLEARED

Row = dict[str, object]
NO_SEMAPHORE = "-1"


class VendorStreams:
    """The streams of a document, by its slices. A slice that joins several executions has no position, no semaphores
    and no iteration."""

    def __init__(self, document: Document) -> None:
        self.document, self.slices = document, document["slices"]
        self.streams = {(stream["core"], stream["engine"]): stream for stream in document["streams"]}

    def position(self, k: int) -> int | None:
        """Return the index of a slice's instruction in its engine's stream."""
        return self.slices["position"][k] if self.slices["count"][k] == 1 else None

    def with_semaphores(self, k: int, operands: str) -> str:
        """Return the operands after the semaphores that the instruction waits for and updates, as assembly shows
        them."""
        position, core = self.position(k), self.core(k)
        if position is None:
            return operands
        stream = self.stream(k)
        parts = [f"{semaphore_text(self.document, core, number)}>={value}" for number, value in
                 stream["waits"][position]]
        if update := stream["update"][position]:
            parts.append(f"{semaphore_text(self.document, core, update[0])}{amount_text(update[1])}@complete")
        return " ".join([*parts, operands]).strip()

    def updated(self, k: int) -> str | None:
        """Return the semaphore that a slice's transfer updates; ``NO_SEMAPHORE`` if there is none."""
        position = self.position(k)
        if position is None:
            return None
        update = self.stream(k)["update"][position]
        return semaphore_text(self.document, self.core(k), update[0]) if update else NO_SEMAPHORE

    def name(self, k: int) -> str | None:
        """Return the name of a slice's instruction in an iteration, which is its key in ``KernelInstructions``."""
        if self.position(k) is None:
            return None
        return kernel_name(self.slices["instruction"][k], self.slices["iteration"][k])

    def source_tables(self) -> dict[str, list[Row]]:
        """Return instructions by line and iteration, the lines with their functions, and the iterations. The callers of
        functions are not known."""
        document, iterations = self.document, self.document["iterations"]
        lines, line_of = document["lines"], document["instructions"]["line"]
        pairs = {(number, iteration): core for number, iteration, count, core in zip(
            self.slices["instruction"], self.slices["iteration"], self.slices["count"],
            map(self.core, range(len(self.slices["track"])))) if count == 1}
        kernel = document["timing"]["kernel"]
        rows = []
        for (number, iteration), core in sorted(pairs.items()):
            k = line_of[number]
            line = lines[k] if k >= 0 else None
            rows.append({
                "kernel_instruction_name": kernel_name(number, iteration),
                "stack_frame_id": k if line and line["function"] else None,
                "stack_frame_depth": 0 if line and line["function"] == kernel else None,
                "iteration_variables_id": iteration if iteration >= 0 else None,
                "iteration_variable_depth": self.depth(iteration) if iteration >= 0 else None,
                "file_path": line["file"] if line else None, "line_number": line["line"] if line else None,
                "pcore_idx": core})
        frames = [{"stack_frame_id": k, "fully_qualified_function_name":
                   f"{PurePath(line['file']).stem}.{line['function']}", "parent_stack_frame_id": None,
                   "file_path": line["file"], "line_number": line["line"]}
                  for k, line in enumerate(lines) if line["function"]]
        return {"KernelInstructions": rows, "KernelStackFrames": frames, "KernelIterationVariables": [
            {"iteration_variable_id": k, "variable_name": loop["variable"] or None, "variable_value": value,
             "parent_iteration_variable_id": parent if parent >= 0 else None, "file_path": loop["file"] or None,
             "line_number": loop["line"] or None}
            for k, (value, parent, loop) in enumerate(zip(iterations["value"], iterations["parent"],
                                                          map(document["loops"].__getitem__, iterations["loop"])))]}

    def depth(self, iteration: int) -> int:
        """Return how many loops there are around an iteration's loop."""
        depth = -1
        while iteration >= 0:
            iteration, depth = self.document["iterations"]["parent"][iteration], depth + 1
        return depth

    def core(self, k: int) -> int:
        """Return the core of a slice."""
        core: int = self.document["tracks"][self.slices["track"][k]]["core"]
        return core

    def stream(self, k: int) -> Document:
        """Return the stream with a slice's instruction, or with its transfer's trigger."""
        stream: Document = self.streams[self.core(k), self.document["instructions"]["engine"][
            self.slices["instruction"][k]]]
        return stream


def kernel_name(number: int, iteration: int) -> str:
    return f"I-{number}:{iteration}" if iteration >= 0 else f"I-{number}"


def semaphore_text(document: Document, core: int, number: int) -> str:
    """Return a semaphore as assembly shows it."""
    return f"S[{number}] ({document['semaphores'][core][number]})"


def update_rows(document: Document) -> list[Row]:
    """Return a row for each time at which a semaphore changes. Increments of several DMA engines at one time are one
    row."""
    updates = document["updates"]
    if not updates:
        return []
    tracks, slices = document["tracks"], document["slices"]
    kinds = {1: "sem_inc", -1: "sem_dec", CLEARED: "evt_clr"}
    return [{"timestamp": round(time), "id": semaphore_text(document, core, number), "value": value,
             "update_source": tracks[slices["track"][k]]["name"].partition(" (")[0], "double_set_or_clear": None,
             "update_mode": None,
             "update_operation_type": kinds.get(amount, "sem_add_imm" if amount > 0 else "sem_sub_imm"),
             "update_trigger_timing": "complete", "pcore_idx": core}
            for core, time, number, amount, value, k in zip(*(updates[name] for name in (
                "core", "time", "semaphore", "amount", "value", "slice")))]
