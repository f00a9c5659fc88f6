import pytest
from nodedevice_api.resource_names import resource_name_problem


@pytest.mark.parametrize("name", ["example.com/gpu", "a/b", "vendor.example.com/A_b.c-1", "x" * 60 + ".y/" + "n" * 63])
def test_good_names(name: str) -> None:
    assert resource_name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "domain/name"),
        ("", "domain/name"),
        ("kubernetes.io/gpu", "reserved"),
        ("node.kubernetes.io/gpu", "reserved"),
        ("requests.example.com/gpu", "quota"),
        ("Example.com/gpu", "lower-case"),
        ("/gpu", "lower-case"),
        ("example.com/", "after the slash"),
        ("example.com/a/b", "after the slash"),
        ("example.com/gpu\n", "after the slash"),
        ("example.com/" + "n" * 64, "63"),
        (".".join(["a" * 60] * 5) + "/gpu", "244"),
    ],
)
def test_errors_of_bad_names_name_what_is_wrong(name: str, message: str) -> None:
    assert message in resource_name_problem(name)
