"""``dpadmm schema``: exit codes, warnings, counts only."""

import json

import pytest
from typer.testing import CliRunner

from dpadmm.cli.schema import schema_app
from dpadmm.data.schema import load_schema

SAMPLE = "age,[bold]work,y\n30,a,no\n40,b,yes\n20,a,no\n"


@pytest.fixture
def run():
    runner = CliRunner()

    def run(*arguments):
        result = runner.invoke(schema_app, [str(argument) for argument in arguments])
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


@pytest.fixture
def drafted(run, tmp_path):
    sample, schema = tmp_path / "sample.csv", tmp_path / "schema.toml"
    sample.write_text(SAMPLE)
    result = run("draft", sample, "--label", "y", "-o", schema)
    assert result.exit_code == 0
    assert "must be public" in result.stderr
    return schema


def test_a_draft_fits_its_sample(run, drafted, tmp_path):
    result = run("check", drafted, tmp_path / "sample.csv", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)["result"]
    assert report["rows"] == 3
    assert report["bad_labels"] == 0
    assert report["schema_sha256"] == load_schema(drafted).sha256
    nothing = {"missing": 0, "other": 0, "clipped": 0}
    assert report["columns"] == {"age": nothing, "[bold]work": nothing}
    assert "do not share" in report["private"]


def test_check_counts_and_shows_no_cell(run, drafted, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("age,[bold]work,y\nsecret1,a,no\n99,secret2,secret3\n1,2\n30,,yes\n")
    plain = run("check", drafted, rows)
    assert plain.exit_code == 1
    assert "4 rows, 1 of them ragged lines, 2 bad labels" in plain.stdout
    assert "do not share" in plain.stdout
    assert "[bold]work" in plain.stdout
    assert "secret" not in plain.output
    report = json.loads(run("check", drafted, rows, "--json").stdout)["result"]
    assert report["ragged_rows"] == 1
    assert report["columns"]["age"] == {"missing": 2, "other": 0, "clipped": 1}
    assert report["columns"]["[bold]work"] == {"missing": 2, "other": 1, "clipped": 0}


def test_failures_are_one_sentence_and_not_zero(run, drafted, tmp_path):
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("age,y\n1,no\n")
    broken = tmp_path / "broken.toml"
    broken.write_text("[label")
    cases = [
        ("check", drafted, wrong),
        ("check", drafted, tmp_path / "nowhere.csv"),
        ("check", tmp_path / "nowhere.toml", wrong),
        ("check", broken, wrong),
        ("draft", wrong, "--label", "z", "-o", tmp_path / "new.toml"),
        ("draft", wrong, "--label", "y", "-o", drafted),
        ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted),
        ("draft", tmp_path / "sample.csv", "--label", "y", "-o", tmp_path / "no" / "new.toml"),
    ]
    for case in cases:
        result = run(*case)
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].startswith("dpadmm: ")
        as_json = run(*case, "--json")
        assert as_json.exit_code == 2
        assert json.loads(as_json.stdout)["error"]
    assert not (tmp_path / "new.toml").exists()


def test_a_draft_of_fourier_features_says_what_rows_become(run, drafted, tmp_path):
    arguments = ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted, "--force")
    for answer in (
        run(*arguments, "--fourier", 20),
        run("check", drafted, tmp_path / "sample.csv"),
    ):
        told = " ".join(answer.stdout.split())
        assert answer.exit_code == 0
        assert "4 encoded columns that become 40 features: the cosines and sines of 20" in told
        assert "scale 1.01" in told
    for answer in (
        run(*arguments, "--fourier", 20, "--json"),
        run("check", drafted, tmp_path / "sample.csv", "--json"),
    ):
        report = json.loads(answer.stdout)["result"]
        assert (report["encoded_columns"], report["features"]) == (4, 40)
        assert report["fourier"] == load_schema(drafted).fourier.model_dump()
    before = drafted.read_text()
    for wrong in (("--fourier", 0), ("--fourier", 5000), ("--fourier", 5, "--constant")):
        refusal = run(*arguments, *wrong)
        assert refusal.exit_code == 2
        assert "must be" in refusal.stderr.splitlines()[-1]
    assert drafted.read_text() == before


def test_a_draft_of_products_says_what_rows_become(run, drafted, tmp_path):
    arguments = ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted, "--force")
    answer = run(*arguments, "--polynomial", 2, "--constant", "--json")
    report = json.loads(answer.stdout)["result"]
    assert report["polynomial"] == {"degree": 2}
    assert report["features"] == len(load_schema(drafted).feature_names)
    told = " ".join(run("check", drafted, tmp_path / "sample.csv").stdout.split())
    assert "features: the columns and products of two of them" in told
    for wrong in (("--polynomial", 3), ("--polynomial", 2, "--fourier", 5)):
        refusal = run(*arguments, *wrong)
        assert refusal.exit_code == 2
        assert "must" in refusal.stderr.splitlines()[-1]


def test_a_schema_is_replaced_only_when_told(run, drafted, tmp_path):
    before = drafted.read_text()
    arguments = ("draft", tmp_path / "sample.csv", "--label", "y", "-o", drafted, "--constant")
    assert run(*arguments).exit_code == 2
    assert drafted.read_text() == before
    result = run(*arguments, "--force", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["result"]["encoded_columns"] == 5
    assert load_schema(drafted).constant


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("?,a,no\n,b,yes\n", "column 'age' is missing in every row"),
        ("30,,no\n31,?,yes\n", "column '[bold]work' is missing in every row"),
        ("30,a,nein\n31,b,ja\n", "every label is bad"),
    ],
)
def test_a_file_that_is_read_wrongly_fails(run, drafted, tmp_path, rows, sentence):
    (tmp_path / "rows.csv").write_text("age,[bold]work,y\n" + rows)
    result = run("check", drafted, tmp_path / "rows.csv")
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert "does not fit the schema" in result.stdout
    as_json = run("check", drafted, tmp_path / "rows.csv", "--json")
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["result"]["failures"] == [
        line.removeprefix("Warning: ") for line in result.stderr.splitlines()
    ]


def test_a_file_without_rows_does_not_fail(run, drafted, tmp_path):
    (tmp_path / "rows.csv").write_text("age,[bold]work,y\n")
    assert run("check", drafted, tmp_path / "rows.csv").exit_code == 0


def test_a_draft_tells_what_it_found(run, tmp_path):
    sample, schema = tmp_path / "sample.csv", tmp_path / "schema.toml"
    lines = [
        f"P{n};{n % 7},5;2024-01-{n % 28 + 1:02};{'yes' if n % 2 else 'no'}" for n in range(30)
    ]
    sample.write_text("\n".join(["patient;dose;admitted;y", *lines]) + "\n")
    result = run("draft", sample, "--label", "y", "-o", schema, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)["result"]
    assert (told["delimiter"], told["decimal"], told["numeric"]) == (";", ",", ["dose"])
    assert (told["ignored"], told["categorical"]) == (["patient", "admitted"], [])
    assert load_schema(schema).ignore == ("patient", "admitted")
    for hint, words in zip(
        told["hints"], ("with a comma", "'patient' looks like an", "'admitted' holds"), strict=True
    ):
        assert words in hint
        assert hint in result.stderr
    # What it found is enough to read such files.
    assert run("check", schema, sample).exit_code == 0


LABELLED = """
[label]
column = "y"
classes = ["negative", "positive"]
[[columns]]
name = "dose"
kind = "numeric"
lower = 0
upper = 10
[[columns]]
name = "ward"
kind = "categorical"
levels = ["north", "south"]
"""


@pytest.fixture
def check(run, tmp_path):
    def check(rows, *options, schema=LABELLED, header="dose,ward,y"):
        (tmp_path / "labelled.toml").write_text(schema)
        (tmp_path / "rows.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        words = ("check", tmp_path / "labelled.toml", tmp_path / "rows.csv", *options)
        result = run(*words, "--json")
        assert run(*words).exit_code == result.exit_code
        told = json.loads(result.stdout)["result"]
        assert result.exit_code == bool(told["failures"])
        return told

    return check


OR_ELSE = " or where the file is named: [data], [[party]] or [node]."
GOOD = ["1,north,negative", "2,south,positive"]


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        (GOOD, []),
        (
            ["1,north,Negative", "2,south,POSITIVE", *GOOD],
            [
                "2 of 4 labels are bad, and taken as 'negative': 2 differ by capitals only: write "
                "ignore_case = true under [label]," + OR_ELSE
            ],
        ),
        (
            ["1,north,negative\u00a0", "2,south,positive"],
            [
                "1 of 2 labels are bad, and taken as 'negative': 1 differs by white space only: "
                "write trim = true under [label]," + OR_ELSE
            ],
        ),
        (
            ["1,north,\u00a0Negative", "2,south,Positive"],
            [
                "every label is bad, and taken as 'negative': 2 differ by white space and capitals "
                "only: write trim = true and ignore_case = true under [label]," + OR_ELSE
            ],
        ),
        (
            ["1,north,0", "2,south,0", "1,north,pos", "1,south,pos"],
            [
                "every label is bad, and taken as 'negative': write aliases = "
                '{"0" = "...", "pos" = "..."} under [label], each with what it means of '
                "'negative', 'positive'."
            ],
        ),
        (
            [*GOOD, "1,north,", "1,north,?"],
            [
                "2 of 4 labels are bad, and taken as 'negative': complete the 2 that are missing, "
                "or take these rows out."
            ],
        ),
        (
            [*GOOD, '"1,5",north,negative', '"2,5",south,positive'],
            [
                "column 'dose' has 2 numbers with a comma, which are taken as missing: write "
                'decimal = "," at the top of the schema, or where the file is named: [data], '
                "[[party]] or [node]."
            ],
        ),
        (
            ["11,north,negative", "12,south,positive"],
            [
                "column 'dose' is outside its bounds, 0 and 10, in every row that has a number: "
                "compare the units of both."
            ],
        ),
        (
            ["1,North,negative", "2,south,positive"],
            [
                "column 'ward' has cells that are spelt otherwise than its levels: 1 differs by "
                "capitals only: write ignore_case = true in its [[columns]] table, or where the "
                "file is named: [data], [[party]] or [node]."
            ],
        ),
        (
            ["1,nord,negative", "2,nord,positive"],
            [
                "column 'ward' has none of its levels in any row: write aliases = "
                '{"nord" = "north"} in its [[columns]] table, each with what it means of '
                "'north', 'south'."
            ],
        ),
        # Rare spellings may be about one person: they are counted, and not shown.
        (
            [*GOOD * 30, "1,north,Meier"],
            [
                "1 of 61 labels are bad, and taken as 'negative': compare the label's cells with "
                "the schema's classes."
            ],
        ),
    ],
)
def test_a_file_that_does_not_fit_fails_and_says_what_to_write(check, rows, sentences):
    assert check(rows)["failures"] == sentences


def test_what_is_proposed_mends_the_file(check):
    rows = ['"1,5",NORTH,Pos\u00a0', '"2,5",south,neg', "3,South,POS", "k. A.,north,neg"] * 2
    mended = 'decimal = ","\n' + LABELLED.replace(
        '["negative", "positive"]',
        '["negative", "positive"]\ntrim = true\nignore_case = true\n'
        'aliases = {pos = "positive", neg = "negative"}',
    )
    assert len(check(rows)["failures"]) == 3
    told = check(rows, schema=mended + "ignore_case = true\n")
    assert (told["failures"], told["bad_labels"]) == ([], 0)
    assert (told["unused_classes"], told["unused_levels"]) == ([], {})


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["Positive", "other"], ["1 differs by capitals only: write ignore_case = true"]),
        (["pos", "pos"], ["no label is 'positive'", 'aliases = {"pos" = "..."}']),
        (["positive", "other"], []),
        (["positive", "?"], ["1 of 2 labels are bad"]),
    ],
)
def test_a_positive_label_that_is_spelt_otherwise_fails(check, labels, words):
    schema = LABELLED.replace('classes = ["negative", "positive"]', 'positive = "positive"')
    told = check([f"1,north,{label}" for label in labels], schema=schema)
    assert len(told["failures"]) == bool(words)
    for word in words:
        assert word in told["failures"][0]


def test_a_check_reads_a_file_as_its_configuration_says(check, tmp_path):
    rows = ["1,5;north;ja", "k. A.;SOUTH;Nein"]
    party = 'delimiter = ";"\ndecimal = ","\nignore_case = true\n'
    party += 'aliases = {y = {ja = "positive", nein = "negative"}}\n'
    (tmp_path / "run.toml").write_text(f'[data]\n[[party]]\nname = "a"\nfile = "rows.csv"\n{party}')
    (tmp_path / "node.toml").write_text(f'[node]\nname = "a"\ndata = "rows.csv"\n{party}')
    for name in ("run.toml", "node.toml"):
        told = check(rows, "--config", tmp_path / name, header="dose;ward;y")
        assert (told["failures"], told["bad_labels"], told["rows"]) == ([], 0, 2)


def test_a_check_with_a_wrong_configuration_is_refused(run, drafted, tmp_path):
    (tmp_path / "node.toml").write_text('[node]\ndecimal = "x"\n')
    result = run("check", drafted, tmp_path / "sample.csv", "--config", tmp_path / "node.toml")
    assert result.exit_code == 2
    assert "decimal" in result.stderr
    (tmp_path / "node.toml").write_text('[node]\naliases = {y = {ja = "jein"}}\n')
    result = run("check", drafted, tmp_path / "sample.csv", "--config", tmp_path / "node.toml")
    assert result.exit_code == 2
    assert "'ja' for 'jein', which is none" in " ".join(result.stderr.split())
