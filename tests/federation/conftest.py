import pytest


@pytest.fixture(scope="session")
def fork_server():
    """One process for all tests of a worker that starts nodes."""
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    from federation_net import ForkServer

    server = ForkServer()
    yield server
    server.close()
