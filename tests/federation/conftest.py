import pytest


@pytest.fixture
def federation(fork_server, tmp_path):
    """Three nodes on a ring, each with its files and its ledger; none is started."""
    from tests.helpers.federation_net import Federation

    names = ("north", "south", "west")
    federation = Federation(tmp_path / "federation", fork_server, names)
    for name in names:
        federation.make_ledger(name)
        federation.write(name)
    yield federation
    federation.close()


@pytest.fixture
def make_federation(fork_server, tmp_path):
    """Make federations with the nodes' files and ledgers written; none is started."""
    from tests.helpers.federation_net import Federation

    made = []

    def make(names, policy=None, **options):
        federation = Federation(tmp_path / "federation", fork_server, names, **options)
        made.append(federation)
        for name in federation.nodes:
            if name != federation.averager:
                federation.make_ledger(name)
            federation.write(name, policy=policy)
        return federation

    yield make
    for federation in made:
        federation.close()
