"""Reads the cluster for one explanation. Notes a forbidden kind, and reads the rest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, TypeVar

from nodedevice_kube.api_errors import Forbidden, NotFound

from kubectl_nodedevice import release_namespaces
from kubectl_nodedevice.api import CORE, path_of
from kubectl_nodedevice.cluster import Json, Release
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why import facts as kinds_of
from kubectl_nodedevice.why import kinds
from kubectl_nodedevice.why.facts import Facts, Unread

T = TypeVar("T")
_FLEET_VIEW: Final = "nodedevice-fleet-view"
# The role that may read each kind; the role view may read the others.
_ROLES: Final[Mapping[str, str]] = {
    kinds_of.NODES: _FLEET_VIEW,
    kinds_of.NODE_DEVICES: _FLEET_VIEW,
    kinds_of.LEASES: _FLEET_VIEW,
    kinds_of.CLASSES: _FLEET_VIEW,
    kinds_of.SLICES: _FLEET_VIEW,
    kinds_of.POD_DEVICES: "nodedevice-view",
    kinds_of.WORKLOADS: "",
}


@dataclass
class Gathering:
    reader: Reader
    unread: list[Unread] = field(default_factory=list)

    @cached_property
    def release(self) -> Release:
        """Raises ApiError."""
        return release_namespaces.find(self.reader.api)

    def guarded(self, kind: str, read: Callable[[], T], otherwise: T) -> T:
        """Return the result of `read`; `otherwise` if the kind is forbidden, which is noted, or the cluster lacks it.

        Raises ApiError for other failures.
        """
        try:
            return read()
        except Forbidden:
            self.unread.append(Unread(kind, "you may not read them", _ROLES.get(kind, "view")))
        except NotFound:
            # an older release of Kubernetes, or a missing CRD
            pass
        return otherwise

    def all_of(self, kind: str, path: str, form: type[T], query: Mapping[str, str] | None = None) -> tuple[T, ...]:
        """Read each object of a kind as a record. Raises ApiError."""
        plural = kind.partition(".")[0]
        self.reader.screen.progress(f"reading {plural}")
        objects = self.reader.api.records(form, plural, path, query)
        return self.guarded(kind, lambda: tuple(objects), ())

    def one_of(self, kind: str, path: str, name: str, make: Callable[[Json], T]) -> T | None:
        """Build a value from one object; None if it is missing or forbidden. Raises ApiError."""
        return self.guarded(kind, lambda: make(self.reader.api.get(f"{kind.partition('.')[0]} {name}", path)), None)

    def record_of(self, kind: str, path: str, name: str, form: type[T]) -> T | None:
        """Return one object as a record; None if it is missing or forbidden. Raises ApiError."""
        return self.one_of(kind, path, name, partial(record_of, form))

    def facts(self, **found: Any) -> Facts:
        """To be called after all reads, as `now` is the clock of the API server."""
        self.reader.screen.end_progress()
        return Facts(self.reader.now, unread=tuple(self.unread), release=self.release, **found)

    def events(self, namespace: str, selector: str) -> tuple[kinds.Event, ...]:
        """Return the oldest Event first. Raises ApiError."""
        path = path_of(CORE, "events", namespace=namespace)
        found = self.all_of(kinds_of.EVENTS, path, kinds.Event, {"fieldSelector": selector})
        return tuple(sorted(found, key=lambda each: each.at))
