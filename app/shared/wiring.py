"""What the program is put together from: features, and services, which are built when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

if TYPE_CHECKING:
    from app.settings import Settings
    from app.shared.operations import Operation
    from coft_core.model.language_model import LanguageModel
    from db.database import Database

Service = TypeVar("Service")

FORMS = ("base/forms", "base/lists", "base/methods")
"""Styles of pages with forms and tables."""
CHAINS = ("base/prompt", "base/chain", *FORMS)
"""Styles of pages that show chains of tokens too."""


@dataclass(frozen=True, slots=True)
class Named:
    """Something stored that the address of a page may name."""

    parameter: str
    what: str
    store: str
    lists: str
    job: str = ""
    method: str = "get"
    by: type[int] | type[str] = int


SESSION = ("session", "db.sessions.SessionsRepository", "sessions")
"""What a session is called, where it is stored, and which page lists it."""
CALIBRATION = ("calibration", "db.calibrations.CalibrationsRepository", "calibrate")
BATCH = ("batch", "db.batches.BatchesRepository", "batches")


GROUPS = ("Audit", "Measure", "Library", "Setup")
"""The navigation; each has a tab for each of its pages."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: a tab of its group in the navigation, or several where ``views`` name parts of it by their query."""

    group: str
    title: str
    path: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...]
    names: tuple[Named, ...] = ()
    views: tuple[tuple[str, str], ...] = ()

    @property
    def for_admins(self) -> bool:
        """Whether only the account menu leads to it."""
        return self.group not in GROUPS

    @property
    def takes_session(self) -> bool:
        """Whether it can begin with the prompt, spans and settings of a session."""
        return self.group == GROUPS[0] and any(named.parameter == "session" for named in self.names)


@dataclass(frozen=True, slots=True)
class JobPlace:
    """What a kind of jobs is called, and where the result of one is shown."""

    kind: str
    title: str
    address: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Feature:
    """A folder of the program, whose module ``operations`` declares what it does, and ``page`` how it is shown."""

    package: str
    commands: Mapping[str, str]
    page: Page | None = None
    jobs: tuple[JobPlace, ...] = ()
    on_audit: bool = False
    serves: tuple[str, ...] = ()

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What it does."""
        from app.shared.operations import operations_of

        return operations_of(importlib.import_module(f"{self.package}.operations"))

    def served(self, services: Services) -> tuple[Any, ...]:
        """The services whose routes the web server has."""
        named = (name.rpartition(".") for name in self.serves)
        return tuple(services[getattr(importlib.import_module(module), kind)] for module, _, kind in named)

    @property
    def build_page(self) -> Callable[..., None]:
        """Places what its page consists of, given the application and the services."""
        return cast(Callable[..., None], importlib.import_module(f"{self.package}.page").build_page)

    @property
    def place_panel(self) -> Callable[[Services], None]:
        """Places its part of the audit page."""
        return cast(Callable[[Services], None], importlib.import_module(f"{self.package}.panel").place_panel)


class Services:
    """Everything that a page or a command may call, by its class: ``services[AuditService]``.

    A class is built from the services that its constructor asks for by their types, among them the open store, the
    settings and these services themselves; where it takes more than that, its method ``wired`` builds it. Nothing is
    built, and no library imported for it, before it is asked for.
    """

    def __init__(
        self,
        settings: Settings,
        features: tuple[Feature, ...],
        closing: ExitStack,
        owns_store: bool = False,
        loader: Callable[..., LanguageModel] | None = None,
    ) -> None:
        """Open nothing yet."""
        self.settings = settings
        self.features = features
        self.closing = closing
        self.owns_store = owns_store
        self.loader = loader
        self._built: dict[type[Any], Any] = {}
        self._building = RLock()

    def __getitem__(self, kind: type[Service]) -> Service:
        """The one service of a class."""
        with self._building:
            if kind not in self._built:
                wired = getattr(kind, "wired", None)
                self._built[kind] = self._constructed(kind) if wired is None else wired(self)
            return cast(Service, self._built[kind])

    def _constructed(self, kind: type[Service]) -> Service:
        """A service of this class, what its constructor has defaults for left out."""
        from app.settings import Settings
        from db.database import Database

        def asked(needed: type[Any]) -> Any:
            if needed is Database:
                return self.database
            return self.settings if needed is Settings else self if needed is Services else self[needed]

        kinds = get_type_hints(kind.__init__)
        needed = [item.name for item in signature(kind).parameters.values() if item.default is item.empty]
        return kind(**{name: asked(kinds[name]) for name in needed})

    @cached_property
    def database(self) -> Database:
        """The store, open."""
        from db.database import Database, default_database_url

        url = self.settings.database_url or default_database_url()
        by_project = self.settings.accounts == "on"
        # To read the whole file takes a while; a command would take longer for it than for what it does.
        database = self.closing.enter_context(Database(url, checked=self.owns_store, by_project=by_project))
        database.project = self._project(database)
        return database

    def _project(self, database: Database) -> int | None:
        """The project that is meant where no account says so; None for all of them together."""
        from db.projects import ProjectsRepository
        from db.scope import DEFAULT

        projects = ProjectsRepository(database)
        if self.settings.project:
            return projects.named(self.settings.project).id
        # A server asks its accounts; without any, it has one project, which is everything.
        several = not self.owns_store and len(projects.list()) > 1
        return DEFAULT if several or (self.settings.accounts == "on" and not self.owns_store) else None

    @property
    def pages(self) -> tuple[Page, ...]:
        """What there is to open."""
        with_accounts = self.settings.accounts == "on"
        pages = (feature.page for feature in self.features if feature.page is not None)
        return tuple(page for page in pages if with_accounts or not page.for_admins)

    @property
    def largest_upload(self) -> int:
        """Bytes that an uploaded file may have."""
        return self.settings.max_upload_mb * 1_000_000
