"""Which commands a page has: what a reader would type, and nothing else."""

import pytest

from tests.e2e.page_commands import texts


@pytest.mark.parametrize(
    ("page", "found"),
    [
        pytest.param(
            "```sh\nmake demo   # ends by itself\nmake up\n```\n",
            ["make demo   # ends by itself", "make up"],
            id="block",
        ),
        pytest.param("```sh\n# nothing but a remark\n```\n", [], id="remark"),
        pytest.param("```sh\nkubectl get \\\n  nodes\n```\n", ["kubectl get \\\n  nodes"], id="backslash"),
        pytest.param("```sh\nkubectl apply -f - <<< '{\n}'\n```\n", ["kubectl apply -f - <<< '{\n}'"], id="open quote"),
        pytest.param(
            "```sh\nkubectl apply -f - <<'EOF'\nkind: Pod\n\nit's\nEOF\nmake up\n```\n",
            ["kubectl apply -f - <<'EOF'\nkind: Pod\n\nit's\nEOF", "make up"],
            id="here-document",
        ),
        pytest.param("1. So:\n\n   ```sh\n   make up\n   ```\n", ["make up"], id="block in a list"),
        pytest.param("```\nNODE=a\nkubectl get node $NODE\n```\n", ["NODE=a\nkubectl get node $NODE"], id="a variable"),
        pytest.param("```\nkubectl get nodes\n```\n", ["kubectl get nodes"], id="no word about the language"),
        pytest.param("```\n plugin ──► agent\n```\n", [], id="drawing"),
        pytest.param("```console\n$ kubectl get nodes\nNAME\n```\n", [], id="console"),
        pytest.param("so:\n\n    make gpu-check\n", ["make gpu-check"], id="indented by four"),
        pytest.param("look with `kubectl get nodes`, and `ls`", ["kubectl get nodes"], id="sentence"),
        pytest.param("`kubectl get\nnodes -o wide`", ["kubectl get nodes -o wide"], id="over two lines"),
        pytest.param("| x | `kubectl get a \\| grep b` |", ["kubectl get a | grep b"], id="cell of a table"),
        pytest.param("`CLUSTER=current make demo`", ["CLUSTER=current make demo"], id="with a variable"),
        pytest.param("`nodedevice-agent`, `kubectl` and `make`", [], id="names of programs"),
    ],
)
def test_texts(page: str, found: list[str]) -> None:
    assert [text.strip() for text in texts(page)] == found
