"""Text from outside, such as names of files: made fit for a log, a metric, the API server. Pure."""

# of an error, which may quote foreign text
MAX_SHOWN = 512


def clean(text: str) -> str:
    """The same text with ? for each lone surrogate: Python has them for octets of a file's name that are not UTF-8; JSON and
    protobuf cannot carry them.
    """
    return text.encode("utf-8", "replace").decode()


def printable(text: str) -> str:
    """The same lines, with ? for each character that a terminal may obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else "?" for each in text)


def shown(text: object, most: int = MAX_SHOWN) -> str:
    """One line of at most so many characters, all of them printable."""
    line = " ".join(str(text).split())[:most]
    return "".join(each if each.isprintable() else "?" for each in line)
