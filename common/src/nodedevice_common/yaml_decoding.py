"""Decodes YAML files that people write, with one error for every error of the library."""

from collections.abc import Iterator
from typing import Any, Final

import yaml
from nodedevice_kube.decoding import check_size

from nodedevice_common.decoding import DEEPEST, TooMuch, Undecodable
from nodedevice_common.yaml_nodes import Mapping, Node, Scalar

# Values, aliases included. Each takes 300 bytes and 10 µs; a CDI specification has some ten for each device.
_MOST: Final = 100_000


# in C, if the library has it: a tenth of the time
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _quick_loader() -> type[Any]:
    """Parse in C, event by event, in a tenth of the time. The library's own loader in C composes a whole document without letting
    other threads run: seconds for a megabyte. So this is done in Python.
    """
    in_c: Any = getattr(yaml, "CSafeLoader", None)
    if in_c is None:
        return yaml.SafeLoader

    def begin(self: Any, stream: Any) -> None:
        in_c.__init__(self, stream)
        yaml.composer.Composer.__init__(self)

    return type("QuickLoader", (yaml.composer.Composer, in_c), {"__init__": begin})


QUICK_LOADER: Final = _quick_loader()


def decode_yaml(text: bytes | str, loader: type[Any] = yaml.SafeLoader) -> Any:
    """Return the value of the only document, or None. Raises Undecodable, whose cause is a yaml.YAMLError with the place."""
    try:
        check_size(text, loader, _MOST)
        return yaml.load(text, Loader=loader)
    except Exception as exc:
        # Odd dates, empty numbers and half characters cause half a dozen other exceptions.
        raise Undecodable(exc) from exc


def first_document(text: bytes, loader: type[Any] = _LOADER) -> Node | None:
    """Return the nodes of the first document, or None, as go.yaml.in/yaml/v3 @ v3.0.5 reads them.

    A reader that decides like a program in Go needs the nodes: which text is a number depends on the library. An alias is the node
    of its anchor. Other threads can run between two nodes. Texts that only libyaml accepts are refused: `%YAML 1.2`, a backslash
    before a slash, and a question mark without quotes in brackets. Raises Undecodable, and TooMuch for too many values.
    """
    try:
        shown = _decoded(text) if rb"\/" in text else ""
        return _first_document(yaml.parse(text, Loader=loader), shown)
    except TooMuch:
        raise
    except Exception as exc:
        # as above
        raise Undecodable(exc) from exc


def _decoded(text: bytes) -> str:
    """Decode text so that positions of events fit. Raises UnicodeDecodeError."""
    is_wide = text.startswith((b"\xff\xfe", b"\xfe\xff"))
    return text.decode("utf-16" if is_wide else "utf-8-sig")


def _first_document(events: Iterator[Any], text: str) -> Node | None:
    """text: in which a backslash may matter. Raises ValueError for text too deep or too large, YAMLError for invalid YAML."""
    root: list[Any] = []
    # the items of each open collection (of a mapping keys and values in turn), and whether it is in brackets
    is_open: list[tuple[list[Any], bool]] = [(root, False)]
    anchors: dict[str | None, Node] = {}
    count = 0
    for event in events:
        items, is_flow = is_open[-1]
        match event:
            case yaml.DocumentEndEvent():
                break
            case yaml.DocumentStartEvent() if event.version not in (None, (1, 1)):
                raise ValueError("%YAML of another version than 1.1")
            case yaml.CollectionEndEvent():
                is_open.pop()
                if isinstance(items, Mapping):
                    items[:] = [*zip(items[::2], items[1::2], strict=True)]
                continue
            case yaml.ScalarEvent():
                _check_scalar(event, text, is_flow=is_flow)
                node: Node = Scalar(event.value, event.tag or "", not event.style)
            case yaml.CollectionStartEvent():
                node = Mapping() if isinstance(event, yaml.MappingStartEvent) else []
                is_open.append((node, is_flow or bool(event.flow_style)))
                if len(is_open) > DEEPEST + 1:
                    raise ValueError(f"it is nested deeper than {DEEPEST} levels")
            case yaml.AliasEvent():
                node = _named(event.anchor, anchors, [each for each, _ in is_open])
            case _:
                continue
        count += 1
        if count > _MOST:
            raise TooMuch(ValueError(f"it has more than {_MOST} values"))
        if not isinstance(event, yaml.AliasEvent) and event.anchor is not None:
            anchors[event.anchor] = node
        items.append(node)
    return root[0] if root else None


def _check_scalar(event: Any, text: str, *, is_flow: bool) -> None:
    """Raises ValueError for texts that the library in Go refuses."""
    if is_flow and not event.style and "?" in event.value:
        raise ValueError(f"put {event.value[:100]!r} in quotes: it has a question mark")
    if text and event.style == '"':
        written = text[event.start_mark.index : event.end_mark.index]
        if r"\/" in written.replace(r"\\", ""):
            raise ValueError(f"{written[:100]} has a backslash before a slash")


def _named(anchor: str | None, anchors: dict[str | None, Node], is_open: list[list[Any]]) -> Node:
    """Raises ValueError."""
    if anchor not in anchors:
        raise ValueError(f"*{anchor} is an alias of nothing")
    if any(anchors[anchor] is each for each in is_open):
        raise ValueError(f"*{anchor} holds itself")
    return anchors[anchor]
