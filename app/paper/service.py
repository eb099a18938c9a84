"""Makes everything of the paper that a folder's evaluations allow, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.evaluate.experiments.service import ExperimentRun, ExperimentService
from app.evaluate.service import EvaluationService
from app.hosting.model_host import ModelHost
from app.paper.claims import Checked, Run, check, paper_claims
from app.paper.collate import Section, averages
from app.paper.examples import worked_examples
from app.paper.items import EXAMPLES, paper_experiments
from app.paper.outputs import Made, write_page, write_section
from app.paper.run import Asked, PaperRun, Part, Tell


class PaperService:
    """Runs the paper's experiments, and makes their files."""

    def __init__(self, evaluations: EvaluationService, experiments: ExperimentService, host: ModelHost) -> None:
        self._evaluations, self._experiments, self._host = evaluations, experiments, host

    def begin(
        self, out: Path, asked: Asked, models: Sequence[str], only: Sequence[str], stored: Sequence[int]
    ) -> PaperRun:
        """The evaluations of a folder, new or begun."""
        return PaperRun(self._evaluations, self._experiments, out, asked, models, only, stored)

    def made(self, run: PaperRun, parts: Sequence[Part], tell: Tell) -> Made:
        """Make and write everything of what is kept."""
        runs: dict[str, list[ExperimentRun]] = {}
        sections = []
        for part in parts:
            if part.evaluation is not None and not part.reason:
                shown = self._experiments.shown(part.evaluation)
                runs.setdefault(part.experiment, []).append(shown)
                sections.append(Section(part.experiment, part.model, shown.tables))
        if EXAMPLES in paper_experiments(run.only):
            sections += [Section(EXAMPLES, name, worked_examples(self._host.get(name))) for name in run.models]
        means = (averages([own for own in sections if own.experiment == name]) for name in runs)
        sections += [mean for mean in means if mean is not None]
        for section in sections:
            tell(f"writing {section.experiment}, {section.model}")
            write_section(run.out, section)
        made = Made(run.out, run.only, tuple(sections), tuple(parts), self._claims(run.only, runs))
        write_page(made)
        return made

    def _claims(self, only: Sequence[str], runs: dict[str, list[ExperimentRun]]) -> tuple[Checked, ...]:
        """All claims with their verdicts; where some experiments were named, those about them."""
        claims = paper_claims()
        # The outcomes of one experiment at a time are in memory.
        checked = {
            claim: check(claim, read)
            for name in dict.fromkeys(claim.experiment for claim in claims)
            if not only or name in only
            for read in [tuple(map(self._read, runs.get(name, ())))]
            for claim in claims
            if claim.experiment == name
        }
        return tuple(checked[claim] for claim in claims if claim in checked)

    def _read(self, run: ExperimentRun) -> Run:
        figures = self._experiments.figures(run.experiment, run.view, run.suites)
        return Run(run.view.request.model, figures, run.tables)
