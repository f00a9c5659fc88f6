"""Writes the tables in docs/watch-only.md of what each source of devices can tell, from the agent's own. Run by `make generate`."""

from collections.abc import Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Final

from nodedevice_agent.identity import Kind
from nodedevice_agent.offered_twice.sources import TABLE, Row, Source

from docs import tables

PAGE = Path(__file__).parent / "watch-only.md"
BEGIN: Final = "<!-- what sources can tell: made from the code by `make generate` -->"
END: Final = "<!-- end of what sources can tell -->"
_SOURCES: Final = {
    Source.KUBELET: "plugin of the kubelet",
    Source.DRA: "DRA driver",
    Source.PLUGIN: "plugin that registers with the agent",
    Source.BUILT_IN: "built-in plugin",
}
_KINDS: Final = {
    Kind.UUID: "UUID",
    Kind.PCI: "PCI address",
    Kind.FILE: "device file",
    Kind.SERIAL: "serial number",
}
_NOTHING: Final = "—"


class PageError(Exception):
    """The page has no place for the tables."""


def page_with(page: str) -> str:
    """The page with the tables between its marks. Raises PageError where it has not both of them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"the page needs the lines {BEGIN} and {END}")
    rows = tables.table("| source | property | of devices | from |", [*_rows()], [])
    pairs = tables.table("| offered by | and by | compared by | not knowable by |", [*_pairs()], [])
    return f"{before}{BEGIN}\n\n{rows}\n{pairs}\n{END}{after}"


def _rows() -> Iterator[str]:
    for row in TABLE:
        which = "all" if row.is_of_all else "held ones"
        yield f"| {_SOURCES[row.source]} | {_KINDS[row.kind]} | {which} | {row.where} |"


def _pairs() -> Iterator[str]:
    """Of two of one kind, too; those of built-in plugins are one program."""
    for one, other in combinations_with_replacement(Source, 2):
        if one is other is Source.BUILT_IN:
            continue
        common = [kind for kind in _KINDS if _tell(one, kind) and _tell(other, kind)]
        missing = [kind for kind in _KINDS if kind not in common]
        named = ", ".join(_common(one, other, kind) for kind in common)
        first, second = (_SOURCES[one], _another(other)) if one is other else (_SOURCES[one], _SOURCES[other])
        yield f"| {first} | {second} | {named} | {', '.join(_KINDS[kind] for kind in missing) or _NOTHING} |"


def _common(one: Source, other: Source, kind: Kind) -> str:
    is_of_held = any(not any(row.is_of_all for row in _tell(source, kind)) for source in (one, other))
    return f"{_KINDS[kind]}{' of held ones' if is_of_held else ''}"


def _tell(source: Source, kind: Kind) -> list[Row]:
    return [row for row in TABLE if row.source is source and row.kind is kind]


def _another(source: Source) -> str:
    return "another driver" if source is Source.DRA else "one of another domain"


def main() -> None:
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
