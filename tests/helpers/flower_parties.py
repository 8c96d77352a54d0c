"""Files of parties that take part through Flower, and a server without Flower that asks them."""

from dpadmm.errors import ExchangeError
from dpadmm.flower.party import answer
from dpadmm.flower.server import Answer, average_answers, prepare_server, write_model
from tests.helpers.federation_net import Federation, StudyFederation, toml

NAMES = ("north", "south", "west")
FILES = {"certificate": "pem", "key": "key"}


class InFlower:
    """What parties have in Flower: no addresses, and ``hub`` as their server."""

    #: Where the server puts its model, if there is one.
    model = "hub.model"

    def write_agreed(self):
        """The agreed run as the server of a real Flower has it."""
        (self.folder / "agreed.toml").write_text(self.agreed_text())

    def write(self, name, *, policy=None, simulation=None, agreed=None, extra=""):
        """The files of a party; its ledger is made apart."""
        agreed_file = self.folder / f"{name}.agreed.toml"
        agreed_file.write_text(agreed or self.agreed_text())
        lines = [f'run = "{agreed_file.name}"', "[node]", f'name = "{name}"']
        lines += ['schema = "schema.toml"', f'data = "{name}.csv"']
        if simulation is None:
            lines.append(f'ledger = "{name}.ledger"')
        limits = {"epsilon": self.run["epsilon"], "delta": self.run["delta"]}
        if self.shared:
            lines += ["[certificates]", 'authority = "certificates/ca.pem"']
            lines += [f'{what} = "certificates/{name}.{end}"' for what, end in FILES.items()]
            lines += ["[pins]", *(f'{each} = "{self.pins[each]}"' for each in self.names)]
            limits["colluders"] = 1
        limits |= policy or {}
        lines += ["[policy]", *(f"{key} = {toml(value)}" for key, value in limits.items())]
        lines += ["[result]", *(f'{what} = "{name}.{what}"' for what in self.results)]
        lines += ["[watch]", f'log = "{name}.log"']
        if simulation is not None:
            lines += ["[simulation]", f"key = {simulation}"]
        path = self.folder / f"{name}.toml"
        path.write_text("\n".join([*lines, extra]) + "\n")
        return path

    def write_all(self, simulation=None, **options):
        """The files of every party, with a ledger each unless they simulate."""
        for name in self.names:
            self.write(name, simulation=simulation, **options)
            if simulation is None:
                self.make_ledger(name)

    def node_file(self, name):
        return self.folder / f"{name}.toml"

    def server(self, agreed=None):
        """What the server is told; ``agreed`` replaces the run that it believes in."""
        place = self.folder / "server.agreed.toml"
        place.write_text(agreed or self.agreed_text())
        model = None if self.model is None else self.folder / self.model
        return prepare_server(place, self.folder / "schema.toml", model)

    def ask_one(self, name, question):
        """One party's answer, as it comes over the wire."""
        return Answer.read(answer(self.node_file(name), question.plain()).plain())

    def ask(self, question):
        """Every party's answer; a refusal is an error, as it is at a real server."""
        answers = {name: self.ask_one(name, question) for name in self.names}
        for name, found in answers.items():
            if found.refusal:
                raise ExchangeError(f"{name}: {found.refusal}")
        return answers

    def play(self):
        """All rounds, as the server asks for them."""
        return average_answers(self.server(), self.ask)


class FlowerParties(InFlower, Federation):
    """Parties that train."""

    def __init__(self, folder, *, run=None, names=NAMES, **options):
        told = {"algorithm": "ps-admm", "topology": "server", "rounds": 4, **(run or {})}
        shared = told.get("algorithm_options", {}).get("noise") == "shared"
        super().__init__(folder, None, names, tls=shared, averager="hub", run=told, **options)
        self.write_agreed()

    def train(self):
        setup, averaged = self.server(), self.play()
        return averaged, write_model(setup, averaged, setup.model)


class FlowerStudy(InFlower, StudyFederation):
    """Parties that are asked a study."""

    model = None

    def __init__(self, folder, asked, *, simulated=False, **study):
        super().__init__(
            folder,
            None,
            NAMES,
            asked,
            study={"topology": "server", **study},
            rows=(900, 700, 800),
            tls=study.get("noise") == "shared",
            averager="hub",
        )
        self.simulated = simulated
        self.write_agreed()
