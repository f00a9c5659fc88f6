"""Xids, the driver's error numbers: what NVIDIA's catalog says of them. Pure.

Unlisted Xids are critical: new drivers have new ones, and taking out a healthy GPU costs less than allocating a broken one.
Settings override both ways. Where the driver reports a recovery action, its word counts instead, a second after the Xid.
Source: NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors).
"""

# Faults of the program on the GPU, which was ended, or events that the driver has already handled.
APPLICATION_XIDS = {
    8: "GPU stopped processing: a program's work timed out",
    13: "Graphics engine exception: a program accessed memory or used instructions wrongly",
    31: "GPU memory page fault: a program used an address that is not its own",
    43: "GPU stopped processing: a program was reset after its own fault",
    45: "Preemptive cleanup: a program's channels were removed, for it ended or for an earlier error",
    63: "A memory page was retired or a row remapped, in time; active after the next reset",
    68: "Video decoder exception caused by a program",
    94: "Contained memory error: the program that met it was ended",
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
    95: "Uncontained memory error",
    109: "Context switch timeout: the GPU did not change from one program to another",
    119: "GSP firmware does not respond",
    120: "GSP firmware error",
    121: "Chip-to-chip NVLink error",
    140: "Unrecovered ECC error",
    143: "GPU initialization error",
}

# Each reports an uncorrectable ECC error, which the GPU counts as well.
ECC_XIDS = frozenset({48, 94, 95, 140})


def meaning(xid: int) -> str:
    """The Xid's meaning in a few words; "" if unknown."""
    return CRITICAL_XIDS.get(xid) or APPLICATION_XIDS.get(xid, "")


def named(xid: int) -> str:
    """The Xid with its meaning, if known."""
    words = meaning(xid)
    return f"Xid {xid} ({words})" if words else f"Xid {xid}"
