"""What a node ends with, and the files that it writes of it: of a training or of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpadmm.durable import write_whole
from dpadmm.federation.node_study import NodeStudy
from dpadmm.federation.runtime import NodeSetup
from dpadmm.privacy.noise import NoiseSource
from dpadmm.report.html import write_page
from dpadmm.report.run import run_report
from dpadmm.run.classifier import Classifier
from dpadmm.run.engine import Outcome
from dpadmm.run.files import estimator_parameters, write_results
from dpadmm.run.model import Model
from dpadmm.run.plan import Plan
from dpadmm.run.result import Run, provenance
from dpadmm.run.session import ORDER_NOT_COVERED, state_privacy
from dpadmm.studies.describe_files import Description
from dpadmm.studies.study import StudyRun
from dpadmm.studies.study_files import write_study


def node_run(
    setup: NodeSetup,
    classifier: Classifier,
    how: Mapping[str, Any],
    *,
    seconds: float | None,
    noise_error: float | None,
) -> Run:
    """The finished run of one node.

    Parameters
    ----------
    setup, classifier
        The node, and what it has learnt.
    how
        Public facts about how the run went; who was in it is added here.
    seconds, noise_error
        As of a :class:`~dpadmm.run.result.Run`.
    """
    agreed, told = setup.agreed, setup.run_config()
    # New files of this party are written as its rows were.
    schema = setup.schema.read_as(told.data)
    rows = {setup.name: agreed.rows[setup.name]}
    facts = who_took_part(setup) | dict(how)
    come_from = provenance(told, schema, rows, setup.run.hex(), facts)
    return Run(
        told,
        Model(classifier, estimator_parameters(told.run, agreed.names), schema, come_from),
        setup.planned.site.topology,
        warnings=setup.warnings,
        seconds=seconds,
        noise_error=noise_error,
    )


def node_study(
    setup: NodeSetup,
    own: Plan,
    outcome: Outcome,
    how: Mapping[str, Any],
    *,
    noise: NoiseSource,
    caveats: Sequence[str] = (),
) -> NodeStudy:
    """The finished study of one node.

    Parameters
    ----------
    setup, own
        The node, and its party's share of the plan.
    outcome
        What came of all its rounds, with what this party was charged for them.
    how
        As of :func:`node_run`.
    noise, caveats
        Where this party's noise comes from, and what is known of how it went.
    """
    assert setup.question is not None
    privacy = state_privacy(
        own,
        outcome.events,
        noise,
        also_not_covered=(ORDER_NOT_COVERED,) if setup.agreed.run.holdout else (),
        caveats=caveats,
        details=setup.question.details(setup.planned),
    )
    run_id = str(setup.agreed.run.run_id)
    done = StudyRun(setup.planned, outcome, privacy, run_id, setup.schema.sha256)
    return NodeStudy(setup, done, who_took_part(setup) | dict(how))


def who_took_part(setup: NodeSetup) -> dict[str, Any]:
    """Public facts about the others."""
    agreed = setup.agreed
    return {
        "node": setup.name,
        "nodes": list(agreed.nodes),
        "rows": agreed.rows,
        "server": agreed.server,
    }


def write_node_results(
    setup: NodeSetup, found: Run | NodeStudy, changes: Sequence[str] = ()
) -> None:
    """Write the model, then what describes it: the record, the statement and the page.

    Parameters
    ----------
    setup, found
        The node, and what it trained, or what its study found.
    changes
        Lines for the end of the statement: how the run changed after losses.
    """
    result = setup.config.result
    assert result is not None
    if isinstance(found, NodeStudy):
        told = setup.study_config()
        write_study(told, found.record())
        if isinstance(found.answer, Description) and found.schema_file is not None:
            found.answer.write_schema(found.schema_file)
        place, page, ledgers = told.result.report_file, found.report(), found.ledgers["ledgers"]
    else:
        record, place = write_results(found), found.config.result.report_file
        page, ledgers = run_report(record), record.ledgers
    if result.statement is not None:
        lines = [str(found.privacy)]
        for words in ledgers.values():
            lines += ["", "The ledger of this data set:", words]
        if changes:
            lines += ["", *changes]
        write_whole(result.statement, ("\n".join(lines) + "\n").encode(), "statement")
    if place is not None:
        write_page(place, page)
