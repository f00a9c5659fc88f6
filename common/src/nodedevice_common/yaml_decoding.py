"""The entrance for YAML: files that people write. As `decoding`, with one error for whatever the library raises."""

from typing import Any

import yaml

from nodedevice_common.decoding import DEEPEST, Undecodable


def decode_yaml(text: bytes | str, loader: type[Any] = yaml.SafeLoader) -> Any:
    """What the one document holds, None where there is none. Raises Undecodable: a yaml.YAMLError is its cause, with the place.

    The library in C calls itself for each level until its thread's stack overflows, so that the depth is counted first.
    """
    try:
        _check_depth(text, loader)
        return yaml.load(text, Loader=loader)
    except Exception as exc:
        # odd dates, empty numbers and half characters leave the library as half a dozen exceptions besides its own
        raise Undecodable(exc) from exc


def _check_depth(text: bytes | str, loader: type[Any]) -> None:
    """Raises ValueError for what is nested deeper than any settings are; YAMLError for what is no YAML."""
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise ValueError(f"it is nested deeper than {DEEPEST} levels")
