"""``dpadmm cert`` as one types it."""

import stat

import pytest


def test_from_nothing_to_two_nodes(dpadmm, tmp_path):
    folder = tmp_path / "trial"
    made = dpadmm("cert", "authority", folder)
    assert made.exit_code == 0
    for words in ("for trials", "certificates of their own", "common name", "ca.key (for nobody"):
        assert words in made.output
    made = dpadmm("cert", "node", folder, "north", "--host", "n.example.org", "--host", "10.0.0.1")
    assert made.exit_code == 0
    assert "n.example.org, 10.0.0.1" in made.output
    assert stat.S_IMODE((folder / "north.key").stat().st_mode) == 0o600
    # Another folder for the node's files, as they would be handed over.
    assert dpadmm("cert", "node", tmp_path / "b", "south", "--authority", folder).exit_code == 0
    shown = dpadmm("cert", "show", tmp_path / "b" / "south.pem")
    for words in ("name: south (node)", "signed by: dpadmm trial authority", "364 days left"):
        assert words in shown.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("node", "nowhere", "north"), "make them with dpadmm cert authority nowhere"),
        (("authority", "t", "--days", "0"), "days must be a whole number"),
        (("node", "nowhere", "no/rth"), "a node's name must be"),
        (("show", "nowhere.pem"), "No such file"),
    ],
)
def test_refusals(dpadmm, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = dpadmm("cert", *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(dpadmm, tmp_path, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("dpadmm.federation")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    result = dpadmm("cert", "authority", tmp_path / "c")
    assert result.exit_code == 2
    assert "pip install '.[federation]' in a clone" in result.output
