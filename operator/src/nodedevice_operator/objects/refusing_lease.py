"""The Lease of an agent that refuses a configuration, as a watch of just these brings it. Pure."""

from dataclasses import dataclass, field

from nodedevice_operator.objects.unwatched import LeaseSchema, lease_record


@dataclass(frozen=True, slots=True)
class RefusingLease:
    """key: namespace and name. configs: what the agent of that node reports, as it wrote it. A renewal makes an equal record."""

    key: tuple[str, str]
    uid: str
    resource_version: int = field(compare=False)
    node: str
    configs: str


def refusing_lease(obj: LeaseSchema) -> RefusingLease:
    meta, lease = obj.metadata, lease_record(obj)
    return RefusingLease((meta.namespace, meta.name), meta.uid, lease.version, meta.name, lease.configs)
