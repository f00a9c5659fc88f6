"""What pynvml answers, as plain values. A text that is none, from firmware that is damaged, is left out."""

from collections.abc import Iterator
from typing import Any

from nodedevice_agent.plugins.nvml.gpu import sysfs_bus_id

_WORD_BITS = 64


def text(value: Any) -> str:
    """Older bindings answer bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def bus_id(pci_info: Any) -> str:
    """As sysfs spells it; empty where there is none to be had. None is an answer that did not come."""
    try:
        # the binding decodes when it is read
        return sysfs_bus_id(text(pci_info.busId)) if pci_info is not None else ""
    except UnicodeDecodeError:
        return ""


def first_bit(words: Any) -> int | None:
    """The lowest that is set in a mask of several words."""
    return next(_bits(words), None)


def _bits(words: Any) -> Iterator[int]:
    return (
        index * _WORD_BITS + bit
        for index, word in enumerate(words)
        for bit in range(_WORD_BITS)
        if int(word) >> bit & 1
    )
