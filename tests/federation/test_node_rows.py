"""What a node shows before its first message does not depend on what its rows hold."""

import json
import random
import re

import pyarrow.parquet
import pytest

pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")

from tests.helpers.federation_net import Federation
from tests.helpers.neighbours import (
    COLUMNS,
    ODD_BYTES,
    ODD_LINES,
    ODD_QUOTES,
    PLACE,
    ROWS,
    csv_line,
    masked,
    odd_parquet,
)

from dpadmm.ledger.sqlite import SQLiteLedger

# Of a Parquet file with columns of strings, and of a CSV file, written as they are.
ODD_PARQUET = [ROWS[PLACE], (b"caf\xe9", b"caf\xe9", b"caf\xe9"), (None, b"\x00", b"\xff")]
ODD_CSV = [
    ROWS[PLACE],
    (b'"', b"caf\xe9", b""),
    (b"1e999", b"a,b,c", b"\x00"),
    (b'"x', b'y"', b'"'),
]


def write_parquet(cells, path):
    pyarrow.parquet.write_table(odd_parquet(cells), path)


def write_csv(cells, path):
    lines = [csv_line(row, quoted=False) for row in [*ROWS[:PLACE], cells, *ROWS[PLACE + 1 :]]]
    path.write_bytes(b"\n".join([",".join(COLUMNS).encode(), *lines]))


def shown(federation, name, code):
    """All that a node leaves behind, without times, places and ports."""
    hidden = [
        (federation.folder, "FOLDER"),
        *((port, "PORT") for port in federation.ports.values()),
    ]

    def plain(text):
        text = masked(text, *hidden)
        return re.sub(r'"(pid|process|seconds|waited)": [0-9.]+', r'"\1": 0', text)

    log = [plain(json.dumps(entry, sort_keys=True)) for entry in federation.log(name)]
    status = json.loads((federation.folder / f"{name}.status").read_text())
    with SQLiteLedger(federation.folder / f"{name}.ledger", read_only=True) as ledger:
        account = ledger.account.spent_epsilon
    return {
        "code": code,
        "output": plain(federation.output(name)),
        "log": log,
        "status": plain(json.dumps(status, sort_keys=True)),
        "spent": account,
        "files": sorted(path.name for path in federation.folder.iterdir()),
    }


def check(fork_server, folder, suffix, write, rows):
    """Nodes whose neighbour never comes read their rows, and send nothing: all alike."""
    made = []
    try:
        for number, cells in enumerate(rows):
            federation = Federation(
                folder / f"federation{number}",
                fork_server,
                ("north", "south"),
                tls=False,
                rows=[len(ROWS), 10],
                run={"penalty": 0.005, "topology": "path"},
            )
            made.append(federation)
            (federation.folder / "north.csv").unlink()
            federation.make_ledger("north")
            write(cells, federation.folder / f"north.{suffix}")
            config = federation.write("north", policy={"start_within": 1})
            told = config.read_text().replace('"north.csv"', f'"north.{suffix}"')
            config.write_text(told.replace("lease = 2", 'lease = 2\nstatus = "north.status"'))
            federation.start("north")
        codes = [federation.wait("north") for federation in made]
    finally:
        for federation in made:
            federation.close()
    first, *others = [shown(f, "north", code) for f, code in zip(made, codes, strict=True)]
    assert first["code"] == 75
    assert any('"agreeing"' in line for line in first["log"]), first
    for other in others:
        assert other == first


@pytest.mark.parametrize(
    ("suffix", "write", "rows"),
    [("parquet", write_parquet, ODD_PARQUET), ("csv", write_csv, ODD_CSV)],
)
def test_a_node_does_not_tell_an_odd_row_before_it_sends(
    fork_server, tmp_path, suffix, write, rows
):
    check(fork_server, tmp_path, suffix, write, rows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("suffix", "write"), [("parquet", write_parquet), ("csv", write_csv)])
def test_a_node_does_not_tell_any_of_many_odd_rows(fork_server, tmp_path, suffix, write, seed):
    draw = random.Random(seed)
    known = [*ODD_BYTES, *ODD_QUOTES, *(ODD_LINES if suffix == "parquet" else [])]

    def cell():
        if draw.random() < 0.7:
            return draw.choice(known)
        return re.sub(rb"[\r\n]", b"", draw.randbytes(draw.randrange(8)))

    rows = [ROWS[PLACE], *([cell(), cell(), cell()] for _ in range(5))]
    check(fork_server, tmp_path, suffix, write, rows)
