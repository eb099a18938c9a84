"""Library, exports, batches, swaps and comparisons as pages and commands see them; see :mod:`app.services.ports`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from app.services.batch.impact import ImpactTable
from app.services.prompts.ports import PromptSets
from app.services.swap.tables import SwapTable
from app.services.views import (
    AuditSettings,
    AuditView,
    ParsedPromptSet,
    RowError,
    Span,
    StartAudit,
    Step,
)
from app.services.views.batches import (
    BatchEstimate,
    BatchOrder,
    BatchRequest,
    BatchSummary,
    BatchView,
    OutcomeRule,
    Outcomes,
)
from app.services.views.comparisons import Comparison
from app.services.views.library import (
    BulkExport,
    BulkResult,
    Duplicate,
    LibraryChoices,
    LibraryPage,
    LibraryQuery,
    PrunePreview,
)
from app.services.views.policies import PolicyInfo
from app.services.views.swaps import (
    SwapOffer,
    SwapProgress,
    SwapRequest,
    SwapResult,
    SwapTargets,
    SwapVariant,
)


class Library(Protocol):
    """Past sessions: found, tagged, archived, copied, exported; their branches named and pruned."""

    def search(self, query: LibraryQuery) -> LibraryPage:
        """A page of the sessions that a query finds; the last page where it asks for a later one."""

    def ids(self, query: LibraryQuery) -> tuple[int, ...]:
        """Ids of all sessions that a query finds, on whatever page, oldest first; for actions on all of them."""

    def choices(self) -> LibraryChoices:
        """What the filters can be set to."""

    def rename(self, session_id: int, name: str) -> None:
        """Change a session's name."""

    def tag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Give sessions a tag."""

    def untag(self, session_ids: Sequence[int], tag: str) -> BulkResult:
        """Take a tag from sessions."""

    def archive(self, session_ids: Sequence[int], archived: bool = True) -> BulkResult:
        """Put sessions out of the way, or take them back."""

    def delete(self, session_ids: Sequence[int]) -> BulkResult:
        """Delete sessions with everything that belongs to them; this cannot be undone."""

    def prefill(self, session_id: int) -> Duplicate:
        """A request that begins a session with the prompt, spans and settings of a stored one; needs no model."""

    def duplicate(self, session_id: int, settings: AuditSettings | None = None, name: str | None = None) -> AuditView:
        """Begin a session with the prompt and spans of a stored one, under other settings or the same."""

    def export(self, session_ids: Sequence[int], folder: Path) -> BulkExport:
        """Write the CSV reports of sessions and an index of them into one ZIP file, atomically."""

    def rename_branch(self, session_id: int, branch_id: int, name: str) -> None:
        """Change a branch's name."""

    def prune_preview(self, session_id: int, branch_id: int) -> PrunePreview:
        """What pruning a branch would take along, or why it cannot be pruned."""

    def prune(self, session_id: int, branch_id: int) -> AuditView:
        """Delete a branch and all that depart from it."""


class Batches(PromptSets, Protocol):
    """Many prompts audited with the same settings, in the background."""

    def row_errors(self, prompts: ParsedPromptSet, request: BatchRequest) -> tuple[RowError, ...]:
        """All that is wrong with a prompt set for a request, also what only the model can tell; loads the model."""

    def estimate(self, prompts: ParsedPromptSet, request: BatchRequest) -> BatchEstimate:
        """What a batch of the usable rows will take, by a trial with one of them."""

    def submit(self, prompts: ParsedPromptSet, request: BatchRequest) -> int:
        """Store a batch, start it as a job, and return the batch's id."""

    def cancel(self, batch_id: int) -> None:
        """Ask a running batch to stop after its current token; finished sessions stay, and it can be resumed."""

    def resume(self, batch_id: int) -> int:
        """Go on with the rows that are not finished; a session that was cut off is continued. The new job's id."""

    def list(self) -> tuple[BatchSummary, ...]:
        """All batches, newest first."""

    def view(self, batch_id: int, order: BatchOrder = "line", descending: bool = False) -> BatchView:
        """A batch with its rows and totals; needs no model."""

    def outcomes(self, batch_id: int, rule: OutcomeRule) -> Outcomes:
        """Which rows are selected, read from their continuations."""

    def impact(self, batch_id: int, rule: OutcomeRule, exclude_small: bool = False) -> tuple[ImpactTable, Outcomes]:
        """Selection rates by group and impact ratios, and the outcomes that they rest on."""

    def csv(self, batch_id: int) -> str:
        """The rows of a batch as RFC 4180 CSV text."""

    def write_csv(self, batch_id: int, folder: Path) -> tuple[Path, Path]:
        """Write the rows and the totals by group into a folder, each file atomically, and return their paths."""

    def delete(self, batch_id: int) -> None:
        """Delete a batch that is not running; its sessions stay in the library."""


class Swaps(Protocol):
    """The same prompt with one attribute exchanged."""

    def offers(self, category: str, text: str = "") -> tuple[SwapOffer, ...]:
        """Words of the lexicons that could take a span's place, by kind, those of the text's own kind first."""

    def targets(self, prompt: str, spans: Sequence[Span]) -> SwapTargets:
        """What of a prompt can be replaced, and how its pronouns are read; needs no model."""

    def variants(self, request: SwapRequest) -> tuple[SwapVariant, ...]:
        """The variants that a request compares, for reading and correcting; needs no model."""

    def compare(self, request: SwapRequest, progress: Callable[[float, str], None] | None = None) -> SwapResult:
        """Run every variant under vanilla decoding and under the policy, and compare one step's distributions.

        What ``progress`` raises ends the comparison after the current token and passes through.
        """

    def run(self, request: SwapRequest) -> Iterator[SwapProgress | SwapResult]:
        """The same as a stream: progress after every token, the result at the end."""

    def cancel(self, number: int) -> None:
        """End a running comparison after its current token; one that has ended stays as it is."""

    def at(self, number: int, answer_step: int) -> SwapResult:
        """Another step (0-based) of a comparison that is still kept; its chains are not run again."""

    def write_csv(self, number: int, answer_step: int, table: SwapTable, folder: Path) -> Path:
        """Write a table of a comparison that is still kept into a folder, atomically, and return its path."""


class Comparisons(Protocol):
    """Chains beside each other."""

    def compare(self, session_ids: Sequence[int], branch_ids: Sequence[int | None] = ()) -> Comparison:
        """Compare the chains of sessions, the others with the first; needs no model."""

    def run_beside(self, request: StartAudit, policies: Sequence[str]) -> tuple[int, ...]:
        """Begin one session a policy with the same prompt, spans and seed; none if one of them is refused."""

    def policies(self) -> tuple[PolicyInfo, ...]:
        """The policies that a prompt can be run under."""

    def run_columns(self, request: StartAudit, columns: Sequence[AuditSettings]) -> tuple[int, ...]:
        """Begin one session for each of several settings with the same prompt and spans; none if one is refused."""

    def advance(self, session_ids: Sequence[int]) -> Iterator[tuple[int, Step]]:
        """Generate sessions to their ends, one token each in turn: session and its new step, which is durable then."""

    def pause(self, session_ids: Sequence[int]) -> None:
        """Stop sessions after their current tokens; those that :meth:`advance` has not come to yet do not begin."""

    def write_csv(self, session_ids: Sequence[int], branch_ids: Sequence[int | None], folder: Path) -> Path:
        """Write a comparison into a folder, atomically, and return its path."""
