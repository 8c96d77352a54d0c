"""What experiments leave behind: figures, tables, a manifest, a page, a report; and their index."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from dpadmm.durable import write_whole
from dpadmm.experiments.figures import colours_of, figure_table, write_figure, write_table
from dpadmm.experiments.jobs import OnDone, Result, Store
from dpadmm.experiments.meaning import HEADING, THEOREMS, Meaning, Shown, meaning_of
from dpadmm.experiments.measures import LOOK_LEVEL
from dpadmm.report.document import (
    COMMAND,
    CONFIGURATION,
    MEANING,
    NO_NOISE,
    PUBLISHED,
    PUBLISHED_WORDS,
    SIMULATION,
    STAND_IN,
    Banner,
    Code,
    Facts,
    Report,
    Section,
    Table,
    Words,
)
from dpadmm.report.html import write_report
from dpadmm.version import __version__
from dpadmm_papers.experiment import (
    Evaluation,
    Experiment,
    Finding,
    Summary,
    look_twice,
    summaries,
)
from dpadmm_papers.manifests import manifest_of, manifest_text

#: How a page says that a finding needed the second look.
SECOND_LOOK: Final = "second look, up to 60 runs"


def page(
    experiment: Experiment, evaluation: Evaluation, meaning: Meaning, manifest: dict[str, Any]
) -> str:
    """Markdown for the documentation; every number in it comes from the manifest."""
    found = summaries(evaluation.findings)
    inner = {name for each in experiment.conclusions for name in each.parts}
    parts = [
        f"# {experiment.citation}, {experiment.part}\n",
        f"{experiment.title}. Rerun with dpadmm {manifest['dpadmm']}.\n",
        _in_short(experiment, found),
    ]
    if manifest["stand_ins"]:
        parts.append(f"**Stand-in data:** {'; '.join(manifest['stand_ins'])}.\n")
    if evaluation.panels:
        words = f"{experiment.part}: {experiment.title}"
        parts.append(f"![{words}](figure.svg)\n")
        parts += [f"{panel.title}: {panel.note}\n" for panel in evaluation.panels if panel.note]
        parts.append(
            "Dashed: noise as published, whose epsilon is the paper's claim. Solid: proven. "
            f"[{HEADING}](#{_anchor(HEADING)}). Bands are {LOOK_LEVEL:.1%} intervals of the mean "
            "over runs, unless a panel says otherwise. "
            "{download}`The points <figure.csv>` ({download}`for numpy <figure.npz>`).\n"
        )
    parts += ["## What it concludes, and what came out\n"]
    for conclusion in experiment.conclusions:
        name = "" if conclusion.name in inner else f"{conclusion.name}: "
        parts.append(f"{name}**{conclusion.claim}**\n")
        parts.append(f"*Criterion:* {conclusion.criterion}\n")
        own = [each for each in found if each.conclusion == conclusion.name]
        parts += [_finding_table(own).markdown()] if own else []
    parts += [f"{remark}\n" for remark in evaluation.remarks]
    for number, (title, table) in enumerate(evaluation.tables.items(), start=1):
        parts += [f"## {title}\n", table.markdown()]
        parts.append(
            f"{{download}}`CSV <table-{number}.csv>`, {{download}}`npz <table-{number}.npz>`\n"
        )
    parts += [f"## {HEADING}\n", meaning.markdown()]
    parts += ["## Settings\n", "| setting | value | source | why |\n| --- | --- | --- | --- |"]
    parts += [
        f"| {name} | {_words(setting.value)} | {setting.source} | {_words(setting.why)} |"
        for name, setting in experiment.settings.items()
    ]
    parts += [
        "",
        "## How it was made\n",
        f"```console\n$ {manifest['command']}\n```\n",
        f"dpadmm {manifest['dpadmm']}, numpy {manifest['numpy']}, Python {manifest['python']}; "
        f"{manifest['cell_seconds']:g} s of computing. Everything is a simulation on public data. "
        "Every cell's seed, parameters and statement of privacy: "
        "{download}`manifest <manifest.json>`.\n",
    ]
    return "\n".join(parts)


def _in_short(experiment: Experiment, found: Sequence[Summary]) -> str:
    """A line for each kind of noise: which conclusions stand, and which do not."""
    parts = {name for each in experiment.conclusions for name in each.parts}
    lines: dict[str, dict[str, list[str]]] = {}
    for each in found:
        if each.conclusion not in parts:
            column = _CALIBRATIONS.get(each.calibration, _OTHERWISE)
            names = lines.setdefault(column, {}).setdefault(each.word, [])
            names += [each.conclusion] if each.conclusion not in names else []
    return "".join(
        f"* {column.capitalize()}: "
        + "; ".join(f"**{word}**: {', '.join(names)}" for word, names in words.items())
        + ".\n"
        for column in (*_CALIBRATIONS.values(), _OTHERWISE)
        if (words := lines.get(column))
    )


def _finding_table(own: Sequence[Summary]) -> Table:
    """What a conclusion came to: a row for our settings, and one for each variant that differs."""
    rows = []
    for summary in own:
        heading = _heading(summary.calibration)
        if summary.depends_on or all(each.choice for each in summary.findings):
            rows.append((heading, "", f"**{summary.word}**", ""))
            heading = ""
        alike: dict[tuple[str, str], list[str]] = {}
        for finding in summary.findings:
            again = f" ({SECOND_LOOK})" if finding.look > 1 else ""
            came_to = (f"{finding.verdict}{again}", finding.number)
            alike.setdefault(came_to, []).append(_place_of(finding))
        for (word, number), places in alike.items():
            told = f"**{word}**" if heading else word
            rows.append((heading, "; ".join(places), told, number))
            heading = ""
    return Table.of(("noise", "with", "verdict", "what shows it"), rows)


def _heading(calibration: str) -> str:
    return {
        "published": "As published",
        "proven": "Proven",
        "": "Without noise",
    }.get(calibration, calibration)


def _words(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


@dataclass(frozen=True)
class Reproduction:
    """A rerun experiment: what it showed, and the files that it left."""

    experiment: Experiment
    evaluation: Evaluation
    manifest: dict[str, Any]
    folder: Path


def reproduce(
    experiment: Experiment,
    folder: Path,
    store: Store,
    *,
    jobs: int = 1,
    on_done: OnDone | None = None,
) -> Reproduction:
    """Compute what is missing, and write figure, data, manifest and page into ``folder``.

    Parameters
    ----------
    experiment
        What to rerun.
    folder
        Where its files go: ``figure.svg``, ``figure.csv``, ``table-1.csv`` and so on, an ``.npz``
        beside each, ``manifest.json``, ``page.md``, ``report.html`` and ``report.json``.
    store
        Where finished cells are kept.
    jobs, on_done
        As in :func:`~dpadmm.experiments.jobs.compute`.
    """
    start = time.monotonic()
    look = look_twice(experiment, store, jobs=jobs, on_done=on_done)
    evaluation = look.evaluation
    meaning = experiment_meaning(look.results)
    manifest = manifest_of(experiment, look, meaning, time.monotonic() - start)
    folder.mkdir(parents=True, exist_ok=True)
    if evaluation.panels:
        heading = f"{experiment.part}: {experiment.title}"
        stand_ins = manifest["stand_ins"]
        write_figure(evaluation.panels, folder / "figure.svg", heading + _stand_in_words(stand_ins))
        write_table(figure_table(evaluation.panels), folder / "figure")
    for number, table in enumerate(evaluation.tables.values(), start=1):
        write_table(table, folder / f"table-{number}")
    write_whole(folder / "manifest.json", manifest_text(manifest).encode(), "manifest")
    text = page(experiment, evaluation, meaning, manifest)
    write_whole(folder / "page.md", text.encode(), "page")
    write_report(folder, _report(experiment, evaluation, meaning, manifest))
    return Reproduction(experiment, evaluation, manifest, folder)


def _stand_in_words(stand_ins: list[str]) -> str:
    return f" (stand-in data: {'; '.join(stand_ins)})" if stand_ins else ""


def experiment_meaning(results: Mapping[str, Result]) -> Meaning:
    """What the runs guarantee, by algorithm; a cell without a statement made no release."""
    statements = [
        result.facts["privacy"] for result in results.values() if "privacy" in result.facts
    ]
    return meaning_of([Shown(privacy["algorithm"], privacy) for privacy in statements])


def _report(
    experiment: Experiment, evaluation: Evaluation, meaning: Meaning, manifest: dict[str, Any]
) -> Report:
    banners = [
        Banner(
            "danger",
            SIMULATION,
            "The noise of these runs can be drawn again: they protect nobody. Epsilons "
            "are what the same runs would guarantee with secret noise.",
        )
    ]
    if manifest["stand_ins"]:
        banners.append(Banner("caution", STAND_IN, "; ".join(manifest["stand_ins"])))
    if any(finding.calibration == "published" for finding in evaluation.findings):
        banners.append(Banner("caution", PUBLISHED, PUBLISHED_WORDS))
    remarks = tuple(Words(text) for text in evaluation.remarks)
    colours = colours_of(evaluation.panels)
    sections = (
        Section(
            "What the paper concludes, and what came out",
            (_verdict_table(experiment, evaluation), *remarks),
        ),
        Section(MEANING, (Facts(meaning.sentences()), *meaning.titled_tables())),
        Section("Figures", tuple(panel.plot(colours) for panel in evaluation.panels)),
        Section(
            "Tables",
            tuple(replace(table, title=title) for title, table in evaluation.tables.items()),
        ),
        Section("Settings", (_setting_table(experiment),)),
        Section(CONFIGURATION, (Code(COMMAND, manifest["command"]),)),
    )
    return Report(
        title=f"{experiment.part}: {experiment.title}",
        subtitle=f"An experiment, dpadmm {__version__}",
        banners=tuple(banners),
        answers=(("The paper", experiment.citation), *_verdict_counts(evaluation)),
        sections=tuple(section for section in sections if section.blocks),
    )


def _verdict_table(experiment: Experiment, evaluation: Evaluation) -> Table:
    criteria = {each.name: each for each in experiment.conclusions}
    return Table.of(
        (
            "conclusion",
            "calibration",
            "verdict",
            "the number that shows it",
            "criterion",
        ),
        [
            (
                criteria[each.conclusion].claim,
                _place(each),
                each.verdict,
                each.number,
                criteria[each.conclusion].criterion,
            )
            for each in evaluation.findings
        ],
        "What the paper concludes, and what came out",
    )


def _place(finding: Finding) -> str:
    """The calibration, and what was chosen otherwise."""
    place = finding.calibration or NO_NOISE
    return f"{place}; {finding.choice}: {finding.variant}" if finding.choice else place


def _setting_table(experiment: Experiment) -> Table:
    return Table.of(
        ("setting", "value", "source", "why"),
        [
            (name, _listed(each.value), each.source, each.why)
            for name, each in experiment.settings.items()
        ],
        "Settings",
    )


def _listed(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_listed(item) for item in value)
    return str(value)


def _verdict_counts(evaluation: Evaluation) -> list[tuple[str, str]]:
    """How many conclusions stand, by calibration."""
    found: dict[str, list[str]] = {}
    for each in summaries(evaluation.findings):
        found.setdefault(each.calibration or NO_NOISE, []).append(each.word)
    return [
        (
            calibration,
            ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts)),
        )
        for calibration, verdicts in found.items()
    ]


_CALIBRATIONS: Final = {"published": "as published", "proven": "proven"}
_OTHERWISE: Final = "otherwise"
_DEPENDS: Final = "depends on a choice of ours"


@dataclass(frozen=True)
class _Verdict:
    """A summary, where it stands, and the claim that it is about."""

    manifest: dict[str, Any]
    claim: str
    summary: Summary

    @property
    def is_part(self) -> bool:
        """Whether it is about a part of another claim, with which it is counted."""
        told = self.manifest["conclusions"]
        return any(self.summary.conclusion in each.get("parts", ()) for each in told)

    @property
    def column(self) -> str:
        return _CALIBRATIONS.get(self.summary.calibration, _OTHERWISE)

    @property
    def outcome(self) -> str:
        return _DEPENDS if self.summary.depends_on else self.summary.verdict

    @property
    def noise(self) -> str:
        """What tells it from others of the same claim."""
        return _CALIBRATIONS.get(self.summary.calibration, self.summary.calibration or NO_NOISE)

    def reason(self, finding: Finding) -> str:
        """What shows it; of a claim of several parts, also of the first part with the same word."""
        told = self.manifest["conclusions"]
        name = finding.conclusion
        parts = next((each.get("parts", ()) for each in told if each["name"] == name), ())
        same = (finding.verdict, *finding.what[1:])
        for each in map(_finding, self.manifest["findings"]):
            if each.conclusion in parts and (each.verdict, *each.what[1:]) == same:
                part = each.conclusion.removeprefix(f"{name}, ")
                return f"{finding.number} {part}: {each.number}"
        return finding.number

    @property
    def why(self) -> str:
        """What shows that it does not stand, or in which variant it does not; else nothing."""
        ours, *variants = self.summary.findings
        if ours.verdict != "stands":
            return self.reason(ours)
        other = next((each for each in variants if each.verdict != "stands"), None)
        return f"With {_place_of(other)}: {_first(self.reason(other))}" if other else ""

    @property
    def otherwise(self) -> str:
        """The variants that come to another word than our settings, and which."""
        found: dict[str, list[str]] = {}
        for each in self.summary.findings:
            if each.choice in self.summary.depends_on and each.verdict != self.summary.verdict:
                found.setdefault(each.verdict, []).append(_place_of(each))
        return "; ".join(f"{word} with {', '.join(places)}" for word, places in found.items())

    @property
    def link(self) -> str:
        return f"[{self.manifest['part']}]({self.manifest['experiment']}/page.md)"


def contents_page(manifests: Sequence[dict[str, Any]]) -> str:
    """The list of all rerun experiments with their verdicts, for the documentation."""
    verdicts = [verdict for manifest in manifests for verdict in _verdicts(manifest)]
    claims = [verdict for verdict in verdicts if not verdict.is_part]
    papers: dict[str, list[_Verdict]] = {}
    for each in claims:
        papers.setdefault(each.manifest["citation"], []).append(each)
    parts = [
        "# The papers' figures and tables, rerun\n",
        f"Rerun with dpadmm {', '.join(sorted({each['dpadmm'] for each in manifests}))}.\n",
        *_at_a_glance(claims),
        "".join(_of_paper(citation, own) for citation, own in papers.items()),
        "Noise is set as the paper sets it (as published), so that it provably meets the same "
        "budget (proven), or otherwise: none, or of a chosen size. All of it is one command:\n",
        "```console\n$ DPADMM_DATA=/folder/with/data dpadmm reproduce --all --output FOLDER\n```\n",
        "**How a verdict comes about.** A conclusion *stands* or *does not stand* when a criterion "
        "decides (the changelog names those that were chosen after results were known); the number "
        "that decides is on the experiment's page, with every setting and who chose it. Each is "
        f"looked at twice at most, with {LOOK_LEVEL:.1%} intervals: after 10 runs, and after 60 "
        "where 10 do not decide; what 60 leave open is *not decided*. Variants have 10 runs where "
        "they need runs of their own. It is *immaterial* which of "
        "several values is best where the paper's own number of runs could not tell. A claim about "
        "several things is judged part by part, and counted once. A conclusion *depends* on a "
        "choice that the paper leaves to us where our settings and the variants do not all come to "
        "the same word, *not decided* included.\n",
        "In the tables a verdict is that with our settings. *Otherwise* are the variants that come "
        "to another word. What shows it is said of what does not stand, of what stands only with "
        "some variants, and on the experiment's page of everything.\n",
    ]
    for citation, own in papers.items():
        parts += [f"## {citation}\n", _paper_table(own).markdown()]
    pages = "\n".join(f"{manifest['experiment']}/page" for manifest in manifests)
    parts += [*_shared_meaning(manifests), *_costs(manifests)]
    parts += [f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n"]
    return "\n".join(parts)


def _verdicts(manifest: dict[str, Any]) -> Iterator[_Verdict]:
    """Every conclusion of an experiment, in its order, with each noise."""
    found = summaries(_finding(each) for each in manifest["findings"])
    for conclusion in manifest["conclusions"]:
        for summary in found:
            if summary.conclusion == conclusion["name"]:
                yield _Verdict(manifest, conclusion["claim"], summary)


def _finding(told: dict[str, Any]) -> Finding:
    return Finding(**{**told, "rests_on": tuple(told.get("rests_on", ()))})


def _at_a_glance(verdicts: Sequence[_Verdict]) -> list[str]:
    """How many stand, how many under some reading, and how many under none."""
    papers = {each.manifest["citation"] for each in verdicts}
    conclusions = {(each.manifest["experiment"], each.summary.conclusion) for each in verdicts}
    outcomes = Counter(each.outcome for each in verdicts)
    dependent = [each.summary for each in verdicts if each.outcome == _DEPENDS]
    with_ours = sum(each.verdict == "stands" for each in dependent)
    never = sum(all(one.verdict != "stands" for one in each.findings) for each in dependent)
    lines = [
        f"{_number(len(conclusions), 'conclusion')} of {_number(len(papers), 'paper')} came to "
        f"{_number(len(verdicts), 'verdict')}, one for each noise that a conclusion was run "
        "with:\n",
        f"* **{outcomes['stands']} stand**, with our settings and in every variant tried.",
    ]
    if dependent:
        lines.append(
            f"* **{len(dependent)} depend on a choice that the paper leaves open**: {with_ours} "
            f"stand with our settings, {len(dependent) - with_ours - never} in another variant "
            f"only, {never} in none (they do not stand, or are not decided)."
        )
    if outcomes["does not stand"]:
        lines.append(f"* **{outcomes['does not stand']} do not stand** in any variant tried.")
    rest = (f"{outcomes[word]} {word}" for word in ("not decided", "immaterial") if outcomes[word])
    if words := " and ".join(rest):
        lines.append(f"* The rest is {words}.")
    return ["\n".join(lines) + "\n"]


def _of_paper(citation: str, own: Sequence[_Verdict]) -> str:
    """A paper in a line for each noise: how many conclusions stand, and which do not."""
    lines = [f"[{_short_name(own).upper()}](#{_anchor(citation)}):\n\n"]
    for column in (*_CALIBRATIONS.values(), _OTHERWISE):
        found = [each for each in own if each.column == column]
        counts = Counter(each.outcome for each in found)
        told = [f"**{counts['stands']} of {len(found)} stand**"]
        if dependent := [each.summary for each in found if each.summary.depends_on]:
            ours = sum(each.verdict == "stands" for each in dependent)
            told.append(
                f"dependent: {len(dependent)}, on {_choices(found)}, {ours} of them standing with "
                "our settings"
            )
        for outcome in ("does not stand", "not decided", "immaterial"):
            links = Counter(each.link for each in found if each.outcome == outcome)
            if links:
                where = ", ".join(_times(link, count) for link, count in links.most_common())
                told.append(f"{outcome}: {where}")
        if found:
            lines.append(f"* {column.capitalize()}: {'; '.join(told)}.\n")
    return "".join((*lines, "\n"))


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _times(what: str, count: int) -> str:
    return what if count == 1 else f"{what} ({count})"


def _choices(verdicts: Sequence[_Verdict]) -> str:
    """What verdicts depend on, the most frequent first."""
    found = Counter(choice for each in verdicts for choice in each.summary.depends_on)
    return ", ".join(_times(choice, count) for choice, count in found.most_common())


def _anchor(heading: str) -> str:
    """What Sphinx makes of a heading."""
    return "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _first(number: str) -> str:
    """The first sentence of what shows a verdict."""
    return f"{number.split('. ')[0].rstrip('.')}."


def _short_name(verdicts: Sequence[_Verdict]) -> str:
    """What the names of a paper's experiments begin with: its algorithm."""
    words = (each.manifest["experiment"].split("-") for each in verdicts)
    shared = takewhile(lambda place: len(set(place)) == 1, zip(*words, strict=False))
    return "-".join(place[0] for place in shared)


def _place_of(finding: Finding) -> str:
    """Which choice was made otherwise, and how."""
    return f"{finding.choice}: {finding.variant}" if finding.choice else "our settings"


def _paper_table(verdicts: Sequence[_Verdict]) -> Table:
    """The conclusions of a paper, each noise that comes to the same beside the others."""
    rows: dict[tuple[str, str, str], dict[tuple[str, str, str], list[str]]] = {}
    for each in verdicts:
        row = rows.setdefault((each.link, each.summary.conclusion, each.claim), {})
        came_to = (f"**{each.summary.verdict}**", each.otherwise, each.why)
        row.setdefault(came_to, []).append(each.noise)
    return Table.of(
        ("experiment", "conclusion", "noise", "verdict", "otherwise", "what shows it"),
        [
            (*(("", "") if place else (link, claim)), "; ".join(noises), *came_to)
            for (link, _, claim), row in rows.items()
            for place, (came_to, noises) in enumerate(row.items())
        ],
    )


def _costs(manifests: Sequence[dict[str, Any]]) -> list[str]:
    seconds = sum(manifest["cell_seconds"] for manifest in manifests)
    share = 1.0 / seconds if seconds else 0.0
    rows = [
        (
            manifest["experiment"],
            len(manifest["cells"]),
            len(manifest["more_runs"]["cells"]),
            f"{manifest['cell_seconds']:.0f}",
            f"{share * manifest['cell_seconds']:.0%}",
        )
        for manifest in sorted(manifests, key=lambda each: -each["cell_seconds"])
    ]
    heads = ("experiment", "cells", "run again with more runs", "seconds of computing", "share")
    return [
        "## What it costs\n",
        f"The cells' own clocks add up to {seconds / 60:.0f} minutes, those that two experiments "
        "share counted twice; they ran side by side, and beside whatever else the machine did.\n",
        Table.of(heads, rows).markdown(),
    ]


def _shared_meaning(manifests: Sequence[dict[str, Any]]) -> list[str]:
    """What the epsilons of all experiments mean; each page says it of its own runs."""
    found: dict[str, dict[str, None]] = {"Adjacency": {}, "Adversary": {}, "Theorem": {}}
    for manifest in manifests:
        meaning = manifest["meaning"]
        for heading, words in meaning["facts"]:
            found.get(heading.partition(" (")[0], {})[words] = None
        for _, theorem, releases in meaning["tables"].get(THEOREMS, {"rows": []})["rows"]:
            found["Theorem"][f"{theorem}; of {releases}"] = None
    return [
        f"**{HEADING}.** As published, an epsilon is the paper's claim, not a guarantee; proven, "
        "it is the total of one party over the whole run. Every page lists, for its own runs, the "
        "claims with what is proven of the same noise, delta and the theorem of every number. "
        "They all rest on these:\n",
        "".join(f"* {name}: {each}.\n" for name, words in found.items() for each in words),
    ]
