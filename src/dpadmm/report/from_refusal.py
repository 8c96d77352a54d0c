"""The page of a run that a ledger refused, and why."""

from __future__ import annotations

from dpadmm.config import RunConfig
from dpadmm.report import texts
from dpadmm.report.configuration import configuration_text
from dpadmm.report.document import Banner, Code, Report, Section
from dpadmm.version import __version__

__all__ = ["refusal_report"]


def refusal_report(config: RunConfig, reason: str, when: str, *, started: bool) -> Report:
    """Say what was asked for and why it was refused; ``started``: rounds may have been sent."""
    run = config.run
    words = texts.STOPPED_WORDS if started else texts.REFUSED_WORDS
    asked = texts.REFUSED_ASKED_WORDS.format(
        epsilon=run.epsilon, delta=run.delta, rounds=run.rounds, algorithm=run.algorithm
    )
    return Report(
        title=texts.REFUSED_TITLE,
        subtitle=texts.REFUSED_SUBTITLE.format(
            algorithm=run.algorithm, rounds=run.rounds, when=when, version=__version__
        ),
        banners=(Banner("danger", texts.REFUSED, words),),
        answers=(
            (texts.REFUSED_WHY, reason[:1].upper() + reason[1:]),
            (texts.REFUSED_ASKED, asked),
            (texts.LEARNT, texts.STOPPED_LEARNT if started else texts.REFUSED_LEARNT),
            (texts.REFUSED_NEXT, texts.REFUSED_NEXT_WORDS),
        ),
        sections=(
            Section(
                texts.CONFIGURATION,
                (Code(texts.CONFIGURATION_CODE, configuration_text(config.plain())),),
            ),
        ),
    )
