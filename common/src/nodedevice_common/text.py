"""Makes foreign text, such as names of files, fit for a log, a metric, the API server. Pure."""

# of an error, which may quote foreign text
MAX_SHOWN = 512


def clean(text: str) -> str:
    """Replace lone surrogates by ?: Python has them for octets that are not UTF-8, and JSON and protobuf reject them."""
    return text.encode("utf-8", "replace").decode()


def printable(text: str) -> str:
    """Replace characters that control a terminal by ?, except line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def shown(text: object, most: int = MAX_SHOWN) -> str:
    """Return one line of at most so many printable characters."""
    line = " ".join(str(text).split())[:most]
    return "".join(each if each.isprintable() else "?" for each in line)
