"""Settings of the extender: flag, then environment variable, then configuration file, then default, like the operator's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta
from nodedevice_common import settings_loader

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.extender.filter_score import Policy
from nodedevice_operator.extender.server import Tls
from nodedevice_operator.leases.leader_election import LONGEST_LEASE_SECONDS
from nodedevice_operator.settings import NAMESPACE, ProgramSettings, check_instance, check_namespace, parsed

FilterResponse = Literal["best", "all"]

# A bind has the last quarter of the Lease to arrive, and its time limit at the API server is whole seconds.
SHORTEST_LEASE_SECONDS: Final = 4


class ExtenderSettings(ProgramSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Everything else that can be set.

    address: HOST:PORT for kube-scheduler's requests; loopback, as they need no certificate there.
    policy: which nodes are preferred: binpack, the fullest GPU on which the pod fits, so that others stay whole; or spread.
    filter_response: which nodes filter names: best, only the node that the policy prefers, for pods without preferences of their
        own; or all, each fitting node. kube-scheduler does not score a single node, and does not call prioritize.
    tls_certificate: PEM file with the certificate chain of `address`, read again when it changes; set all three files or none.
    tls_key: PEM file with the key for `address`.
    client_ca: PEM file of the authority that signed kube-scheduler's certificate.
    client_names: common or alternative names; kube-scheduler's certificate must have one of them. Empty: any.
    metrics_tls_certificate: PEM file with the certificate chain of http_address, read again when it changes; empty: plain HTTP.
    metrics_tls_key: PEM file with its key.
    leader_lease_seconds: duration of that Lease; after a crash another extender takes over when it has expired. The holder
        binds nothing after three quarters of it without a renewal; a bind has the last quarter to arrive.
    follow_lease: NAMESPACE/NAME of kube-scheduler's Lease: be active only while the kube-scheduler of the same pod holds it.
        Empty: always, for an extender behind a Service.
    """

    address: str = "127.0.0.1:8888"
    http_address: str = ":8081"
    policy: Policy = "binpack"
    filter_response: FilterResponse = "best"
    tls_certificate: str = ""
    tls_key: str = ""
    client_ca: str = ""
    client_names: tuple[str, ...] = ()
    metrics_tls_certificate: str = ""
    metrics_tls_key: str = ""
    leader_lease_seconds: Annotated[int, Meta(ge=SHORTEST_LEASE_SECONDS, le=LONGEST_LEASE_SECONDS)] = 8
    follow_lease: str = ""

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port of address. Raises OperatorSettingsError if it is not host:port."""
        return parsed("address", self.address)

    @property
    def tls(self) -> Tls | None:
        if not self.tls_certificate:
            return None
        return Tls(self.tls_certificate, self.tls_key, self.client_ca, frozenset(self.client_names))

    @property
    def followed(self) -> tuple[str, str] | None:
        namespace, _, name = self.follow_lease.partition("/")
        return (namespace, name) if name else None


def load(file: Path | None, given: Mapping[str, Any]) -> ExtenderSettings:
    """Settings from the file, with `given` on top (flags and environment; None: not given). Raises OperatorSettingsError."""
    try:
        settings = settings_loader.load(ExtenderSettings, file, given)
    except settings_loader.SettingProblem as exc:
        raise OperatorSettingsError(exc.source, exc.problem + _reason(exc)) from exc
    _check(settings)
    return settings


def _reason(problem: settings_loader.SettingProblem) -> str:
    if "leaderLeaseSeconds" in problem.problem or "leader-lease-seconds" in problem.source:
        return "; a bind has the last quarter of it to arrive, and no less than a second"
    return ""


def _check(settings: ExtenderSettings) -> None:
    """Refuse now what would be refused, or be no protection, when it is used. Raises OperatorSettingsError."""
    host, _ = settings.endpoint
    _ = settings.http_endpoint
    files = (settings.tls_certificate, settings.tls_key, settings.client_ca)
    if any(files) and not all(files):
        raise OperatorSettingsError(
            "tlsCertificate", "tlsCertificate, tlsKey and clientCa belong together: set all or none"
        )
    if settings.client_names and not settings.client_ca:
        raise OperatorSettingsError("clientNames", "needs clientCa, the authority that vouches for these names")
    if not any(files) and not _is_loopback(host):
        raise OperatorSettingsError(
            "address",
            f"{settings.address!r} can be reached from other machines, and any client there can bind pods: "
            "set tlsCertificate, tlsKey and clientCa, or use 127.0.0.1",
        )
    check_namespace("namespace", settings.namespace)
    check_instance(settings.instance)
    _check_followed(settings)


def _check_followed(settings: ExtenderSettings) -> None:
    if not settings.follow_lease:
        return
    followed = settings.followed
    if followed is None or not NAMESPACE.fullmatch(followed[0]) or "/" in followed[1]:
        problem = f"{settings.follow_lease!r} is not NAMESPACE/NAME, such as nodedevice-system/nodedevice-scheduler"
        raise OperatorSettingsError("followLease", problem)
    if not settings.leader_elect:
        raise OperatorSettingsError("followLease", "means nothing without leaderElect: set one of them")


def _is_loopback(host: str) -> bool:
    return host in {"localhost", "::1"} or host.startswith("127.")
