"""Which names an extended resource may have, by the API server's own rules. The CRD's CEL says the same."""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
# `requests.<name>` must stay a valid name for quotas, and a domain has at most 253 characters
MAX_DOMAIN = 253 - len("requests.")


def resource_name_problem(resource_name: str) -> str:
    """What is wrong with an extended resource's name, as a sentence that says what to do; empty when nothing is."""
    domain, slash, name = resource_name.partition("/")
    if not slash:
        return "must be domain/name, such as vendor.com/gpu"
    if "kubernetes.io/" in resource_name:
        return "names in kubernetes.io are reserved by Kubernetes; use a domain of your own, such as vendor.com/gpu"
    if resource_name.startswith("requests."):
        return "a name that begins with requests. is read by Kubernetes as a quota; use another domain"
    if len(domain) > MAX_DOMAIN:
        return f"the domain may have at most {MAX_DOMAIN} characters"
    if not DOMAIN.fullmatch(domain):
        return "the part before the slash must be a lower-case DNS name, such as vendor.com"
    if not NAME.fullmatch(name):
        return "the part after the slash must be 1 to 63 of letters, digits, - _ . and begin and end with a letter or digit"
    return ""


def is_extended_resource(resource_name: str) -> bool:
    """Whether a name in a container's limits is an extended resource: what the API server takes for one."""
    return "/" in resource_name and "kubernetes.io/" not in resource_name and not resource_name.startswith("requests.")
