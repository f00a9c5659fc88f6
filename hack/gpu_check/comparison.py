"""Compares the responses of two NVMLs to the same calls. Pure: surveys in, findings out.

Numbers are never compared, since every machine has its own. Types are: code that was tested with one must accept the
other's responses. A call that only one of them supports is noted, but is not a fault: GPUs differ in their features.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Survey = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """is_fault: the two cannot take each other's place; otherwise it is only good to know."""

    function: str
    real: str
    fake: str
    is_fault: bool


def compare(real: Survey, fake: Survey) -> list[Finding]:
    """Differences, faults first."""
    ours, theirs = outcomes(fake), outcomes(real)
    findings = [*_missing(real, fake)]
    for function in sorted(ours.keys() & theirs.keys()):
        shapes_differ = _shapes(theirs[function]) != _shapes(ours[function])
        # an empty list, or a refusal on one side, does not reveal types
        is_fault = shapes_differ and bool(_shapes(theirs[function])) and bool(_shapes(ours[function]))
        if is_fault or theirs[function] != ours[function]:
            findings.append(Finding(function, _written(theirs[function]), _written(ours[function]), is_fault))
    return sorted(findings, key=lambda finding: (not finding.is_fault, finding.function))


def outcomes(survey: Survey) -> dict[str, frozenset[str]]:
    """All outcomes by function: `error N`, or the shape of the value."""
    gathered: dict[str, set[str]] = {}
    for function, answer in _answers(survey):
        gathered.setdefault(function, set()).add(f"error {answer['error']}" if "error" in answer else answer["shape"])
    return {function: frozenset(found) for function, found in gathered.items()}


def refused(survey: Survey) -> dict[str, dict[int, int]]:
    """Errors of each function about a GPU, with the number of GPUs."""
    counted: dict[str, dict[int, int]] = {}
    for gpu in survey["gpus"]:
        for function, answer in gpu["calls"].items():
            if "error" in answer:
                errors = counted.setdefault(function, {})
                errors[answer["error"]] = errors.get(answer["error"], 0) + 1
    return counted


def _answers(survey: Survey) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from survey["system"].items()
    for gpu in survey["gpus"]:
        yield from gpu["calls"].items()
        for link in gpu["links"]:
            yield from ((f"nvmlDeviceGetNvLink{what}()", answer) for what, answer in link.items())
        for device in gpu["mig"]:
            yield from ((f"MIG device: {what}", answer) for what, answer in device.items())
    for pair in survey["pairs"].values():
        yield from pair.items()
    for part in ("events", "wrong use"):
        yield from ((f"{part}: {what}", answer) for what, answer in survey[part].items())


def _missing(real: Survey, fake: Survey) -> Iterator[Finding]:
    for symbol in sorted(set(fake["symbols"]) - set(real["symbols"])):
        yield Finding(symbol, "not there", "there", is_fault=True)


def _shapes(found: frozenset[str]) -> frozenset[str]:
    return frozenset(one for one in found if not one.startswith("error ") and one != "[]")


def _written(found: frozenset[str]) -> str:
    return " or ".join(sorted(found))
