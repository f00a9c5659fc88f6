"""How long a watch waits before it begins anew: the longer, the more of them in a row brought nothing, and never long.

After an outage nobody knows what changed until a watch is open again, and one try a second costs an API server nothing.
"""

import asyncio
from typing import Final

from nodedevice_common.backoff import Backoff
from nodedevice_common.jitter import jittered

LONGEST_SECONDS: Final = 1.0
_SPREAD: Final = 0.2


class Pauses:
    """The pauses of one watch. first_seconds: the one after a watch that brought something; each after it is twice as long."""

    def __init__(self, first_seconds: float = 0.1) -> None:
        self._backoff = Backoff(first_seconds, LONGEST_SECONDS)

    def over(self) -> None:
        """The watch brought something: the next pause is a short one."""
        self._backoff.reset()

    def next_seconds(self) -> float:
        """How long the next pause is, which begins now."""
        return jittered(self._backoff.next(), _SPREAD)

    async def pause(self, at_least_seconds: float = 0.0) -> None:
        """Wait before the next try; at_least_seconds: as long as the API server asks for."""
        await asyncio.sleep(max(self.next_seconds(), at_least_seconds))
