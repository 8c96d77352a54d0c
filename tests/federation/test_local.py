"""A federation on this machine: the files fit together, and a node that fails stops the others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import strategies as st

from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.errors import ExchangeError
from dpadmm.federation.config import load_node_config
from dpadmm.federation.identity import read_certificate
from dpadmm.federation.local import run_nodes, write_federation
from dpadmm.federation.runtime import prepare_node
from dpadmm.ledger.filters import Policy

SCHEMA = Schema(
    label=Label(column="y", classes=("-1", "1")),
    columns=(NumericColumn(name="x", lower=0.0, upper=1.0, missing=False),),
    constant=True,
)
RUN = {"run_id": "r", "algorithm": "pr-admm", "topology": "ring", "rounds": 3, "delta": 1e-5}


def federation(folder, count=4, **changes):
    data = {}
    for number in range(count):
        file = folder / f"{number}.parquet"
        table = pa.table({"x": [0.1, 0.9] * 20, "y": [-1, 1] * 20})
        pyarrow.parquet.write_table(table, file)
        data[f"n{number}"] = (file, 40)
    policy = Policy(1.0, 1e-5, colluders=2)
    return write_federation(folder, folder, SCHEMA, data, RUN | changes, policy)


def test_every_node_accepts_its_files(tmp_path):
    nodes = federation(tmp_path)
    for number, node in enumerate(nodes):
        prepared = prepare_node(load_node_config(node.config))
        expected = {f"n{(number + 1) % 4}", f"n{(number - 1) % 4}"}
        assert set(prepared.config.addresses) == expected
        assert prepared.security is not None
        assert prepared.config.watch.status == node.status
    assert len({prepare_node(load_node_config(node.config)).run for node in nodes}) == 1


def test_nodes_know_each_other_by_certificate(tmp_path):
    """Noise can be shared: everybody has everybody's pin, and it is the certificate's."""
    options = {"noise": "shared", "colluders": 2}
    nodes = federation(tmp_path, algorithm="dp-gd", topology="server", algorithm_options=options)
    configs = [load_node_config(node.config) for node in nodes]
    for config in configs:
        assert prepare_node(config).planned.algorithm.summation.colluders == 2
        own = read_certificate(config.certificates.certificate).fingerprint
        assert {other.pins[config.node.name] for other in configs} == {own}


def children():
    """Processes that this one has started and not waited for."""
    lists = Path("/proc/self/task").glob("*/children")
    return {number for file in lists for number in file.read_text().split()}


def test_a_node_that_fails_stops_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    nodes = federation(tmp_path, 3)
    (tmp_path / "certificates" / "n1.key").chmod(0o644)
    before = children()
    with pytest.raises(ExchangeError, match=r"(?s)node n1 must end well.*private to its owner"):
        run_nodes(nodes)
    # Nobody is left who would write a status or lock a ledger.
    assert children() == before


texts = st.text(max_size=9)
values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts
values |= st.floats(allow_nan=False)
tables = st.dictionaries(st.from_regex("[a-z_]{1,9}", fullmatch=True), values, max_size=4)
