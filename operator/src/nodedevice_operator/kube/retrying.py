"""Sends a request again while the API server is unreachable or busy. Decides by nodedevice_kube.retries."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.retries import Retries

T = TypeVar("T")


async def retrying(
    send: Callable[[], Awaitable[T]],
    retried: type[ApiError] | tuple[type[ApiError], ...],
    pauses: Retries,
    *,
    most: float = float("inf"),
    failed: Callable[[ApiError], None] = lambda _: None,
) -> T:
    """Calls it until it succeeds, at most so many times. Raises the last of the retried errors, and any other at once."""
    while True:
        try:
            return await send()
        except retried as error:
            if pauses.failures + 1 >= most:
                raise
            failed(error)
            await asyncio.sleep(pauses.failed(error, random.random()))
