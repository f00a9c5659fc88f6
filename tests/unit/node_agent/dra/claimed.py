"""Pods with claims, and what a kubelet shows of them, in one line each."""

from collections.abc import Iterable
from typing import Any, Final

from nodedevice_agent.devicemanager.pods import ClaimUse, Container, Pod, PodClaims, UnhealthyDevice
from nodedevice_agent.dra.holdings import Claim, Result
from nodedevice_agent.kubelet.readings import ClaimRow, PodReading

DRIVER: Final = "gpu.example.com"
POOL: Final = "node-1"
KEY: Final = (DRIVER, POOL)


def pod(name: str, *uses: ClaimUse | str, uid: str = "", ill: Iterable[UnhealthyDevice] = (), **state: Any) -> Pod:
    """uses: a word is the claim that its container `main` uses."""
    found = tuple(sorted(use if isinstance(use, ClaimUse) else ClaimUse("main", use) for use in uses))
    are_prepared = state.pop("are_prepared", True)
    claims = PodClaims(found, are_prepared, tuple(ill)) if found else None
    names = sorted({use.container for use in found}) or ["main"]
    return Pod(uid or f"uid-{name}", "default", name, tuple(map(Container, names)), claims=claims, **state)


def row(name: str, device: str = "gpu-0", claim: str = "claim", container: str = "main", **more: Any) -> ClaimRow:
    driver, pool = more.pop("driver", DRIVER), more.pop("pool", POOL)
    return ClaimRow("default", name, container, claim, driver, pool, device, **more)


def reading(*rows: ClaimRow, **more: Any) -> PodReading:
    return PodReading(None, (), is_listed=more.pop("is_listed", True), claim_rows=rows, **more)


def result(device: str = "gpu-0", request: str = "gpu", **more: Any) -> Result:
    return Result(request, more.pop("driver", DRIVER), more.pop("pool", POOL), device, **more)


def claim(*results: Result | str, uid: str = "claim-uid") -> Claim:
    return Claim(uid, tuple(each if isinstance(each, Result) else result(each) for each in results))
