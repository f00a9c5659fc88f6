"""References to environment variables in a container's command, $(NAME), which the kubelet replaces by their values.

The kubelet only knows variables that it sets itself. With --delivery nri, references to variables of a device plugin remain. Pure.

Source: kubelet pkg/kubelet/container/helpers.go, ExpandContainerCommandAndArgs, and third_party/forked/golang/expansion/expand.go @
1.37.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

# $$ is a plain $
_IN_SPEC = re.compile(r"\$(?:\$|\(([^)]*)\))")
_LEFT = re.compile(r"\$\(([^)]*)\)")


def references(command: Iterable[str]) -> Iterator[str]:
    """Names of variables in a pod's spec."""
    return (found[1] for word in command for found in _IN_SPEC.finditer(_closed(word)) if found[1] is not None)


def arguments(args: Collection[str], envs: Mapping[str, str], named: Collection[str] | None) -> list[str]:
    """Expand variables in a process's arguments; empty if nothing changes. named: names that its pod refers to; None: any."""
    values = {name: value for name, value in envs.items() if named is None or name in named}
    found = [_replaced(word, values) for word in args if values]
    return found if found != list(args) else []


def _replaced(word: str, values: Mapping[str, str]) -> str:
    closed = _closed(word)
    return _LEFT.sub(lambda reference: values.get(reference[1], reference[0]), closed) + word[len(closed) :]


def _closed(word: str) -> str:
    """The part with all references: a search for the end of each $( would read the rest of a word without an end."""
    return word[: word.rfind(")") + 1]
