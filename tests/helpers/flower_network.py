"""A real SuperLink and SuperNodes over TLS on this machine, each a process of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dpadmm.federation.identity import make_authority, make_certificate
from tests.helpers.federation_net import free_ports

APP = """
[project]
name = "dpadmm-run"
version = "1.0.0"
description = "A run that hospitals agreed on"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "hospitals"

[tool.flwr.app.components]
serverapp = "dpadmm.flower.server_app:app"
clientapp = "{clientapp}"

[tool.flwr.app.config]
agreed = "{folder}/agreed.toml"
schema = "{folder}/schema.toml"
{model}
lost-after = {lost_after}
ask-again = {ask_again}
"""
CONNECTION = """
[superlink]
default = "trial"

[superlink.trial]
address = "127.0.0.1:{port}"
root-certificates = "{authority}"
"""


class FlowerNetwork:
    """The processes; whoever makes it closes it."""

    def __init__(self, parties, *, lost_after=600, ask_again=120, clientapp=None):
        self.parties, self.folder = parties, parties.folder
        self.home = self.folder / "flower-home"
        self.home.mkdir()
        make_authority(self.folder / "tls")
        made = make_certificate(self.folder / "tls", "superlink", hosts=["127.0.0.1", "localhost"])
        self.certificate, self.key = made[:2]
        self.authority = self.folder / "tls" / "ca.pem"
        ports = free_ports(1 + len(parties.names))
        self.port = ports[0]
        self._ports = dict(zip(parties.names, ports[1:], strict=True))
        self.processes = {}
        app = self.folder / "app"
        app.mkdir()
        clientapp = clientapp or "dpadmm.flower.client_app:app"
        told = {"folder": self.folder, "lost_after": lost_after, "ask_again": ask_again}
        told["model"] = f'model = "{self.folder}/{parties.model}"' if parties.model else ""
        (app / "pyproject.toml").write_text(APP.format(clientapp=clientapp, **told))
        (self.home / "config.toml").write_text(
            CONNECTION.format(port=self.port, authority=self.authority)
        )

    def _start(self, name, *words):
        source = Path(__file__).parents[2] / "src"
        places = {"FLWR_HOME": str(self.home), "PYTHONPATH": str(source)}
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "OPENBLAS_NUM_THREADS": "1"}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with open(self.folder / f"{name}.flower", "ab") as output:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **places, **quiet, **path},
                start_new_session=True,
            )

    def start_link(self):
        words = ["flower-superlink", "--port", self.port, "--ssl-certfile", self.certificate]
        words += ["--ssl-keyfile", self.key, "--ssl-ca-certfile", self.authority]
        self._start("superlink", *words, "--disable-runtime-dependency-installation")

    def start_keeper(self, name):
        """Another process answers for a party; its SuperNode is told where."""
        place = self.folder / f"{name}.socket"
        words = [sys.executable, "-m", "dpadmm.flower.keeper", "--socket", place]
        self._start(f"{name}.keeper", *words, "--config", self.parties.node_file(name))
        self.wait_for(place.exists)

    def start_node(self, name):
        place = self.folder / f"{name}.socket"
        told = f'keeper="{place}"' if place.exists() else f'node="{self.parties.node_file(name)}"'
        words = ["flower-supernode", "--root-certificates", self.authority]
        words += ["--superlink", f"127.0.0.1:{self.port}", "--port", self._ports[name]]
        self._start(name, *words, "--node-config", told)

    def kill(self, name):
        """Kill a process and all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def run(self, **changes):
        """Hand the app to the SuperLink, once that is up; changes of its configuration."""
        self.wait_for(lambda: "Uvicorn running" in self.output("superlink"))
        words = ["flwr", "run", self.folder / "app", "trial", "--format", "json"]
        for name, value in changes.items():
            words += ["--run-config", f'{name}="{value}"']
        (self.folder / "submit.flower").unlink(missing_ok=True)
        self._start("submit", *words)
        self.processes.pop("submit").wait(120)
        assert '"success": true' in self.output("submit"), self.output("submit")

    def output(self, name):
        place = self.folder / f"{name}.flower"
        return place.read_text() if place.exists() else ""

    def wait_for(self, found, seconds=400.0):
        deadline = time.monotonic() + seconds
        while not found():
            late = time.monotonic() > deadline
            ended = [name for name, process in self.processes.items() if process.poll() is not None]
            names = ended or ("superlink", *self.parties.names)
            told = {name: self.output(name)[-3000:] for name in names}
            assert not late, told
            assert not ended, told
            time.sleep(0.1)

    def close(self):
        for name in list(self.processes):
            self.kill(name)
