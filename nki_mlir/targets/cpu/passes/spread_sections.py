# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""spread-sections: run sections of a sequence that do not depend on each other on the pool.

before:  load(k);  scores(0);  exp(0);  product(0);  scores(1);  exp(1);  product(1);  ...
after:   load(k);  for section 0..16 on the pool:  if section < 8:  ...  scores(0);  exp(0);  product(0)  ...

Kernels whose Python unrolls loops are long sequences, in which only some products are long enough to be divided among
threads. A section ends where no node after it touches bytes that a node in it writes, nor the other way round. Nodes
before the sections, which load what all of them read, and nodes after them stay where they are. Each thread takes the
longest section that is left. It has its own buffers for those that only one section uses.

Sections are only spread where products take a part of the time: `chunk-rows` divides sequences without products,
`spread-nests` and `join-parts` those of little else.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import groupby
from typing import TypeGuard

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import (
    Allocate,
    Compute,
    InParts,
    NativeBlock,
    NativeBranch,
    NativeLoop,
    Node,
    ScratchBuffer,
    TileCall,
    Users,
    slot_value,
    sub_blocks,
)
from nki_mlir.targets.cpu.passes.parallelize import has_pool
from nki_mlir.targets.cpu.sections import Range, Sections, longest_first
from nki_mlir.targets.runtime import host

ENDS_TRIED = 16                     # ends of sections, from the end of a sequence to its start


class SpreadSections(FunctionPass, name="spread-sections"):
    worth: int = 200_000        # nanoseconds, roughly, that sections on the pool must save
    share: int = 20             # percent of a section that sections in it must save
    least: int = 20_000         # nanoseconds of a job: shorter sections that follow each other are one job
    busy: int = 85              # percent of the time in which threads must have work
    least_products: int = 20    # percent of the time that products must take
    most_products: int = 94     # the same: spread-nests and join-parts divide almost all of the time beyond it

    def rewrite(self, function: NativeFunction) -> None:
        if has_pool(function):
            self.block(function, function.body, function.users())

    def block(self, function: NativeFunction, block: NativeBlock, users: Users) -> None:
        nodes, block.nodes = block.nodes, []
        with function.inside(block):
            for is_sequence, run in groupby(nodes, is_step):
                if is_sequence:
                    SectionWriter(self, function, users, [node for node in run if is_step(node)]).write()
                    continue
                for node in run:
                    if not (isinstance(node, NativeLoop) and node.on_pool):
                        for inner in sub_blocks(node):
                            self.block(function, inner, users)
                    function.add(node)


def is_step(node: Node) -> TypeGuard[Compute | TileCall | Allocate]:
    """Return whether a node may be part of a section."""
    return isinstance(node, Compute | Allocate) or (
        isinstance(node, TileCall) and not node.on_host and not isinstance(node, InParts))


class SectionWriter:
    """Writes a sequence of nodes with its sections on the pool."""

    def __init__(self, options: SpreadSections, function: NativeFunction, users: Users,
                 nodes: Sequence[Compute | TileCall | Allocate]) -> None:
        self.options, self.function, self.users, self.nodes = options, function, users, nodes
        self.threads = host.threads()

    def write(self) -> None:
        """Append the nodes."""
        if sum(isinstance(node, Compute) for node in self.nodes) < 2:
            self.function.block.nodes += self.nodes
            return
        self.sections = Sections(self.nodes)
        self.write_range(0, len(self.nodes))

    def write_range(self, start: int, end: int) -> None:
        """Append some nodes: all of them as sections on the pool, or each section for itself."""
        if self.saved(start, end) >= self.options.worth:
            self.write_jobs(self.jobs(start, end))
            return
        for section_start, section_end in self.sections.divide(start, end):
            if self.sections.cost(section_start, section_end) >= self.options.worth:
                self.write_section(section_start, section_end)
            else:
                self.function.block.nodes += self.nodes[section_start:section_end]

    def write_section(self, start: int, end: int) -> None:
        """Append the nodes of one section, of which some may be sections without the nodes before and after them."""
        saved, first, last = max(self.parts(start, end))
        if saved < self.options.worth or saved * 100 < self.options.share * self.sections.cost(start, end):
            self.function.block.nodes += self.nodes[start:end]
            return
        self.write_range(start, first)
        self.write_jobs(self.jobs(first, last))
        self.write_range(last, end)

    def parts(self, start: int, end: int) -> list[tuple[float, int, int]]:
        """List parts of a section that are sections themselves, with the nanoseconds that they save on the pool. For
        some ends, the part begins as early as possible, so that no section in it keeps one thread busy for longer than
        the others."""
        parts = []
        for last in {end - (end - start) * k // ENDS_TRIED for k in range(ENDS_TRIED)} - {start}:
            most = self.sections.cost(start, last) / self.threads
            first = bisect_left(range(start, last), True, key=lambda n: self.sections.longest(n, last) <= most) + start
            parts.append((self.saved(first, last) if first < last else 0.0, first, last))
        return parts

    def jobs(self, start: int, end: int) -> list[Range]:
        return self.sections.jobs(start, end, self.options.least)

    def saved(self, start: int, end: int) -> float:
        """Return the nanoseconds that the pool saves for some nodes; 0 if threads would be idle, or if the nodes have
        too few products, or little else."""
        costs = [self.sections.cost(*job) for job in self.jobs(start, end)]
        total, longest = sum(costs), longest_first(costs, self.threads)
        is_busy = total * 100 >= self.options.busy * longest * self.threads
        percent = self.sections.product_share(start, end) * 100
        is_mixed = self.options.least_products <= percent <= self.options.most_products
        return total - longest if is_busy and is_mixed else 0.0

    def write_jobs(self, jobs: Sequence[Range]) -> None:
        """Append a loop over jobs on the pool."""
        job_of = {node: job for job in jobs for node in self.nodes[slice(*job)]}
        nodes: dict[Range, list[Node]] = {job: [] for job in sorted(
            jobs, key=lambda job: -round(self.sections.cost(*job)))}                    # the longest one first
        private = list[ScratchBuffer]()
        for node in self.nodes[jobs[0][0]:jobs[-1][1]]:
            if isinstance(node, Allocate):
                jobs_of_users = {job_of.get(user) for user in self.users.get(node.buffer, ())}     # type: ignore[call-overload]
                job = jobs_of_users.pop() if len(jobs_of_users) == 1 else None
                if job is None:
                    self.function.add(node)
                    continue
                private.append(node.buffer)
                nodes[job].append(node)
            else:
                nodes[job_of[node]].append(node)
        loop = self.function.add_loop(len(jobs), on_pool=True)
        for buffer in private:
            buffer.memory = loop.memory
        with self.function.inside(loop.body):
            self.select(slot_value(loop.slot), [*nodes.values()], 0)

    def select(self, number: Linear, jobs: Sequence[Sequence[Node]], first: int) -> None:
        """Append branches to the job with a number; ``first`` is the number of the first job."""
        if len(jobs) == 1:
            self.function.block.nodes += jobs[0]
            return
        middle = len(jobs) // 2
        is_before = self.function.computed("nki_cmpi_slt", number, Linear(first + middle))
        branch = NativeBranch(is_before, otherwise=NativeBlock())
        self.function.add(branch)
        for block, half, first_number in ((branch.then, jobs[:middle], first),
                                          (branch.otherwise, jobs[middle:], first + middle)):
            with self.function.inside(block):                           # type: ignore[arg-type]
                self.select(number, half, first_number)
