"""No broken implementation survives: each one is refuted by an audit or fails a named test."""

import re

import pytest
from tests.helpers.mutants import FAILED, MUTANTS, PAGE, REFUTED, ROOT, outcome, run_killer, table

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
# Those that every test of an earlier version passed; quick enough for every run of the tests.
QUICK = ("late-round", "outputs-pr-admm")
AUDITS = {mutant.killer: mutant for mutant in MUTANTS if mutant.by_audit}


def assert_killed(mutant, folder):
    code, printed = outcome(mutant, folder)
    if mutant.by_audit:
        assert code == REFUTED, printed[-2000:]
        assert '"refuted": true' in printed
    else:
        # A failure of the test itself: not of collecting it, and not for want of it.
        assert code == FAILED, printed[-2000:]
        assert re.search(r"^\d+ failed", printed.strip().splitlines()[-1]), printed[-2000:]


def test_names_are_unique():
    assert len(BY_NAME) == len(MUTANTS)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_mutant_applies_and_its_killer_exists(name):
    mutant = BY_NAME[name]
    assert mutant.source() != (ROOT / "src" / "dpadmm" / mutant.file).read_text(encoding="utf-8")
    if not mutant.by_audit:
        file, _, test = mutant.killer.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")


def test_the_page_has_the_table():
    assert table() in PAGE.read_text(encoding="utf-8"), table()


@pytest.mark.parametrize("name", QUICK)
def test_what_once_survived_is_refuted(name, tmp_path):
    assert_killed(BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_no_mutant_survives(name, tmp_path):
    assert_killed(BY_NAME[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("killer", AUDITS, ids=" ".join)
def test_the_same_audits_pass_the_package_as_it_is(killer):
    code, printed = run_killer(AUDITS[killer], ROOT / "src")
    assert code == 0, printed[-2000:]
