"""Whole numbers as people write them and as the API server stores them, by what they mean: one table for all programs.

The server keeps 1e3, +3, 003 and 1Ki letter for letter, and rewrites 1000 as 1k.
"""

from typing import Final

MOST: Final = 2**63 - 1
COUNTS: Final[dict[int | None, list[str]]] = {
    -MOST: ["-1e3000000"],
    -1: ["-1"],
    0: ["0", "+0", "000", "0e3000000", "0e-3000000"],
    1: ["1.", "1e0", "+1", "01", "1000m", "1000000u", f"0.{'0' * 5000}1e5001"],
    3: ["3", "+3", "003", "3e0", "3E0", "30e-1", "3.0"],
    8: ["8", "8000m", " 8 "],
    10: ["1e00000000000001", "1e1", "1E1", "1e+1"],
    500: [".5k"],
    1000: ["1k", "1e3", "+1k"],
    1024: ["1Ki"],
    1500: ["1.5k"],
    2000: ["2e3"],
    2048: ["2Ki"],
    1_000_000: ["1M"],
    1_048_576: ["1Mi"],
    10**9: ["1G"],
    2**30: ["1Gi"],
    10**18 - 1: ["9" * 18],
    10**18: ["1E"],
    MOST: [
        *("9223372036854775807", "9223372036854775808", "8Ei", "1e5000", "1e3000000", f"1e{'9' * 5000}"),
        *("9" * 19, "9" * 5000),
    ],
    None: [
        *("1500m", "1e-3000000", f"1e-{'9' * 5000}"),
        *("", "k", "1ik", "k1", "1x", "1K", "one", "NaN", "Infinity", "1_000", "1e", "e3", "+", "٣"),
        *("9" * 9999 + "!", "9" * 1_000_000),
    ],
}
CASES: Final = [(quantity, number) for number, same in COUNTS.items() for quantity in same]
