# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Change right kernels at random: each is refused, or equals the reference by the oracle, also on other seeds and
shapes.

    python -m tests.scoring.mutations --count 1000 --jobs 2
"""

import argparse
import ast
import copy
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nki_mlir.scoring.engine import WorkerPool, score_all
from nki_mlir.scoring.reference import copied, difference, flat, load_reference
from tests import oracle
from tests.oracle import beta, current
from tests.scoring.candidates import MOVED, PRODUCT, PROGRAMS, REFERENCES, RIGHT, SUMS, UPDATE, masked

SOFTMAX = masked("low = nl.subtract(tile, nl.max(tile, axis=1, keepdims=True, mask=inside), mask=inside)\n"
                 "powers = nl.exp(low, mask=inside)\n"
                 "nl.store(out[i * 128 + p, f], powers / nl.sum(powers, axis=1, keepdims=True, mask=inside), mask=inside)")
PREFIXES = '''
import numpy as np
def inputs(rng, rows, columns): return [rng.standard_normal((rows, columns)).astype(np.float32)]
def reference(x):
    p = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)
CASES = [{"rows": 128, "columns": 64}]
HIDDEN = [{"rows": 200, "columns": 32}, {"rows": 129, "columns": 8}]
'''
EDGES = REFERENCES["scale"].replace('"columns": 32}]', '"columns": 32}, {"rows": 129, "columns": 8}]')
# A right kernel, its reference, and shapes that no worker tries.
KERNELS = {
    "rows": (RIGHT, "edges", [{"rows": 130, "columns": 16}, {"rows": 1, "columns": 3}]),
    "moved": (MOVED, "edges", [{"rows": 130, "columns": 16}]),
    "product": (PRODUCT, "product", [{"k": 256, "m": 128, "n": 16}]),
    "programs": (PROGRAMS, "programs", []),
    "update": (UPDATE, "update", []),
    "sums": (SUMS, "sums", [{"rows": 100, "columns": 8}]),
    "softmax": (SOFTMAX, "softmax", [{"rows": 130, "columns": 8}]),
}
OTHERS = {"add": ["subtract", "multiply"], "multiply": ["add"], "subtract": ["add"], "max": ["min", "sum"], "exp": ["abs"],
          "sum": ["max"], "affine_range": ["sequential_range"], "float32": ["bfloat16", "float16"],
          "load": ["copy"], "sbuf": ["psum"]}


class Mutation(ast.NodeTransformer):
    """Changes the node of a number; counts them all."""

    def __init__(self, chosen: int, rng: random.Random) -> None:
        self.chosen, self.rng, self.count = chosen, rng, 0

    def due(self) -> bool:
        self.count += 1
        return self.count - 1 == self.chosen

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) in (int, float) and self.due():
            return ast.Constant(self.rng.choice([node.value + 1, node.value - 1, node.value * 2, 0, 1, -node.value,
                                                 node.value / 2 if type(node.value) is float else node.value // 2]))
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if self.due():
            change = self.rng.randrange(3)
            if change == 0:
                node.left, node.right = node.right, node.left
            elif change == 1:
                node.op = self.rng.choice([ast.Add(), ast.Sub(), ast.Mult(), ast.FloorDiv()])
            else:
                return node.left
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in OTHERS and self.due():
            node.attr = self.rng.choice(OTHERS[node.attr])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if self.due():
            node.ops = [self.rng.choice([ast.LtE(), ast.Gt(), ast.NotEq(), ast.GtE()])]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        dropped = [k for k in node.keywords if k.arg != "dtype"]        # whose default differs from release to release
        if dropped and self.due():
            node.keywords.remove(self.rng.choice(dropped))
        elif len(node.args) > 1 and self.due():
            node.args.reverse()
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if self.due():
            return self.rng.choice([ast.Pass(), ast.If(ast.Constant(True), [node, copy.deepcopy(node)], [])])
        return node

    def visit_Slice(self, node: ast.Slice) -> ast.AST:
        self.generic_visit(node)
        if self.due():
            if self.rng.random() < 0.5:
                node.lower = None
            else:
                node.upper = None
        return node


def mutants(seed: int) -> Iterator[tuple[str, str]]:
    """(name of the kernel, text) of one random change after the other, none of which leaves the text as it is."""
    rng = random.Random(seed)
    trees = {}
    for name, (text, _, _) in KERNELS.items():
        tree = ast.parse(text)
        kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
        counter = Mutation(-1, rng)
        counter.visit(copy.deepcopy(kernel))
        trees[name] = tree, kernel, counter.count
    texts = set()
    while True:
        name = rng.choice(list(KERNELS))
        tree, kernel, count = trees[name]
        changed = copy.deepcopy(kernel)
        for _ in range(rng.choice([1, 1, 1, 2])):
            decorators, changed.decorator_list = changed.decorator_list, []
            changed = Mutation(rng.randrange(count), rng).visit(changed)
            changed.decorator_list = decorators
        body = [changed if node is kernel else node for node in tree.body]
        text = ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
        if text not in texts and text != ast.unparse(tree):
            texts.add(text)
            yield name, text


def faults(name: str, text: str, folder: Path) -> str:
    """What the oracle says against a mutant that was taken for right; "" where it is."""
    _, reference, more = KERNELS[name]
    file = str(folder / f"{reference}.py")
    trials = load_reference(file).trials
    if more:
        trials = trials + load_reference(file, {"CASES": more, "HIDDEN": [], "SEEDS": 2}).trials
    tolerance = load_reference(file).tolerance
    generation = beta if "neuronxcc" in text else current
    for trial in trials:
        arguments = [copied(a) for a in trial.positional]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = flat(oracle.run(text, arguments, {k: copied(v) for k, v in trial.keywords.items()},
                                          generation=generation, grid=trial.grid or None, shuffle=7).results)
        except Exception as error:
            return f"{trial.label}: {type(error).__name__}: {str(error).splitlines()[0]}"
        for number, (want, got) in enumerate(zip(trial.expected, results, strict=True)):
            if wrong := difference(want, np.asarray(got), tolerance):
                return f"{trial.label}: output {number}: {wrong}"
    return ""


def judge(count: int, seed: int, jobs: int) -> tuple[Counter[str], list[str]]:
    """How many mutants got which verdict, and those that were taken for right and are not."""
    counts, passed = Counter[str](), []
    with tempfile.TemporaryDirectory() as name, WorkerPool(jobs) as workers:
        folder = Path(name)
        for reference, text in (REFERENCES | {"softmax": PREFIXES, "edges": EDGES}).items():
            (folder / f"{reference}.py").write_text(text)
        source = mutants(seed)
        requests = ({"source": text, "name": kernel, "seconds": 20, "reference": str(folder / f"{KERNELS[kernel][1]}.py")}
                    for kernel, text in (next(source) for _ in range(count)))
        for request, verdict in score_all(requests, workers):
            counts[verdict["verdict"] if verdict.right else verdict["reason"]["code"]] += 1
            contested = any(remark["category"] == "DeviceRuleWarning" for remark in verdict["remarks"])
            fault = faults(request["name"], request["source"], folder) if verdict.right else ""
            if fault and not (contested and "AssertionError" in fault):     # the oracle's word for rules of the device
                passed.append(f"{fault}\n{request['source']}")
    return counts, passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    counts, passed = judge(options.count, options.seed, options.jobs)
    print(f"{options.count} mutants:", ", ".join(f"{n} {word}" for word, n in counts.most_common()))
    print(f"{len(passed)} were taken for right and are not by the oracle", *passed, sep="\n\n")
    return int(bool(passed))


if __name__ == "__main__":
    sys.exit(main())
