"""A federation set up from its public file, all organisations in folders of one machine."""

import random
import shutil

import tomli_w

from dpadmm.federation.identity import make_authority, make_request
from dpadmm.federation.joining import Choices, join, pin, read_kit
from dpadmm.federation.kit import kits_of, write_kits
from dpadmm.federation.local import free_ports
from dpadmm.federation.membership import load_federation, sign_requests
from tests.helpers.wards import SCHEMA, write_ward

NAMES = ("north", "south", "west")
ROWS = 60
RUN = {
    "run_id": "trial-1",
    "algorithm": "dp-gd",
    "topology": "complete",
    "rounds": 4,
    "epsilon": 1.0,
    "delta": 1e-3,
    "algorithm_options": {"noise": "shared"},
}


class Members:
    """What the coordinator and each organisation have."""

    def __init__(self, folder, names=NAMES, **changes):
        self.folder, self.names = folder, names
        self.file = folder / "federation.toml"
        self.authority = folder / "authority"
        (folder / "schema.toml").write_text(SCHEMA)
        table = {
            "name": "wards",
            "schema": "schema.toml",
            "run": {**RUN, **changes.pop("run", {})},
            "budget": {"epsilon": 9.0, "delta": 1e-3},
            "organisation": [
                {"name": name, "address": f"127.0.0.1:{port}", "rows": ROWS}
                for name, port in zip(names, free_ports(len(names)), strict=True)
            ],
        }
        self.write({**table, **changes})

    def write(self, table):
        self.file.write_text(tomli_w.dumps(table))

    def place(self, name):
        """The folder of a node, with its rows."""
        place = self.folder / name
        if not place.exists():
            place.mkdir()
            write_ward(place / "rows.csv", random.Random(name), ROWS)
        return place

    def request(self, name, folder=".", **options):
        told = load_federation(self.file)
        place = self.place(name) / folder
        return make_request(place, name, told.name, hosts=[told.host(name)], **options)[0]

    def certify(self, names=None):
        """Requests and certificates of all."""
        if not self.authority.exists():
            make_authority(self.authority)
        requests = [self.request(name) for name in names or self.names]
        return sign_requests(load_federation(self.file), requests, self.authority, 365)

    def kits(self):
        told = load_federation(self.file)
        output = self.folder / f"kits-{told.revision}"
        write_kits(kits_of(told), output)
        return output

    def join(self, name, **choices):
        """Join the newest kit."""
        place, told = self.place(name), load_federation(self.file)
        kit = self.folder / f"kits-{told.revision}" / f"{name}.zip"
        shutil.copy2(kit, place)
        if not (place / "own.toml").exists():
            choices = {"data": str(place / "rows.csv"), **choices}
        return join(read_kit(place / kit.name), place, Choices(**choices))

    def set_up(self):
        """Everything up to the start of the nodes."""
        self.certify()
        self.kits()
        for name in self.names:
            self.join(name)
            pin(self.place(name))
        return self
