"""The client core's credentials for aiohttp: one API server and one identity, for every client of the process."""

from typing import Any, Final

import aiohttp
from nodedevice_common.threads import Shared
from nodedevice_kube import credentials
from nodedevice_kube.credentials import Access
from nodedevice_kube.errors import ConnectionProblem
from yarl import URL

from nodedevice_operator.errors import CredentialsError

# How long a log-in program of a kubeconfig may take.
_EXEC_SECONDS: Final = 30.0


class Credentials:
    """namespace: the one that the pod, or the kubeconfig's context, is in; None if neither names one.

    cluster: the API server, and where its settings come from, for messages.
    """

    def __init__(self, core: credentials.Credentials) -> None:
        self._core = core
        self._refreshed = Shared(self.access_now)
        self.server = core.settings.server
        self.namespace = core.settings.namespace or None
        self.cluster = f"{self.server} ({core.settings.origin})"

    async def access(self) -> Access:
        """What a request made now is sent with. Raises CredentialsError."""
        return await self._refreshed.result() if self._core.is_due else self._core.current

    def access_now(self) -> Access:
        """The same in a thread; blocks while a log-in program runs."""
        try:
            return self._core.refresh()
        except ConnectionProblem as exc:
            raise CredentialsError(str(exc)) from exc

    def refused(self, access: Access) -> None:
        """The API server did not accept these: renew them before the next request."""
        self._core.refused(access)

    def transport_options(self) -> dict[str, Any]:
        """Parameters of aiohttp.ClientRequest: TLS and proxy."""
        options: dict[str, Any] = {}
        if self._core.current.tls is not None:
            options["ssl"] = self._core.current.tls
        if self._core.proxy is not None:
            options["proxy"] = self._core.proxy.url
            if self._core.proxy.authorization:
                options["proxy_headers"] = {"Proxy-Authorization": self._core.proxy.authorization}
        return options

    @property
    def way(self) -> str:
        """For messages about a failed connection: `, by the proxy http://…`, or nothing."""
        return f", by the proxy {self._core.proxy.url}" if self._core.proxy is not None else ""

    def requests(self, base: type[aiohttp.ClientRequest]) -> type[aiohttp.ClientRequest]:
        """That class of requests, for an aiohttp session, with TLS and proxy of the moment at which one is made."""
        options = self.transport_options

        class Request(base):  # type: ignore[misc,valid-type]  # a class that is chosen at run time
            def __init__(self, *args: Any, **parameters: Any) -> None:
                own = options()
                if "proxy" in own:
                    own["proxy"] = URL(own["proxy"])
                super().__init__(*args, **{**parameters, **own})

        return Request


def load(kubeconfig: str | None) -> Credentials:
    """Credentials of that kubeconfig; without one of $KUBECONFIG or ~/.kube/config, else of the pod's service account.

    Raises CredentialsError.
    """
    try:
        return Credentials(credentials.load(kubeconfig or "", exec_seconds=_EXEC_SECONDS))
    except ConnectionProblem as exc:
        raise CredentialsError(str(exc)) from exc
