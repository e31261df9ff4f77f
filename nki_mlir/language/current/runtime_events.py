# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``SystemTraceSession``: records start and stop events of executions of loaded kernels, with predicted times."""

import json
from typing import Any

_sessions: "list[SystemTraceSession]" = []
_clock: list[int] = [0]                 # predicted ns of all executions so far


def note_execution(milliseconds: float, first_core: int, cores: int) -> None:
    """Add a start and a stop event per core for an execution to all open sessions, and advance the clock."""
    began, ended = _clock[0], _clock[0] + round(1e6 * milliseconds)
    _clock[0] = ended
    for session in _sessions:
        session.executions += 1
        for core in range(first_core, first_core + cores):
            session.tracked += 1
            for phase, time in (("start", began), ("stop", ended)):
                session.events.append({
                    "event_type": "nc_exec_running", "phase": phase, "tracking_id": session.tracked,
                    "timestamp_ns": time, "nc_idx": first_core,
                    "data": {"nc_timestamp_ns": time, "exec_id": session.executions,
                             "device_core_idx": core}})


class SystemTraceSession:
    """Records the executions of kernels while it is open (as a context manager).

    Arguments:
        core_id: the core to record; None records all cores

    Errors:
        None.

    Example:
        with SystemTraceSession(core_id=0) as session:
            assert json.loads(session.fetch_events_json()) == {"events": [], "source": "model"}
    """

    def __init__(self, core_id: int | None = None) -> None:
        self.core_id, self.events, self.executions, self.tracked = core_id, list[dict[str, Any]](), 0, 0

    def fetch_events_json(self) -> str:
        """Return the events so far as JSON text, and remove them."""
        events, self.events = self.events, []
        return json.dumps({"events": [e for e in events if self.core_id in (None, e["nc_idx"])], "source": "model"})

    def drain_events(self) -> None:
        """Remove the events so far."""
        self.events = []

    def stop(self) -> None:
        """Stop recording."""
        if self in _sessions:
            _sessions.remove(self)

    def __enter__(self) -> "SystemTraceSession":
        _sessions.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
