"""The files of the page about Flower are complete: they train as they stand there."""

import json
import random
import re
import shlex
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the extra 'federation' is not installed")

from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.flower.party import answer
from dpadmm.flower.server import average_answers, prepare_server, write_model
from dpadmm.run.model import load_model

PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text()
ROWS = {"north": 400, "south": 300}


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)


FILES = {block.split("\n")[0].removeprefix("# "): block for block in blocks("toml")}


def write_rows(path, draw, count):
    lines = ["age,ward,readmitted"]
    for _ in range(count):
        age = draw.randint(0, 100)
        lines.append(f"{age},{draw.choice('ab')},{'yes' if age > 50 else 'no'}")
    path.write_text("\n".join(lines) + "\n")


def write_files(agreed, node):
    (command,) = [block for block in blocks("sh") if block.startswith("dpadmm ledger init")]
    Path("schema.toml").write_text(FILES["schema.toml"])
    Path("agreed.toml").write_text(agreed)
    for name, count in ROWS.items():
        Path(f"{name}.toml").write_text(node.replace("north", name))
        write_rows(Path(f"{name}.csv"), random.Random(count), count)
        words = shlex.split(command.replace("north", name).replace("400", str(count)))
        made = CliRunner().invoke(app, words[1:])
        assert made.exit_code == 0, made.output


def ask(question):
    answers = {name: answer(Path(f"{name}.toml"), question.plain()) for name in ROWS}
    assert [each.refusal for each in answers.values()] == ["", ""]
    return answers


def test_the_files_of_the_page_train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Three rounds show as much as twenty.
    write_files(FILES["agreed.toml"].replace("rounds = 20", "rounds = 3"), FILES["node.toml"])
    setup = prepare_server(Path("agreed.toml"), Path("schema.toml"), Path("superlink.model"))
    write_model(setup, average_answers(setup, ask), setup.model)
    coefficients = [load_model(f"{name}.model").classifier.coef for name in (*ROWS, "superlink")]
    assert (coefficients[0] == coefficients[2]).all()
    assert (coefficients[1] == coefficients[2]).all()
    assert all(Path(f"{name}.statement").stat().st_size for name in ROWS)


def test_the_study_of_the_page_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, _, after = FILES["agreed.toml"].partition("[run]")
    agreed = f"{before}{FILES['study of agreed.toml']}{after[after.index('[[party]]') :]}"
    write_files(agreed, FILES["node.toml"].replace('model = "north.model"\n', ""))
    average_answers(prepare_server(Path("agreed.toml"), Path("schema.toml")), ask)
    found = [json.loads(Path(f"{name}.record").read_text())["found"] for name in ROWS]
    assert found[0] == found[1]
    # A mean, and the proportion of each class in each ward.
    assert len(found[0]) == 5
    assert all(Path(f"{name}.html").stat().st_size for name in ROWS)


def test_the_app_of_the_page_names_what_is_there():
    told = tomllib.loads(FILES["pyproject.toml"])["tool"]["flwr"]["app"]
    source = Path(__file__).parents[2] / "src"
    for reference in told["components"].values():
        module, _, name = reference.partition(":")
        text = (source / f"{module.replace('.', '/')}.py").read_text()
        assert re.search(rf"^{name} = ", text, flags=re.MULTILINE)
    server = (source / "dpadmm/flower/server_app.py").read_text()
    assert {key for key in told["config"] if f'"{key}"' not in server} == set()
