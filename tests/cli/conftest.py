import pytest
from typer.testing import CliRunner

from dpadmm.cli import app


@pytest.fixture
def dpadmm():
    """Run a command in this process; whatever is wrong, there is no traceback."""
    runner = CliRunner()

    def run(*arguments):
        result = runner.invoke(app, [str(argument) for argument in arguments])
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run
