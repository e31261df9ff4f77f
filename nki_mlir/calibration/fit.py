# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fit the numbers of a machine on measurements: least squares of relative errors, with a standard error of each
number.

A kernel with R instructions on N elements takes a(N) + c R + d R N: a constant for the rest of the kernel at that
size, the cost of an instruction, and the cost of an element. Instructions on so few elements that the engine's least
time limits them take a(N) + s R. There are two kinds of transfers: the issue limits short ones, the bytes limit
long ones.

One engine triggers all transfers, or three share them. The latter is evident where short transfers take longer while
the scalar and the GpSimd engine also work: the work and all triggers then take a third of their sum.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from nki_mlir.calibration.measurements import BadMeasurements, Measurement
from nki_mlir.machine import Engine, Machine, Work

CHAINS = 8                      # in the kernels called stream, which have CHAINS times ``reps`` instructions
BANKS = 4                       # banks of tensor_stream
BESIDE = 64                     # elements of the work in transfers_beside: in every second round on both engines
ISSUERS = 3                     # engines that trigger transfers where several do
SHORT = 64                      # most elements of a partition in short transfers
LONG = 4096 * 4                 # least bytes of a partition in long transfers
LANE_BYTES = 128 * 4            # bytes of one float32 element in each partition
SURE = 2.0                      # standard errors by which a significant difference exceeds 0
PRECISE = 0.02                  # relative standard error up to which the measurements determine a number
UNLIKE = 30.0                   # times of a device that is this much slower or faster than our model have other units


class FittedNumber(NamedTuple):
    """A number of the machine, its fitted value, and the standard error of the fit."""

    name: str
    unit: str
    ours: float
    fitted: float
    error: float

    @property
    def determined(self) -> bool:
        """Return whether the measurements determine the number: a cost that is a small part of the measured times is
        lost in the noise."""
        return self.error <= PRECISE * abs(self.fitted)

    @property
    def differs(self) -> bool:
        """Return whether the difference exceeds the uncertainty of the fit."""
        return abs(self.fitted - self.ours) > SURE * self.error + 1e-9


class Fitted(NamedTuple):
    """The coefficients of one kernel's model with their standard errors, and the relative residual."""

    values: np.ndarray
    errors: np.ndarray
    residual: float


class Fit(NamedTuple):
    """All fitted numbers, the relative residual of each kernel's measurements, and the number of engines that trigger
    transfers."""

    constants: list[FittedNumber]
    residuals: dict[str, float]
    issuers: int


CHAIN = "vector_chain"
STREAMS = (                     # kernel, its instructions for each of ``reps``, engine, law
    ("vector_stream", CHAINS, Engine.VECTOR, "tensor_scalar"), (CHAIN, 1, Engine.VECTOR, "tensor_scalar"),
    ("scalar_stream", CHAINS, Engine.SCALAR, "activation"),
    ("gpsimd_stream", CHAINS, Engine.GPSIMD, "tensor_scalar"),
    ("tensor_stream", BANKS, Engine.TENSOR, "product.bfloat16"))
Features = Callable[[Measurement], Sequence[float]]


def least_squares(name: str, rows: Sequence[Measurement], features: Features, file: str) -> Fitted:
    """Return the coefficients with the least relative errors. Raise ``BadMeasurements`` if the rows do not determine
    them.
    """
    times = np.array([row.ns for row in rows], np.float64)
    matrix = np.array([features(row) for row in rows], np.float64) / times[:, None] if rows else np.zeros((0, 1))
    scale = np.abs(matrix).max(0, initial=0.0)
    relative = matrix / np.where(scale, scale, 1.0)
    normal = relative.T @ relative              # singular, too, where times differ by many orders of magnitude
    if not scale.all() or np.linalg.matrix_rank(normal) < len(normal):
        raise BadMeasurements.at_line(file, 1, f"{len(rows)} rows of {name} cannot determine its cost: "
                              "measure every case")
    values, *_ = np.linalg.lstsq(relative, np.ones(len(rows)), rcond=None)
    off = relative @ values - 1.0
    free = max(1, len(rows) - len(values))
    variance = float(off @ off) / free
    covariance = variance * np.linalg.inv(normal)
    return Fitted(values / scale, np.sqrt(np.diag(covariance)) / scale, variance ** 0.5)


def instructions(count: int, rows: Sequence[Measurement]) -> Features:
    """Return the features of a kernel that executes ``count`` times ``reps`` instructions: the number of instructions,
    the number of their elements, and for each size whether the instructions have it."""
    sizes = sorted({row.elements for row in rows})
    return lambda row: (count * row.reps, count * row.reps * row.elements, *(row.elements == size for size in sizes))


def shortest(count: int, rows: Sequence[Measurement]) -> Features:
    """Return the features of kernels that measure the least time of an instruction: the number of instructions, and an
    indicator for each size."""
    sizes = sorted({row.elements for row in rows})
    return lambda row: (count * row.reps, *(row.elements == size for size in sizes))


def least_elements(machine: Machine, engine: Engine, name: str) -> float:
    """Return the number of elements of a partition up to which an instruction always takes the same time."""
    costs = machine.costs.engines[engine]
    law = costs.law(name)
    return float((costs.least_cycles if law.least is None else law.least) / law.per_element)


def fit(measurements: Sequence[Measurement], machine: Machine, file: str = "the measurements") -> Fit:
    """Fit the numbers of a machine on measurements of all kernels. Raise ``BadMeasurements`` if they do not suffice."""
    fits: dict[str, Fitted] = {}
    constants = []
    _check_growth(measurements, file)
    for kernel, count, engine, law in STREAMS:
        rows, least = [row for row in measurements if row.kernel == kernel], least_elements(machine, engine, law)
        limited = [row for row in rows if row.elements < least]
        longer = [row for row in rows if row.elements >= least]
        fits[kernel] = least_squares(kernel, longer, instructions(count, longer), file)
        if kernel == CHAIN:
            continue
        constants += _of_engine(fits[kernel], machine, engine, law)
        if limited:
            name = f"short {kernel}"
            fits[name] = least_squares(kernel, limited, shortest(count, limited), file)
            constants.append(_shortest(fits[name], machine, engine, law))
    moved = [row for row in measurements if row.kernel == "transfers"]
    fits["short transfers"] = least_squares("transfers", [row for row in moved if row.elements <= SHORT],
                                            lambda row: (1.0, 2 * row.reps), file)
    fits["long transfers"] = least_squares("transfers", [row for row in moved if row.elements > SHORT],
                                           lambda row: (1.0, 2 * row.reps * row.elements * LANE_BYTES), file)
    chain, stream = fits[CHAIN], fits["vector_stream"]
    constants.append(FittedNumber("vector result in engine", "ns",
                              float(machine.costs.engines[Engine.VECTOR].result_in_engine_ns),
                              float(chain.values[0] - stream.values[0]),
                              float(np.hypot(chain.errors[0], stream.errors[0]))))
    concurrent = [row for row in measurements if row.kernel == "transfers_beside"]
    if concurrent:                  # a file of an earlier release has no such rows
        fits["transfers_beside"] = least_squares("transfers_beside", concurrent, lambda row: (1.0, row.reps), file)
    dma, long = machine.costs.dma, fits["long transfers"]
    issuers, issue_ns, error = _issue(fits)
    constants.append(FittedNumber("transfer issue", "ns", float(dma.issue_ns), issue_ns, error))
    round_trip_ns = dma.descriptor(LONG) + dma.descriptor(LONG, stores=True)         # each round loads and stores
    _check_units(constants, machine, file)
    rate = min(machine.hbm_bytes_per_ns(1), 2 * LONG / round_trip_ns * machine.dma_engines)
    constants.append(FittedNumber("transfer rate of a core", "bytes/ns", rate, float(1 / long.values[1]),
                              float(long.errors[1] / long.values[1] ** 2)))
    return Fit(constants, {kernel: fitted.residual for kernel, fitted in fits.items()}, issuers)


def _issue(fits: dict[str, Fitted]) -> tuple[int, float, float]:
    """Return how many engines trigger transfers, the ns of a trigger, and its standard error."""
    short, concurrent = fits["short transfers"], fits.get("transfers_beside")
    ns, error = float(short.values[1]), float(short.errors[1])
    if concurrent is None:
        return 1, ns, error
    work = [float(fits[kernel].values[0] + fits[kernel].values[1] * BESIDE) / 2
            for kernel in ("scalar_stream", "gpsimd_stream")]
    alone, shared = max(2 * ns, *work), max(2 * ns + sum(work) / ISSUERS, *work)    # a round loads and stores
    if float(concurrent.values[1]) ** 2 <= alone * shared:
        return 1, ns, error
    return ISSUERS, (ISSUERS * float(concurrent.values[1]) - sum(work)) / 2, ISSUERS * float(concurrent.errors[1]) / 2


def _check_growth(measurements: Sequence[Measurement], file: str) -> None:
    """Raise ``BadMeasurements`` if a kernel takes no longer with more instructions."""
    cases: dict[tuple[str, int], dict[int, list[float]]] = {}
    for row in measurements:
        cases.setdefault((row.kernel, row.elements), {}).setdefault(row.reps, []).append(row.ns)
    for (kernel, elements), times in cases.items():
        few, many = min(times), max(times)
        least, most = median(times[few]), median(times[many])
        if few < many and most <= least:
            raise BadMeasurements.at_line(file, 1, f"{kernel} of {elements} elements takes {most:g} ns with "
                                  f"{many} repetitions, {least:g} ns with {few}: time grows with repetitions")


def _check_units(constants: Sequence[FittedNumber], machine: Machine, file: str) -> None:
    """Raise ``BadMeasurements`` if costs are so far from the machine's that the times have a unit other than ns."""
    ratio = median(constant.fitted / constant.ours for constant in constants if constant.ours)
    if not 1 / UNLIKE < ratio < UNLIKE:
        raise BadMeasurements.at_line(file, 1, f"instructions take {ratio:.3g} times as long as on "
                              f"{machine.name}: the column ns has another unit, or the target is another one")


def _of_engine(fitted: Fitted, machine: Machine, engine: Engine, name: str) -> list[FittedNumber]:
    """Return the cycles of each element of an instruction, and of the instruction itself."""
    costs, clock = machine.costs.engines[engine], machine.clocks[engine]
    law = costs.law(name)
    fixed = float(law.passes * law.fixed + costs.overhead_cycles)
    kind = name.partition(".")[0]
    return [FittedNumber(f"{engine.value} {kind}: each element", "cycles", float(law.passes * law.per_element),
                     float(fitted.values[1] * clock), float(fitted.errors[1] * clock)),
            FittedNumber(f"{engine.value} {kind}: fixed part", "cycles", fixed, float(fitted.values[0] * clock),
                     float(fitted.errors[0] * clock))]


def _shortest(fitted: Fitted, machine: Machine, engine: Engine, name: str) -> FittedNumber:
    """Return the cycles of an instruction on one element of each partition."""
    clock = machine.clocks[engine]
    return FittedNumber(f"{engine.value} {name.partition('.')[0]}: shortest", "cycles",
                        machine.costs.engines[engine].cycles(Work(name, 1)), float(fitted.values[0] * clock),
                        float(fitted.errors[0] * clock))
