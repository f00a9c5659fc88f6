"""What the operator says in its log, one test at a time."""

from typing import Any

from hack.cluster.waiting import wait_until
from tests.integration.operator_process import OperatorProcess


class Told:
    """What the operator has logged since the test began."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._first = len(operator.lines())

    def lines(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self._operator.lines()[self._first :] if line["event"] == event]

    def wait(self, event: str) -> dict[str, Any]:
        """Wait for such a line; it must stay the only one."""
        wait_until(lambda: bool(self.lines(event)), f"the operator logs {event!r}")
        return self.lines(event)[0]
