"""Commands and nodes as forks of one process that has imported everything."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
# In the place of the command: what it prints goes where its caller wanted it.
COMMAND = """#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect({place!r})
    order = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
    socket.send_fds(connection, [json.dumps(order).encode()], [0, 1, 2])
    # A command that was killed has said nothing.
    sys.exit(int(connection.recv(16) or 70))
"""


class ForkServer:
    """A process that starts commands and nodes; see ``forked_commands.py``."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        place = f"{self._folder.name}/socket"
        source = str(HERE.parents[1] / "src")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "forked_commands.py"), place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"},
        )
        self._running = set()
        command = Path(self._folder.name) / "dpadmm"
        command.write_text(COMMAND.format(python=sys.executable, place=place))
        command.chmod(0o700)

    def _order(self, **order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, words, output, folder="/"):
        words = [str(word) for word in words]
        number = self._order(start=words, output=str(output), folder=str(folder))
        self._running.add(number)
        return number

    def commands(self):
        """A folder for the search path of a shell: its ``dpadmm`` is one that starts quickly."""
        self._order(ready=True)
        return self._folder.name

    def warm(self):
        self._order(warm=True)

    def wait(self, number):
        self._running.discard(number)
        return self._order(wait=number)

    def kill(self, number):
        os.kill(number, signal.SIGKILL)
        return self.wait(number)

    def close(self):
        for number in list(self._running):
            self.kill(number)
        self._process.stdin.close()
        # On a busy machine it may still be importing what no test has asked for.
        self._process.wait(120)
        self._process.stdout.close()
        self._folder.cleanup()
