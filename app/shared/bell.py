"""The notifications of the top bar: what visitors are told of their long jobs on every page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.jobs.service import ACTIVE, JobService
from app.shared.format import day, duration
from app.shared.visitors import visitor_asking
from app.shared.wiring import JobPlace, Services
from db.jobs import JobNotice, JobsRepository

ENDED = {"done": "finished", "failed": "failed", "cancelled": "cancelled", "interrupted": "interrupted"}
WORST_FIRST = ("failed", "interrupted", "cancelled", "done")


class Bell:
    """Answers the requests of the notifications; visitors hear only of what they began."""

    def __init__(self, services: Services) -> None:
        self._jobs, self._running = services[JobsRepository], services[JobService]
        self._places = [place for feature in services.features for place in feature.jobs]

    @classmethod
    def wired(cls, services: Services) -> Bell:
        """Built from the program's services."""
        return cls(services)

    @property
    def routes(self) -> list[Route]:
        """Where the pages ask; changes are no links, so that nothing follows them by itself."""
        return [
            Route("/jobs", self.listed),
            Route("/jobs/seen", self.seen, methods=["POST"]),
            Route("/jobs/dismissed", self.dismissed, methods=["POST"]),
        ]

    def listed(self, request: Request) -> Response:
        """What is told of the visitor's jobs, newest first."""
        owners = visitor_asking(request).owners
        return JSONResponse({"jobs": self.told(owners)}, headers={"Cache-Control": "no-store"})

    def seen(self, request: Request) -> Response:
        """Note that the visitor saw that the jobs of the request have ended."""
        self._jobs.mark_seen(_asked(request), visitor_asking(request).owners)
        return self.listed(request)

    def dismissed(self, request: Request) -> Response:
        """Tell the visitor of the jobs of the request no more."""
        self._jobs.dismiss(_asked(request), visitor_asking(request).owners)
        return self.listed(request)

    def told(self, owners: Sequence[str] | None, limit: int = 50) -> list[dict[str, Any]]:
        """An entry for each result that jobs make: several, or one that was resumed, may make one together."""
        together: dict[str, list[JobNotice]] = {}
        places: dict[str, JobPlace] = {}
        for notice in self._jobs.notices(owners, limit):
            place = next((place for place in self._places if _is_of(notice, place)), None)
            if place is not None:
                address = place.address.format(id=notice.id, **notice.subject)
                together.setdefault(address, []).append(notice)
                places.setdefault(address, place)
        return [self._entry(address, places[address], notices) for address, notices in together.items()]

    def _entry(self, address: str, place: JobPlace, notices: Sequence[JobNotice]) -> dict[str, Any]:
        counted = _newest_of_each(notices)
        live = {notice.id: self._running.live(notice.id) for notice in counted}
        active = [notice for notice in counted if notice.status in ACTIVE]
        first = counted[0]
        status = "running" if active else next(name for name in WORST_FIRST if any(n.status == name for n in counted))
        contexts = [(notice, live[notice.id]) for notice in counted]
        share = sum(own.state[0] if own else notice.progress for notice, own in contexts) / len(counted)
        lefts = [None if (own := live[notice.id]) is None else own.seconds_left for notice in active]
        return {
            "ids": [notice.id for notice in notices],
            "kind": place.title,
            "name": str(first.subject.get("comparison", first.title)),
            "status": status,
            "ended": ENDED.get(status, ""),
            "percent": round(100 * share),
            "said": _said(status, counted, active, lefts),
            "at": None if active else _last_end(counted),
            "address": f"./{address}",
            "seen": not active and all(notice.seen_at is not None for notice in counted),
        }


def _asked(request: Request) -> list[int]:
    numbers = request.query_params.get("ids", "").split(",")
    return [int(number) for number in numbers if number.isdecimal() and len(number) < 19]


def _is_of(notice: JobNotice, place: JobPlace) -> bool:
    return notice.kind == place.kind and (not place.about or place.about in notice.subject)


def _newest_of_each(notices: Sequence[JobNotice]) -> list[JobNotice]:
    """Of several runs of the same batch or evaluation, the last one counts; they come newest first."""
    newest: dict[object, JobNotice] = {}
    for notice in notices:
        about = notice.subject.get("batch_id", notice.subject.get("evaluation_id", notice.id))
        newest.setdefault(about, notice)
    return list(newest.values())


def _last_end(notices: Sequence[JobNotice]) -> str | None:
    return max((notice.finished_at.isoformat() for notice in notices if notice.finished_at is not None), default=None)


def _said(status: str, notices: Sequence[JobNotice], active: Sequence[JobNotice], lefts: Sequence[float | None]) -> str:
    if active:
        if all(notice.status == "queued" for notice in active):
            return "waits for its turn"
        known = [left for left in lefts if left is not None]
        # The parts of a result run one after another: with one unknown, nothing is said of the whole.
        return f"{duration(sum(known))} left" if len(known) == len(active) else ""
    ends = [notice.finished_at for notice in notices if notice.finished_at is not None]
    when = f"{ENDED[status]} {day(max(ends))}" if ends else ENDED[status]
    error = next((notice.error for notice in notices if notice.status == status and notice.error), None)
    return when if error is None else f"{when}. {error}"
