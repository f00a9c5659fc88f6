"""Each origin of input, with its largest object as often as it may come: a row of the table in docs/security.md each.

A row is an async generator: what it does up to its `yield` is there before the agent starts, and what follows comes while it runs.
A row whose origin comes with the runtime, the kubelet, plugins or files is in a file of its own beside this one.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final

from tests.robustness.memory import api_server_rows, kubelet_rows, resource_rows, runtime_rows
from tests.robustness.memory.scene import Scene

Row = Callable[[Scene], AsyncGenerator[None, None]]

ROWS: Final[tuple[Row, ...]] = (*api_server_rows.ROWS, *kubelet_rows.ROWS, *resource_rows.ROWS, *runtime_rows.ROWS)
