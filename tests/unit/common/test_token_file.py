"""A token's file that others replace, seen in any state: the token before is used until there is another."""

from pathlib import Path

import pytest
from nodedevice_common.token_file import NoToken, TokenFile

# a file in the middle of being written, or of being replaced; None: it is not there
BROKEN = [b"", b"\n", b"\xff\xfe", b"two words", b"two\nlines", b"\0", None]


def write(file: Path, octets: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if octets is not None:
        file.write_bytes(octets)


@pytest.mark.parametrize("octets", BROKEN)
def test_what_is_no_token_changes_nothing(tmp_path: Path, octets: bytes | None) -> None:
    file = tmp_path / "token"
    write(file, b"first.token-1=\n")
    token = TokenFile(file)
    assert token.read() == "first.token-1="
    write(file, octets)
    assert token.read() == "first.token-1="
    write(file, b"second")
    assert token.read() == "second"


@pytest.mark.parametrize("octets", BROKEN)
def test_where_none_was_read_before_the_error_names_the_file(tmp_path: Path, octets: bytes | None) -> None:
    file = tmp_path / "token"
    write(file, octets)
    token = TokenFile(file)
    with pytest.raises(NoToken, match=f"the token file {file} cannot be used .(there is no token in it|No such file)"):
        token.read()
    write(file, b"first")
    assert token.read() == "first"
