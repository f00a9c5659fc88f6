"""The rows of `make bench-cli` about the page of `kubectl nodedevice open`, in Chromium, while the cluster has all its NodeDevices.

A change is timed from before its write until the page's own elements have changed, so it includes the API server's part.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import psutil
from playwright.async_api import Page, async_playwright

from hack.bench.results import Result, judged, result, worst
from tests.cluster.errors import ClusterError
from tests.cluster.processes.processes import running

_CHANGES: Final = 30
_LOAD_MS: Final = 600_000.0
_SIZE: Final[Any] = {"width": 1200, "height": 800}
# Notes when the first row is an element, when the first square of the page changes its class, and each long task.
_OBSERVED: Final = """
window.seen = { rows: 0, changes: [], tasks: [0], classes: "" };
new PerformanceObserver((list) => list.getEntries().forEach((each) => seen.tasks.push(each.duration)))
  .observe({ type: "longtask", buffered: true });
new MutationObserver(() => {
  const row = document.querySelector(".row"), squares = row ? [...row.querySelectorAll("a.sq")] : [];
  if (row && !seen.rows) seen.rows = performance.now();
  const classes = squares.map((each) => each.className).join();
  if (seen.classes && classes !== seen.classes) seen.changes.push(Date.now() / 1000);
  seen.classes = classes;
}).observe(document, { subtree: true, childList: true, attributes: true });
"""
# The time of the first change after so many. The page's policy forbids playwright's wait_for_function.
_NEXT: Final = """
(count) => new Promise((done) => {
  const look = () => (seen.changes.length > count ? done(seen.changes[count]) : setTimeout(look, 20));
  look();
})
"""


async def measure(
    environment: Mapping[str, str], chromium: str, change: Callable[[int], Awaitable[object]]
) -> dict[str, Result]:
    """change: writes the NodeDevice of the page's first row, each time with another health of a device. Raises ClusterError."""
    command = [sys.executable, "-u", "-m", "kubectl_nodedevice", "open", "--no-browser"]
    with running(command, env=dict(environment), stdout=subprocess.PIPE, text=True) as opened:
        address = await asyncio.to_thread(_address, opened)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page(viewport=_SIZE)
            # the first page waits for the cluster's lists, the second one only for the browser
            await _loaded(page, address)
            await page.goto("about:blank")
            await page.add_init_script(_OBSERVED)
            await _loaded(page, address)
            first = await page.evaluate(
                "seen.rows - performance.getEntriesByName(`${location.origin}/api/fleet`)[0].responseEnd"
            )
            seconds = [await _change(page, change, number) for number in range(_CHANGES)]
            elements = 0
            for _ in range(10):
                await page.mouse.wheel(0, 20_000)
                await page.wait_for_timeout(200)
                elements = max(elements, await page.evaluate("document.querySelectorAll('*').length"))
            longest = max(await page.evaluate("seen.tasks"))
            await browser.close()
        mib = (
            sum(each.memory_info().rss for each in [psutil.Process(opened.pid), *psutil.Process(opened.pid).children()])
            / 2**20
        )
    return {
        "page_change": result(seconds, "s", 0.5),
        "page_change_p99": judged(worst(seconds), worst(seconds), "s", 0.5, _CHANGES),
        "page_first_rows": _single(first / 1000, "s", 2.0),
        "page_task": _single(longest / 1000, "s", 0.2),
        "page_elements": _single(elements, "", 3000),
        "page_memory": _single(mib, "MiB", 250.0),
    }


def _single(value: float, unit: str, goal: float) -> Result:
    return judged(value, value, unit, goal, 1)


def _address(opened: "subprocess.Popen[str]") -> str:
    """The address that the command prints."""
    assert opened.stdout is not None
    printed = ""
    for line in opened.stdout:
        if found := re.search(r"http://\S+", line):
            return found[0]
        printed += line
    raise ClusterError(f"kubectl nodedevice open printed no address: {printed}")


async def _loaded(page: Page, address: str) -> None:
    await page.goto(address)
    await page.locator(".row").first.wait_for(timeout=_LOAD_MS)
    await page.get_by_text("live", exact=True).wait_for(timeout=_LOAD_MS)


async def _change(page: Page, change: Callable[[int], Awaitable[object]], number: int) -> float:
    """Seconds from a write until the page shows it. Writes come at any moment of the command's pauses."""
    await page.wait_for_timeout(200 + 37 * number % 300)
    before = await page.evaluate("seen.changes.length")
    began = time.time()
    await change(number)
    async with asyncio.timeout(_LOAD_MS / 1000):
        return float(await page.evaluate(_NEXT, before)) - began
