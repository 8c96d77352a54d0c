"""The page of an experiment: what the paper concludes, our criterion, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dpadmm.experiments.experiment import Evaluation, Experiment
from dpadmm.experiments.meaning import HEADING, THEOREMS, Meaning

__all__ = ["index_page", "page"]

# What Sphinx makes of the heading.
_ANCHOR: Final = HEADING.lower().replace(" ", "-")


def page(
    experiment: Experiment, evaluation: Evaluation, meaning: Meaning, manifest: dict[str, Any]
) -> str:
    """Markdown for the documentation; every number in it comes from the manifest."""
    parts = [f"# {experiment.citation}, {experiment.part}\n", f"{experiment.title}.\n"]
    if manifest["stand_ins"]:
        parts.append(f"**Stand-in data:** {'; '.join(manifest['stand_ins'])}.\n")
    parts += ["## What it concludes, and what came out\n"]
    for conclusion in experiment.conclusions:
        parts.append(f"**{conclusion.claim}**\n")
        parts.append(f"*Criterion, fixed before running:* {conclusion.criterion}\n")
        for finding in evaluation.findings:
            if finding.conclusion == conclusion.name:
                parts.append(
                    f"* {_heading(finding.calibration)}: **{finding.verdict}**. {finding.number}"
                )
        parts.append("")
    parts += [f"{remark}\n" for remark in evaluation.remarks]
    if evaluation.panels:
        words = f"{experiment.part}: {experiment.title}"
        parts.append(f"![{words}](figure.svg)\n")
        parts += [f"{panel.title}: {panel.note}\n" for panel in evaluation.panels if panel.note]
        parts.append(
            "Dashed: noise as published, whose epsilon is the paper's claim. Solid: proven. "
            f"[{HEADING}](#{_ANCHOR}). Bands are 95% intervals of the mean over runs, unless a "
            "panel says otherwise. "
            "{download}`The points <figure.csv>`.\n"
        )
    for title, table in evaluation.tables.items():
        parts += [f"## {title}\n", table.markdown()]
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


def index_page(manifests: Sequence[dict[str, Any]]) -> str:
    """The list of all rerun experiments with their verdicts, for the documentation."""
    parts = [
        "# The papers' figures and tables, rerun\n",
        "Each experiment was rerun with noise as its paper sets it (as published) and with noise "
        "that provably meets the same budget (proven). A conclusion *stands* when a criterion that "
        "was fixed before running holds; the number that decides is on the experiment's page, with "
        "every setting and who chose it. All of it is one command:\n",
        "```console\n$ DPADMM_DATA=/folder/with/data dpadmm reproduce --all --output FOLDER\n```\n",
        *_shared_meaning(manifests),
    ]
    for citation in dict.fromkeys(manifest["citation"] for manifest in manifests):
        parts += [
            f"## {citation}\n",
            "| experiment | conclusion | as published | proven | otherwise |\n|" + " --- |" * 5,
        ]
        for manifest in manifests:
            if manifest["citation"] == citation:
                parts += _verdict_lines(manifest)
        parts.append("")
    seconds = sum(manifest["cell_seconds"] for manifest in manifests)
    share = 1.0 / seconds if seconds else 0.0
    pages = "\n".join(f"{manifest['experiment']}/page" for manifest in manifests)
    parts += [
        "## What it costs\n",
        f"The cells' own clocks add up to {seconds / 60:.0f} minutes, those that two experiments "
        "share counted twice; they ran side by side, and beside whatever else the machine did.\n",
        "| experiment | cells | seconds of computing | share |\n|" + " --- |" * 4,
        *(
            f"| {manifest['experiment']} | {len(manifest['cells'])} "
            f"| {manifest['cell_seconds']:.0f} | {share * manifest['cell_seconds']:.0%} |"
            for manifest in sorted(manifests, key=lambda each: -each["cell_seconds"])
        ),
        "",
        f"```{{toctree}}\n:hidden:\n\n{pages}\n```\n",
    ]
    return "\n".join(parts)


def _verdict_lines(manifest: dict[str, Any]) -> list[str]:
    """A line of the index for each conclusion of an experiment."""
    lines = []
    for conclusion in manifest["conclusions"]:
        verdicts: dict[str, list[str]] = {"published": [], "proven": [], "": []}
        for finding in manifest["findings"]:
            if finding["conclusion"] == conclusion["name"]:
                place = finding["calibration"] if finding["calibration"] in verdicts else ""
                verdicts[place].append(finding["verdict"])
        link = f"[{manifest['part']}]({manifest['experiment']}/page.md)"
        cells = [", ".join(dict.fromkeys(each)) for each in verdicts.values()]
        lines.append(f"| {link} | {_words(conclusion['claim'])} | {' | '.join(cells)} |")
    return lines


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


def _heading(calibration: str) -> str:
    return {
        "published": "As published",
        "proven": "Proven",
        "": "Without noise",
    }.get(calibration, calibration)


def _words(value: Any) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
