"""What becomes of watches that a library opens over a session of ours.

A library that retries a watch without the right to it does so in silence: here its refusals count as ours do.
"""

from typing import Final

import aiohttp

from nodedevice_operator.errors import Forbidden
from nodedevice_operator.kube.health import ApiHealth

_FORBIDDEN: Final = 403


def reporting_watches(health: ApiHealth) -> aiohttp.ClientMiddlewareType:
    """Report each watch that is opened or forbidden; other requests and answers pass."""

    async def report(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        response = await handler(request)
        if "watch" in request.url.query:
            kind = request.url.name
            if response.status == _FORBIDDEN:
                health.failed(Forbidden("watch", kind, f"HTTP {_FORBIDDEN}", _FORBIDDEN))
            elif response.ok:
                health.succeeded("watch", kind)
        return response

    return report
