"""A node lost for good, and others killed after they noticed: nobody ends without a model."""

import json

import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from federation_net import Federation

NAMES = ("n0", "n1", "n2", "n3")
POLICY = {"when_lost": "continue", "lost_after": 12}


@pytest.fixture
def build(fork_server, tmp_path):
    """Make a federation with the nodes' files written."""
    made = []

    def build(names=NAMES, policy=POLICY, **options):
        federation = Federation(tmp_path / "federation", fork_server, names, **options)
        for name in federation.nodes:
            if name != federation.averager:
                federation.make_ledger(name)
            federation.write(name, policy=policy)
        made.append(federation)
        return federation

    yield build
    for federation in made:
        federation.close()


def record(federation, name):
    return json.loads((federation.folder / f"{name}.record").read_text())["federation"]


def test_a_node_killed_after_it_noticed_a_loss_goes_on_with_the_others(build):
    """All stopped in one round: its own last message is in its ledger alone."""
    federation = build(run={"rounds": 60, "topology": "complete"})
    for name in NAMES:
        federation.start(name)
    federation.wait_for("n3", "round")
    federation.kill("n3")
    federation.wait_for("n1", "neighbour-lost")
    federation.kill("n1")
    federation.start("n1")
    federation.finish("n0", "n1", "n2")
    records = [record(federation, name) for name in NAMES[:3]]
    assert len({found["changed_run_sha256"] for found in records}) == 1
    for found in records:
        assert found["went_on_without"] == ["n3"]
        assert found["lost"] is None
