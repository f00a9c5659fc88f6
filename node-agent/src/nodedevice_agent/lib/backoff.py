"""How long to wait before trying again: doubling from a first pause up to a limit."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Pauses in seconds; one holder per thing that is retried."""

    first_seconds: float = 0.2
    limit_seconds: float = 30.0
    _next_seconds: float = 0.0

    def next(self) -> float:
        """The pause to make now, in seconds."""
        pause = self._next_seconds or self.first_seconds
        self._next_seconds = min(pause * 2, self.limit_seconds)
        return pause

    def reset(self) -> None:
        """It worked: begin with the first pause again."""
        self._next_seconds = 0.0
