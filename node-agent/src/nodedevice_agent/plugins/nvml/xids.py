"""Xids, the error numbers of NVIDIA's driver: which ones mean a broken GPU, and how often they are logged.

Unlisted numbers are critical: new drivers have new ones, and taking out a healthy GPU costs less than allocating a broken one.
Settings override both ways.
Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors) and the practice of NVIDIA's own device plugin.
"""

from dataclasses import dataclass

# between two log lines about one Xid of one GPU
_LOG_SECONDS = 60.0
# of one GPU and one Xid; far more kinds than exist
_MAX_KINDS = 1000

# Faults of the program on the GPU, which was ended, or events that the driver has already handled.
APPLICATION_XIDS = {
    8: "GPU stopped processing: a program's work timed out",
    13: "Graphics engine exception: a program accessed memory or used instructions wrongly",
    31: "GPU memory page fault: a program used an address that is not its own",
    43: "GPU stopped processing: a program was reset after its own fault",
    45: "Preemptive cleanup: a program's channels were removed, for it ended or for an earlier error",
    63: "A memory page was retired or a row remapped, in time; active after the next reset",
    68: "Video decoder exception caused by a program",
    109: "Context switch timeout of a program",
    154: "The action for the GPU's recovery changed; which one it is, is read from the GPU",
}

# For messages only: the more common critical ones.
CRITICAL_XIDS = {
    32: "Invalid or corrupted push buffer stream",
    38: "Driver firmware error",
    46: "GPU stopped processing",
    48: "Uncorrectable (double bit) ECC error",
    61: "Internal microcontroller breakpoint or warning",
    62: "Internal microcontroller halt",
    64: "A memory page could not be retired, or a row not be remapped",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "High rate of single bit ECC errors",
    94: "Contained memory error: the program that met it was ended",
    95: "Uncontained memory error",
    119: "GSP firmware does not answer",
    120: "GSP firmware error",
    121: "Chip-to-chip NVLink error",
    140: "Unrecovered ECC error",
    143: "GPU initialization error",
}


def meaning(xid: int) -> str:
    """In a few words; empty when unknown."""
    return CRITICAL_XIDS.get(xid) or APPLICATION_XIDS.get(xid, "")


@dataclass(slots=True)
class _Kind:
    logged_at: float
    withheld: int = 0


class XidLogLimiter:
    """Limits the log of Xids: each kind is logged at once, then at most once a minute with its count. Pure."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def seen(self, uuid: str, xid: int, count: int, now: float) -> int:
        """How many to log now, including those withheld before; 0: none."""
        kind = self._kinds.get((uuid, xid))
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[(uuid, xid)] = _Kind(now)
            return count
        kind.withheld += count
        if now - kind.logged_at < _LOG_SECONDS:
            return 0
        count, kind.logged_at, kind.withheld = kind.withheld, now, 0
        return count
