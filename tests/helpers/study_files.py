"""Files of three hospitals with a study's configuration, and what the commands say of them."""

import json

from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger

LABEL = """version = 2
[label]
column = "died"
classes = ["no", "yes"]
"""
WARD = """[[columns]]
name = "ward"
kind = "categorical"
levels = ["a", "b"]
"""


def numeric(name, lower, upper):
    """The table of a numeric column in a schema."""
    ends = f"lower = {float(lower)}\nupper = {float(upper)}\n"
    return f'[[columns]]\nname = "{name}"\nkind = "numeric"\n{ends}'


def write_study(folder, file, rows, study, *, asked, result="", ledgers=None, told=True):
    """Write the configuration of a study.

    ``rows`` are those of each party, declared if ``told``; ``study`` and ``result`` are lines of
    those tables, ``asked`` is what the study asks. ``ledgers`` is the epsilon that each ledger
    holds; without it there are none.
    """
    text = f"[study]\n{study}\n[data]\nschema = 'schema.toml'\n"
    for name, count in rows.items():
        text += f"[[party]]\nname = '{name}'\nfile = '{name}.csv'\n"
        text += f"rows = {count}\n" if told else ""
    text += f"[result]\nrecord = 'found.json'\n{result}\n"
    if ledgers is not None:
        text += "[ledgers]\n"
        for name, count in rows.items():
            place = folder / f"{name}.ledger"
            if not place.exists():
                about = ChargedData("rows", name, count)
                SQLiteLedger.create(place, about, Policy(ledgers, 1e-5)).close()
            text += f"{name} = '{name}.ledger'\n"
    (folder / file).write_text(text + asked)
    return folder / file


def result_of(done):
    """What a command said with --json."""
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["result"]


def spent(folder, name="north"):
    """The epsilon that a ledger has spent."""
    with SQLiteLedger(folder / f"{name}.ledger") as ledger:
        return ledger.verify().spent_epsilon
