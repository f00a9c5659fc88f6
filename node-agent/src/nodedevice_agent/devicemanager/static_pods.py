"""Matches mirror pods of the API to static pods, and their UIDs in the runtime.

The kubelet gives a static pod a hash as its UID. Its mirror pod in the API has another UID, and the hash in an annotation. Every
user who may create pods can set and change that annotation. It therefore counts only once the runtime has shown a sandbox with that
UID and the mirror pod's namespace and name: only a file on the node leads to one. Until then the pod gets no devices. The first
annotation of an object stays, a hash has one object, and the end of an object ends no other.

Source: kubelet pkg/kubelet/types/constants.go and pkg/kubelet/config/common.go, applyDefaults @ 1.37.
"""

import re
from collections.abc import Collection, Iterable

import msgspec
from msgspec import structs

from nodedevice_agent.devicemanager.pods import Pod

CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"
_HASH = re.compile("[0-9a-f]{32}")


def is_config_hash(uid: str) -> bool:
    """Whether it has the form of a static pod's UID; the API's UIDs have another form."""
    return _HASH.fullmatch(uid) is not None


class StaticPod(msgspec.Struct, frozen=True):
    """A static pod as the runtime has shown it; renamed as in the checkpoint's file."""

    uid: str = msgspec.field(name="PodUID")
    namespace: str = msgspec.field(name="Namespace")
    name: str = msgspec.field(name="Name")


class StaticPods:
    def __init__(self, known: Iterable[StaticPod] = ()) -> None:
        # by hash
        self.known = {pod.uid: pod for pod in known}
        # mirror pods as last seen, by UID in the API, with their first hash
        self._mirror_pods: dict[str, Pod] = {}
        # hash to UID in the API, of proven mirror pods
        self._uids: dict[str, str] = {}

    def synced(self, uids: Collection[str]) -> None:
        """uids: UIDs of all objects; others were deleted."""
        self._mirror_pods = {uid: pod for uid, pod in self._mirror_pods.items() if uid in uids}
        self._uids = {config_hash: uid for config_hash, uid in self._uids.items() if uid in uids}

    def seen(self, pod: Pod) -> Pod | None:
        """The pod with its UID in the runtime; None for an unproven mirror pod."""
        before = self._mirror_pods.get(pod.uid)
        if before is None and not pod.config_hash:
            return pod
        if before is not None:
            pod = structs.replace(pod, config_hash=before.config_hash)
        self._mirror_pods[pod.uid] = pod
        return self._proven(pod)

    def gone(self, uid: str) -> str:
        """Remove a deleted object. Returns the UID of its pod in the runtime."""
        pod = self._mirror_pods.pop(uid, None)
        if pod is None or self._uids.get(pod.config_hash) != uid:
            return uid
        del self._uids[pod.config_hash]
        return pod.config_hash

    def listed(self, found: Iterable[StaticPod], held: Collection[str]) -> list[Pod]:
        """Set all static pods that the runtime can reach; known ones with a mirror pod or devices stay. Returns the newly proven
        pods.
        """
        self.known = {uid: pod for uid, pod in self.known.items() if uid in self._uids or uid in held}
        return [proven for pod in found for proven in self.shown(pod)]

    def shown(self, static_pod: StaticPod) -> list[Pod]:
        """The runtime has a sandbox of it. Returns the newly proven pods."""
        if self.known.get(static_pod.uid) == static_pod:
            return []
        self.known[static_pod.uid] = static_pod
        claims = [pod for pod in self._mirror_pods.values() if pod.config_hash == static_pod.uid]
        return [proven for pod in claims if (proven := self._proven(pod)) is not None]

    def removed(self, uid: str) -> None:
        if uid not in self._uids:
            self.known.pop(uid, None)

    def of(self, uids: Collection[str]) -> tuple[StaticPod, ...]:
        return tuple(pod for uid, pod in self.known.items() if uid in uids)

    def mirrored_by(self, pod: Pod) -> str:
        """Returns the UID of the known static pod that this pod mirrors, "" for none."""
        known = self.known.get(pod.config_hash)
        is_same = known is not None and (known.namespace, known.name) == (pod.namespace, pod.name)
        return pod.config_hash if is_same else ""

    def _proven(self, pod: Pod) -> Pod | None:
        uid = self.mirrored_by(pod)
        if not uid or self._uids.setdefault(uid, pod.uid) != pod.uid:
            return None
        return structs.replace(pod, uid=uid, api_uid=pod.uid, config_hash="")
