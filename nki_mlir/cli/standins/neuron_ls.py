# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuron-ls``: list the modeled device in the form of the vendor's tool, for programs that look up the cores.

There is a single device of the target's kind, with the cores that ``NEURON_RT_VISIBLE_CORES`` names.
"""

import json
import os
import sys
from collections.abc import Sequence

from nki_mlir.cli.command import CommandParser, command_line, exit_status
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.environment import TARGET
from nki_mlir.machine import machine_named
from nki_mlir.version import __version__

INSTANCES = {"trn1": "trn1.2xlarge", "trn2": "trn2.3xlarge", "trn3": "trn3pd98.3xlarge"}
MEMORY = {"trn1": 32 << 30, "trn2": 96 << 30, "trn3": 144 << 30}           # bytes of a device
CORES = 64


class VisibleCores(NkiMlirError):
    code = "NKI-VISIBLE-CORES"
    message = "NEURON_RT_VISIBLE_CORES={text} names no cores"
    fix = "write core numbers and ranges, for example 0 or 0,1 or 0-3"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    p = CommandParser(prog="neuron-ls", description="List the modeled device. A "
                                "stand-in of nki_mlir for the vendor's tool.")
    p.add_argument("--version", action="version", version=f"neuron-ls of nki_mlir {__version__}")
    p.add_argument("-j", "--json-output", action="store_true", help="print JSON")
    for flags in (["-w", "--wide"], ["-a", "--show-all-procs"], ["-t", "--topology"]):
        p.add_argument(*flags, action="store_true", help="accept the option without an effect")
    options = p.parse_args(command_line(arguments))
    return exit_status(lambda: show(options.json_output))


def visible_cores() -> list[int]:
    """Return the cores that the environment names, or core 0 if it names none. Raise ``VisibleCores``."""
    text = os.environ.get("NEURON_RT_VISIBLE_CORES", "").strip() or "0"
    cores: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            cores += range(int(first), min(int(last or first), int(first) + CORES) + 1)
    except ValueError:
        cores = []
    if not cores:
        raise VisibleCores(text=text)
    return cores


def device() -> dict[str, object]:
    """Return the record of the device."""
    machine, cores = machine_named(TARGET.text() or "trn2"), visible_cores()
    family = machine.name if machine.name in INSTANCES else "trn2"
    lnc = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1")
    return {"neuron_device": 0, "bdf": "00:00.0", "cpu_affinity": "0", "numa_node": "0", "connected_to": None,
            "nc_count": len(cores), "logical_neuroncore_config": int(lnc) if lnc.isdecimal() else 1,
            "memory_size": MEMORY[family], "neuroncore_ids": cores, "neuron_processes": [],
            "instance_type": INSTANCES[family], "instance_id": "model"}


def show(as_json: bool) -> int:
    """Print the device, as JSON or as a table."""
    figures = device()
    if as_json:
        print(json.dumps([figures]))
        return 0
    print(f"instance-type: {figures['instance_type']}\ninstance-id: {figures['instance_id']}\n"
          f"logical-neuroncore-config: {figures['logical_neuroncore_config']}\n"
          "+--------+--------+--------+\n| NEURON | NEURON | NEURON |\n| DEVICE | CORES  | MEMORY |\n"
          "+--------+--------+--------+\n"
          f"| {0:<6} | {figures['nc_count']:<6} | {MEMORY[str(figures['instance_type'])[:4]] >> 30:<3} GB |\n"
          "+--------+--------+--------+")
    return 0


if __name__ == "__main__":
    sys.exit(main())
