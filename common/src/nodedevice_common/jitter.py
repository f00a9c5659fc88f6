"""Random spread of delays, so that many clients do not retry in step."""

import random


def jittered(seconds: float, spread: float) -> float:
    """`seconds`, give or take that share of it; spread: 0.2 for a fifth."""
    return seconds * random.uniform(1 - spread, 1 + spread)
