"""One repository per aggregate; each takes the open :class:`db.database.Database`.

Every method is one transaction, which steps that are appended at the same time share: what it wrote is durable when it
returns.
"""

from db.repositories.annotations import AnnotationsRepository
from db.repositories.batches import BatchesRepository
from db.repositories.calibrations import CalibrationsRepository
from db.repositories.comparisons import ComparisonsRepository
from db.repositories.jobs import JobsRepository
from db.repositories.ledgers import LedgersRepository
from db.repositories.library import LibraryRepository
from db.repositories.prompt_sets import PromptSetsRepository
from db.repositories.sessions import SessionsRepository
from db.repositories.user_lists import UserListsRepository

__all__ = [
    "AnnotationsRepository",
    "BatchesRepository",
    "CalibrationsRepository",
    "ComparisonsRepository",
    "JobsRepository",
    "LedgersRepository",
    "LibraryRepository",
    "PromptSetsRepository",
    "SessionsRepository",
    "UserListsRepository",
]
