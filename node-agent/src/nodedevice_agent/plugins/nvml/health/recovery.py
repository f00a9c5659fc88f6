"""What the driver wants done for a GPU to be itself again.

Source: NVML API reference, nvmlDeviceGpuRecoveryAction_t; the numbers are NVML's.
"""

NOTHING = 0
RESET = 1
_WORDS = {
    RESET: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of its peer-to-peer traffic",
    4: "draining the GPU, then a reset",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}
# done, the GPU has been reset
RESETS = frozenset({RESET, 2, 4, 6, 7})


def words(action: int) -> str:
    """For people; newer drivers may ask for what is not known here."""
    return _WORDS.get(action, f"recovery action {action}")
