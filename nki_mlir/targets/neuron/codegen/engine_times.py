# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The engines and the DMA engines while the list scheduler starts steps.

The module computes when they are free, and how long a step occupies them, with the times of the timed machine.
"""

from nki_mlir.machine import ENGINES, Engine
from nki_mlir.targets.neuron.codegen.graph_columns import columns_of
from nki_mlir.targets.neuron.codegen.ready_steps import ReadySteps
from nki_mlir.targets.neuron.codegen.scheduling_graph import SchedulingGraph
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from nki_mlir.targets.neuron.timing.dma_engines import DmaEngines
from nki_mlir.targets.neuron.timing.event_queue import EventQueue
from nki_mlir.targets.neuron.timing.ramp import RampSpeed
from nki_mlir.targets.runtime.compiled_class import float_array, int_array, new_array, new_floats

TURNS = len(ENGINES)
STEPS = ("is_transfer", "stores", "tables", "transfer")
CHOICES = ("forms", "only", "busy", "result", "result_in_engine", "port", "share", "loaded")


class EngineTimes(EventQueue, ReadySteps):
    """When each engine can start a step, and completes it.

    Arrays by step: ``forms`` and ``only`` as in ``StepEngines``; ``tables``, the set of functions that it needs (0:
    none); ``transfer``, the number of its transfer. Arrays by form and engine: those of ``StepEngines``.

    Arrays by engine: ``free_at``; ``missing_ns``, the ns of the steps to start that no other engine may run;
    ``trigger_order``, its position among the engines that trigger transfers at the same time, and ``triggered``, the
    step of that transfer; ``queues``, how many transfers are under way, first of loads, then of stores. ``table`` is
    the set of functions that the scalar engine has loaded.
    """

    count: int
    engines: int
    scalar: int
    is_free: int
    all_engines: int
    port_free: bool
    is_transfer: list[int]
    stores: list[int]
    tables: list[int]
    transfer: list[int]
    forms: list[int]
    only: list[int]
    busy: list[float]
    result: list[float]
    result_in_engine: list[float]
    port: list[int]
    share: list[float]
    loaded: list[float]
    free_at: list[float]
    missing_ns: list[float]
    trigger_order: list[int]
    triggered: list[int]
    queues: list[int]
    takes_turns: bool
    table: int
    table_load_ns: float
    scalar_free: float
    ramp: RampSpeed
    ramp_engine: int
    dma: DmaEngines
    trigger_ns: float
    notify_ns: float

    def __init__(self, graph: SchedulingGraph, order: Order) -> None:
        machine, columns, self.count = graph.machine, columns_of(graph), len(graph)
        step_engines = graph.step_engines(order.share, order.issue)
        engines, self.engines = step_engines.engines, len(step_engines.engines)
        EventQueue.__init__(self, 3 * self.count + 3)
        ReadySteps.__init__(self, self.engines, self.count)
        for name in STEPS:
            setattr(self, name, columns[name])
        for name in CHOICES:
            setattr(self, name, getattr(step_engines, name))
        self.missing_ns, self.free_at = float_array(step_engines.alone), new_floats(self.engines)
        self.is_free = self.all_engines = (1 << self.engines) - 1
        self.trigger_order = int_array([ENGINES.index(engine) for engine in engines])
        self.triggered, self.queues = new_array(len(ENGINES), -1), new_array(2 * self.engines)
        self.port_free, self.takes_turns = True, graph.takes_turns
        self.scalar = engines.index(Engine.SCALAR) if Engine.SCALAR in engines else -1
        self.table, self.scalar_free = 0, 0.0
        costs = machine.costs
        self.table_load_ns = float(costs.control.table_load_ns)
        ramps = {number: ramp for number, engine in enumerate(engines)
                 if (ramp := costs.engines[engine].ramp) is not None}
        assert len(ramps) <= 1                      # only the tensor engine has one
        self.ramp_engine, ramp = next(iter(ramps.items()), (-1, None))
        self.ramp = RampSpeed(ramp)
        self.dma = DmaEngines(columns, machine, 1)
        self.trigger_ns, self.notify_ns = float(costs.dma.trigger_ns), float(costs.dma.notify_ns)

    def occupy_engine(self, k: int, engine: int, time: float) -> float:
        """Occupy an engine with a step that starts now, and return when the engine is free. The scalar engine loads
        functions once its last step has ended."""
        choice, begin = self.forms[k] * self.engines + engine, time
        self.is_free &= ~(1 << engine)
        if self.port[choice] != 0:
            self.port_free = False
        if self.tables[k] > 0 and self.tables[k] != self.table:
            self.table = self.tables[k]
            begin = max(time, self.scalar_free + self.table_load_ns)
        if engine == self.ramp_engine and self.share[choice] > 0.0:
            free = self.ramp.end(begin, self.busy[choice], self.share[choice])
        else:
            free = begin + self.busy[choice]
        self.free_at[engine] = free
        if engine == self.scalar:
            self.scalar_free = free
        return free

    def move(self, time: float) -> None:
        """Move the transfers that were triggered now. DMA engines take those of one time in the order of the
        engines."""
        for turn in range(TURNS):
            k = self.triggered[turn]
            if k >= 0:
                self.triggered[turn] = -1
                moved = self.dma.move(0, self.transfer[k], time + self.trigger_ns, k)
                self.push(moved + self.notify_ns, k + 2 * self.count)
