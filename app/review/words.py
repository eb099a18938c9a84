"""What the review page says of a session's verdicts, as markup and messages."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

from markupsafe import Markup

from app.review.assignments import AssignedReview, Workload
from app.review.log import comments_of, is_closed
from app.review.service import CurrentVerdicts, DisputeQueue, ReviewerAgreement, ReviewSheet, waiting_sentence
from app.sessions.service import LibraryPage
from app.shared.events import Reply
from app.shared.format import clock, count, day, plural, shown_token
from app.shared.markup import badge, html
from app.shared.prompt_words import beginning
from app.shared.verdicts import ReviewView, StandingVerdict
from app.shared.visitors import present_account
from db.verdicts import AnnotationRecord, Target


def verdicts_message(current: CurrentVerdicts, reviewer: str) -> Reply:
    """How all targets of a session stand, for the page to look up what it shows."""
    return {
        "kind": "verdicts",
        "session": current.session_id,
        "reviewer": reviewer,
        "newest": current.newest,
        "targets": [target_message(item, reviewer) for item in current.targets],
        "threads": [thread_message(comments) for comments in comments_of(current.comments).values()],
        "review": blind_sentence(current.review),
    }


def target_message(item: StandingVerdict, reviewer: str) -> Reply:
    """One target: where it is, how it stands, who said what, and the reader's own opinion."""
    opinion = next((entry for entry in item.opinions if entry.reviewer == reviewer), None)
    decision = () if item.adjudication is None else (item.adjudication,)
    return {
        "b": item.target.branch_id,
        "f": item.target.first_step,
        "l": item.target.last_step,
        "status": item.status,
        "mark": verdict_mark(item),
        "words": item.in_words,
        "sentence": standing_sentence(item),
        "says": [opinion_message(entry) for entry in (*item.opinions, *decision)],
        "own": None if opinion is None else own_message(opinion),
    }


def thread_message(comments: tuple[AnnotationRecord, ...]) -> Reply:
    """The comments on one target, oldest first."""
    target = comments[0].target
    says = [{"who": entry.reviewer, "when": day(entry.created_at), "text": entry.note} for entry in comments]
    return {"b": target.branch_id, "f": target.first_step, "l": target.last_step, "says": says}


def opinion_message(entry: AnnotationRecord) -> Reply:
    """What one reviewer says."""
    decides = entry.kind == "adjudication"
    blind = ", blind" if entry.blind else ""
    return {
        "who": entry.reviewer,
        "v": entry.verdict,
        "words": f"decides {entry.verdict}" if decides else f"says {entry.verdict}",
        "note": entry.note,
        "tag": entry.tag,
        "when": f"{day(entry.created_at)}{blind}",
        "decides": decides,
    }


def own_message(entry: AnnotationRecord) -> Reply:
    """The reader's own opinion, as the form shows it."""
    return {
        "v": entry.verdict,
        "note": entry.note,
        "tag": entry.tag,
        "saved": f"saved {clock(entry.created_at)}, log entry {count(entry.entry)}",
    }


def verdict_mark(item: StandingVerdict) -> str:
    """The shape that stands for a target; empty where nobody says anything any more."""
    return "" if item.status == "withdrawn" else item.verdict or "disputed"


def standing_sentence(item: StandingVerdict) -> str:
    """How a target stands, in words."""
    if item.status == "withdrawn":
        return "Withdrawn: nobody says anything of this any more."
    if item.adjudication is not None:
        return f"Decided by {item.adjudication.reviewer}: {item.verdict}. A new verdict opens the question again."
    if item.status == "disputed":
        said = [entry.verdict for entry in item.opinions]
        parts = [f"{count(said.count(verdict))} {verdict}" for verdict in dict.fromkeys(said)]
        return f"Disputed: {', '.join(parts)}."
    if item.status == "agreed":
        return f"Agreed: {plural(len(item.opinions), 'reviewer')} say {item.verdict}."
    return f"One opinion: {item.opinions[0].reviewer} says {item.verdict}."


def blind_sentence(review: ReviewView | None) -> str:
    """What a reviewer in the middle of a blind review is told; empty for everybody else."""
    if review is None or not review.open or not review.blind:
        return ""
    return (
        f"Your blind review is open since {day(review.started_at)}: what others say of this session is hidden until "
        "you finish it."
    )


def where(target: Target) -> str:
    """A target in a sentence about a shown session: the branch goes without saying."""
    return "the whole branch" if target.kind == "branch" else target.named("")


def given_sentence(entry: AnnotationRecord) -> str:
    """What was just written into the log."""
    number = f"log entry {count(entry.entry)}"
    if entry.verdict is None:
        return f"Withdrawn on {where(entry.target)}, {number}."
    return f"Saved: {entry.verdict} on {where(entry.target)}, {number}."


def commented_sentence(entry: AnnotationRecord) -> str:
    """What comment was just written into the log."""
    return f"Commented on {where(entry.target)}, log entry {count(entry.entry)}."


def signed_verdict(reviewer: object) -> str:
    """A reviewer's name as verdicts are signed with it: the account's, or else what was typed; empty for none."""
    if (account := present_account()) is not None:
        return account.name
    return " ".join(str(reviewer or "").split())


def agreement_message(names: tuple[str, ...], result: ReviewerAgreement | None) -> Reply:
    """Reviewers to choose from, everybody who has written into a log, and how far two of them agree, if chosen."""
    return {"kind": "agreement", "names": list(names), "html": agreement(result) if result else nobody(names)}


def nobody(names: tuple[str, ...]) -> Markup:
    """What is missing for an agreement."""
    return html(
        """
        {% if names|length < 2 %}
          <p class="sub">Agreement needs two reviewers who judged the same targets; so far
            {{ "only " ~ names[0] ~ " has" if names else "nobody has" }} judged anything. Ask a second person to review
            a session blind.</p>
        {% else %}
          <p class="sub">Choose two reviewers to see how far they agree.</p>
        {% endif %}""",
        names=names,
    )


def agreement(agreement: ReviewerAgreement) -> Markup:
    """Kappa on its scale, the table of counts, and the result in words."""
    return html(
        """
        {% if not result.pairs %}
          <p class="sub">{{ agreement.first }} and {{ agreement.second }} have not judged the same token, span, branch
            or session. {{ waiting }}</p>
        {% else %}
        <div class="agree"><div>
          {% if not result.scored %}
            <p class="kappa-value"><strong>{{ "κ"|term }}</strong> {{ badge("uninformative", "unscored") }}</p>
          {% else %}
            <p class="kappa-value tnum"><strong>{{ "κ"|term }} {{ "%.2f"|format(result.kappa) }}</strong>
              <span class="hint">
              {{ "%.0f"|format(result.level * 100) }}% interval {{ result.low|signed }} to {{ result.high|signed }}
              </span></p>
            {% set low, high, at = (result.low + 1) * 50, (result.high + 1) * 50, (result.kappa + 1) * 50 %}
            <div class="kappa" aria-hidden="true">
              <i style="left:{{ "%.1f"|format(low) }}%;width:{{ "%.1f"|format(high - low) }}%"></i>
              <b style="left:{{ "%.1f"|format(at) }}%"></b><u></u></div>
            <div class="kappa-ends hint" aria-hidden="true"><span>−1</span><span>0, chance</span>
              <span>1, full agreement</span></div>
          {% endif %}
          <p class="sub says">{{ agreement.sentence|explained }}</p></div>
        <div class="scrolls" tabindex="0" role="region" aria-label="Verdicts of both, table">
        <table class="matrix-counts">
          <caption>Rows: {{ agreement.first }}. Columns: {{ agreement.second }}.</caption>
          <thead><tr><td></td>{% for name in result.categories %}<th scope="col" class="n">{{ name }}</th>{% endfor %}
            <th scope="col" class="n">all</th></tr></thead>
          <tbody>
          {% for row in result.table %}
            {% set place = loop.index %}
            <tr><th scope="row">{{ result.categories[loop.index0] }}</th>
            {% for cell in row %}
              <td class="n{{ " same" if loop.index == place }}{{ " none" if cell == 0 }}">{{ cell|count }}</td>
            {% endfor %}
            <td class="n total">{{ row|sum|count }}</td></tr>
          {% endfor %}
          <tr><th scope="row">all</th>{% for column in columns %}<td class="n total">{{ column|sum|count }}</td>
            {% endfor %}<td class="n total">{{ result.pairs|count }}</td></tr></tbody></table></div>
        {% endif %}""",
        agreement=agreement,
        result=agreement.result,
        waiting=waiting_sentence(agreement.waiting),
        columns=list(zip(*agreement.result.table, strict=True)),
    )


STATUSES = {
    "disputed": "Disputed",
    "single": "One opinion",
    "agreed": "Agreed",
    "adjudicated": "Decided",
    "withdrawn": "Withdrawn",
}
LONGEST_WORDS = 80
SHOWN_ENTRIES = 25
"""Entries of the log that are shown before the rest is asked for."""


def _is_blind(sheet: ReviewSheet) -> bool:
    review = sheet.current.review
    return review is not None and review.open and review.blind


def _status_choices(sheet: ReviewSheet) -> list[tuple[str, str]]:
    """What the targets can be filtered by, with how many there are."""
    counts = Counter(str(item.status) for item in sheet.current.targets)
    every = [("", f"All ({count(len(sheet.current.targets))})")]
    return every + [(key, f"{name} ({count(counts[key])})") for key, name in STATUSES.items() if counts[key]]


def place_name(target: Target) -> str:
    """A target's name in the sheet, which names the branch apart."""
    names = {"session": "Whole session", "branch": "Whole branch"}
    return names.get(target.kind) or target.named("").capitalize()


def link(session_id: int, target: Target) -> str:
    """The audit page at a target."""
    places: dict[str, object] = {"session": session_id}
    if target.branch_id is not None:
        places["branch"] = target.branch_id
    if target.first_step is None or target.last_step is None:
        places["on"] = target.kind
    else:
        places["step"] = target.first_step + 1
        if target.kind == "span":
            places["last"] = target.last_step + 1
    return f"./?{urlencode(places)}"


def _targets(sheet: ReviewSheet, reviewer: str) -> Markup:
    """Everything that was judged: where, the words, how it stands, and the opinions side by side."""
    return html(
        """
        {% if not sheet.current.targets and sheet.current.hidden and not reviewer %}
          <div class="empty-list"><p class="sub">Somebody is reviewing this session blind; what was said of it is shown
            when that review is finished.</p></div>
        {% elif not sheet.current.targets %}
          <div class="empty-list"><p class="sub">
            {{ "You have judged nothing" if blind else "Nobody has judged anything" }} of this session yet. Open it on
            the audit page, select a token, and press <kbd>C</kbd> for fair, <kbd>U</kbd> for unfair or <kbd>X</kbd> for
            unclear.</p></div>
        {% else %}
        <table class="targets"><caption class="vh">What was judged</caption><thead><tr>
          {% for title in ["Where", "Words", "Stands", "Opinions"] %}<th scope="col">{{ title }}</th>{% endfor %}
          <th scope="col"><span class="vh">Decide</span></th></tr></thead><tbody>
        {% for item in sheet.current.targets %}
          {% set place, mark = place_name(item.target), verdict_mark(item) %}
          {% set words = sheet.words.get(item.target.key, "") %}
          {% set branch = sheet.branches.get(item.target.branch_id, "") %}
          <tr data-status="{{ item.status }}">
          <th scope="row"><a href="{{ link(sheet.session_id, item.target) }}">{{ place }}</a>
            {% if branch %}<span class="hint cut">branch {{ branch|shown_token }}</span>{% endif %}</th>
          <td>{% if words %}<span class="mono words">{{ short(words) }}</span>
            {% else %}<span class="hint">all</span>{% endif %}</td>
          <td class="stands"><span class="stand">{% if mark %}{{ icon(mark) }}{% endif %}{{ statuses[item.status] }}
            {{- ": " ~ item.verdict if item.verdict }}</span></td>
          <td><ul class="sides">
          {% for entry in item.entries %}
            {% set decides = entry.kind == "adjudication" %}
            <li{% if decides %} class="decision"{% endif %}>{{ icon(entry.verdict) }}<span>
              <strong>{{ entry.reviewer }}</strong> {{ "decides" if decides else "says" }} {{ entry.verdict }}
              {%- if entry.blind %} <small>blind</small>{% endif %}
              {% if entry.tag %}<span class="judge-tag">{{ entry.tag }}</span>{% endif %}
              {% if entry.note %}<span class="judge-note">{{ entry.note }}</span>{% endif %}</span></li>
          {% endfor %}</ul>
          {% if threads.get(item.target.key) %}
            <ol class="thread" aria-label="Comments on {{ place }}">{% for entry in threads[item.target.key] %}
              <li><strong>{{ entry.reviewer }}</strong> <span class="hint tnum">{{ entry.created_at|day }}</span>
                <span class="judge-note">{{ entry.note }}</span></li>{% endfor %}</ol>
          {% endif %}</td>
          <td>
          {% if item.status != "disputed" %}
          {% elif reviewer in item.opinions|map(attribute="reviewer") %}
            <span class="hint">You are one of those who differ; a third person decides.</span>
          {% else %}
            <button type="button" class="btn small" data-do="decide" data-takes="decide settle"
              {% for name, value in [("branch", item.target.branch_id), ("first", item.target.first_step),
                  ("last", item.target.last_step)] if value is not none %} data-{{ name }}="{{ value }}"
              {%- endfor %} data-name="{{ place }}" aria-label="Decide on {{ place }}">Decide</button>
          {% endif %}</td></tr>
        {% endfor %}</tbody></table>
        {% endif %}""",
        sheet=sheet,
        reviewer=reviewer,
        blind=_is_blind(sheet),
        threads=comments_of(sheet.log),
        statuses=STATUSES,
        link=link,
        place_name=place_name,
        short=_short,
        verdict_mark=verdict_mark,
    )


def _short(words: str) -> str:
    text = " ".join(words.split()) or shown_token(words)
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS].rstrip()} …"


def _log(sheet: ReviewSheet) -> Markup:
    """The log, newest entry first."""
    return html(
        """
        {% if not sheet.log %}
          <p class="sub">The log is empty. Every verdict and every review is written down here, in order.</p>
        {% else %}
        <table class="log"><caption class="vh">Verdict log, newest entry first</caption><thead><tr>
          <th scope="col" class="n">Entry</th>
          {% for title in ["When", "Who", "What", "On", "Note", "Digest"] %}<th scope="col">{{ title }}</th>{% endfor %}
          </tr></thead><tbody>
        {% for entry in sheet.log|reverse %}
          <tr><td class="n">{{ entry.entry|count }}</td>
          <td><span class="nowrap tnum">{{ entry.created_at|day }}</span></td>
          <td>{{ entry.reviewer }}</td>
          <td>{{ {"verdict": entry.verdict or "withdraws", "adjudication": "decides " ~ entry.verdict,
              "review_started": "begins " ~ ("a blind" if entry.blind else "an open") ~ " review",
              "review_finished": "finishes the review", "comment": "comments"}[entry.kind] }}
            {{- ", blind" if entry.blind and entry.kind == "verdict" }}
            {%- if entry.tag %}<span class="judge-tag">{{ entry.tag }}</span>{% endif %}</td>
          <td>{{ place_name(entry.target) if entry.speaks }}</td>
          <td>{% if entry.note %}<span class="judge-note">{{ entry.note }}</span>{% endif %}</td>
          <td><span class="mono">{{ entry.digest[:12] }}</span></td></tr>
        {% endfor %}</tbody></table>
          {% set hidden = sheet.log|length - shown %}
          {% if hidden > 0 %}
            <button type="button" class="btn small quiet" data-do="whole">Show {{ hidden|count }} older
              {{ "entry" if hidden == 1 else "entries" }}</button>
          {% endif %}
        {% endif %}""",
        sheet=sheet,
        shown=SHOWN_ENTRIES,
        place_name=place_name,
    )


def _check(sheet: ReviewSheet) -> Markup:
    check = sheet.check
    if check.whole and not check.entries:
        return Markup("")
    entries = "1 entry" if check.entries == 1 else f"{count(check.entries)} entries"
    says = f"The chain of {entries} holds." if check.whole else f"The chain breaks. {check.sentence}"
    return Markup(badge("calibrated" if check.whole else "uninformative", says))


def sheet_message(sheet: ReviewSheet, reviewer: str, reveal: bool = False, said: str = "") -> Reply:
    """A session's verdicts as one reviewer may and wants to see them."""
    closed = is_closed(sheet.log, reviewer, sheet.reviewers, reveal)
    return {
        "kind": "sheet",
        "session": sheet.session_id,
        "reviewer": reviewer,
        "head": _head(sheet, hidden=closed or _is_blind(sheet)),
        "review": _reviews(sheet, reviewer),
        "targets": CLOSED if closed else _targets(sheet, reviewer),
        "statuses": [] if closed else _status_choices(sheet),
        "log": "" if closed else _log(sheet),
        "check": _check(sheet),
        "reviewers": _busiest_first(sheet),
        "closed": closed,
        "blind": _is_blind(sheet),
        "said": said,
    }


def _busiest_first(sheet: ReviewSheet) -> list[str]:
    """All who wrote into the log, those with most opinions first."""
    said = Counter(entry.reviewer for item in sheet.current.targets for entry in item.opinions)
    return sorted(sheet.reviewers, key=lambda name: -said[name])


CLOSED = html("""
    <div class="empty-list"><p class="sub">Others have judged this session. Judge it first without seeing what they
        said: start a blind review above. Whoever looks first can no longer give an independent opinion.</p>
      <p><button type="button" class="btn" data-do="reveal">Show the verdicts</button></p></div>""")


def _head(sheet: ReviewSheet, hidden: bool = False) -> Markup:
    """Name, prompt, and the ways to the session's audit and to other sessions."""
    return html(
        """
        <div class="bar"><h2 tabindex="-1">{{ sheet.name }}</h2><span class="end">
          <a class="btn small" href="./?session={{ sheet.session_id }}">Open on the audit page</a>
          {% if not hidden %}
            <button type="button" class="btn small" data-do="report" aria-haspopup="menu" aria-expanded="false">
              {{ icon("down") }}Download</button>
          {% endif %}
          <button type="button" class="btn small quiet" data-do="refresh">Refresh</button>
          <button type="button" class="btn small quiet" data-do="other">Another session</button></span></div>
        <p class="sub">{{ prompt }}</p>""",
        sheet=sheet,
        prompt=beginning(sheet.prompt),
        hidden=hidden,
    )


def _reviews(sheet: ReviewSheet, reviewer: str) -> Markup:
    """Where the reader's own review stands and what she can do, and the reviews of all."""
    return html(
        """
        {% macro button(action, text, primary="") %}
          <button type="button" class="btn{{ primary }}" data-do="{{ action }}" data-takes="act">{{ text }}</button>
        {% endmacro %}
        <div class="own-review">
        {% if not reviewer %}
          <p class="sub">Say who you are to review this session.</p>
          {{ button("rename", "Enter your name", " primary") }}
        {% elif review and review.open %}
          <p class="sub">{% if review.blind %}{{ icon("half") }}Your blind review is open: what others say is hidden
            until you finish it.{% else %}Your review is open.{% endif %} Begun {{ review.started_at|day }}.</p>
          <a class="btn primary" href="./?session={{ sheet.session_id }}">Judge on the audit page</a>
          {{- button("finish", "Finish the review") }}
        {% elif sheet.may_be_blind %}
          <p class="sub">In a blind review you judge without seeing what others said; only such opinions count as
            independent.</p>{{ button("blind", "Start a blind review", " primary") }}
          {{- button("open", "Start an open review") }}
        {% else %}
          <p class="sub">You have seen what others say of this session, or could have, so a review of it cannot be blind
            any more.</p>{{ button("open", "Start an open review") }}
        {% endif %}</div>
        {% if sheet.current.reviews %}
          <ul class="reviews sub" aria-label="Reviews of this session">{% for item in sheet.current.reviews %}
            <li><strong>{{ item.reviewer }}</strong> {{ "blind" if item.blind else "open" }}, begun
              {{ item.started_at|day }}, {% if item.finished_at is none %}not finished{% else %}finished
              {{ item.finished_at|day }}{% endif %}</li>{% endfor %}</ul>
        {% endif %}""",
        sheet=sheet,
        review=sheet.current.review,
        reviewer=reviewer,
    )


def sessions_list(page: LibraryPage, text: str) -> Markup:
    """Sessions to choose from, those changed last first."""
    return html(
        """
        {% if page.entries %}
          <ul class="session-choices">{% for item in page.entries %}
            <li><button type="button" data-do="choose" data-id="{{ item.id }}">
              <span class="title cut">{{ item.name }}</span><span class="hint tnum">
              {{ "under blind review" if item.verdict_count is none else item.verdict_count|plural("verdict")
                if item.verdict_count else "not judged" }}, changed
              {{ item.updated_at|day }}</span><span class="sub cut">{{ beginning(item.prompt) }}</span></button></li>
          {% endfor %}</ul>
          {% set more = page.total - page.entries|length %}
          {% if more %}<p class="hint">{{ more|plural("more session") }}: search to find them.</p>{% endif %}
        {% elif text %}
          <p class="sub">No session matches “{{ text }}”.</p>
        {% else %}
          <div class="empty-list"><p class="sub">No session to review yet. Start an audit, judge its tokens, and ask a
              second person to review it here.</p>
            <p><a class="btn primary" href="./">Start an audit</a></p></div>
        {% endif %}""",
        page=page,
        text=text.strip(),
        beginning=beginning,
    )


STATES = {"open": "to be reviewed", "begun": "begun", "overdue": "overdue", "done": "done"}
"""How an assignment stands, in words."""


def queue(assigned: tuple[AssignedReview, ...], reviewer: str) -> Markup:
    """What a reviewer is to review, what is due first at the top; nothing where nothing is left."""
    left = [item for item in assigned if item.reviewer == reviewer and item.state != "done"]
    return html(
        """
        {% if left %}
          <h2 id="h-queue">Assigned to you</h2>
          <ul class="session-choices" aria-labelledby="h-queue">{% for item in left %}
            <li><button type="button" data-do="choose" data-id="{{ item.session_id }}">
              <span class="title cut">{{ item.session }}</span><span class="hint tnum">{{ states[item.state] }}
              {%- if item.due_on %}, due {{ item.due_on.isoformat() }}{% endif %}</span>
              <span class="sub cut">asked for by {{ item.lead }}</span></button></li>{% endfor %}</ul>
        {% endif %}""",
        left=left,
        states=STATES,
    )


def loads(workloads: tuple[Workload, ...]) -> Markup:
    """How far everybody is with what is assigned."""
    return html(
        """
        {% if workloads %}<ul class="loads sub">{% for load in workloads %}<li>{{ load.sentence }}</li>{% endfor %}</ul>
        {% else %}<p class="sub">Nothing is assigned.</p>{% endif %}""",
        workloads=workloads,
    )


def disputes(found: DisputeQueue, reviewer: str) -> Markup:
    """What waits for a decision: where, since when, and the opinions side by side."""
    return html(
        """
        <p class="sub">{{ found.sentence }}</p>
        {% if found.targets %}
        <div class="scrolls" tabindex="0" role="region" aria-label="What reviewers differ on, table">
        <table class="targets disputes"><caption class="vh">What reviewers differ on</caption><thead><tr>
          {% for title in ["Where", "Words", "Since", "Opinions"] %}<th scope="col">{{ title }}</th>{% endfor %}
          <th scope="col"><span class="vh">Decide</span></th></tr></thead><tbody>
        {% for dispute in found.targets %}
          {% set item, place = dispute.item, place_name(dispute.item.target) %}
          <tr><th scope="row"><a href="{{ link(dispute.session_id, item.target) }}">{{ place }}</a>
            <span class="hint cut">{{ dispute.session }}</span></th>
          <td>{% if dispute.words %}<span class="mono words">{{ short(dispute.words) }}</span>
            {% else %}<span class="hint">all</span>{% endif %}</td>
          <td><span class="nowrap tnum">{{ dispute.since|day }}</span></td>
          <td><ul class="sides">{% for entry in item.opinions %}<li>{{ icon(entry.verdict) }}<span>
            <strong>{{ entry.reviewer }}</strong> says {{ entry.verdict }}
            {%- if entry.blind %} <small>blind</small>{% endif %}
            {% if entry.note %}<span class="judge-note">{{ entry.note }}</span>{% endif %}</span></li>{% endfor %}</ul>
            </td>
          <td>{% if reviewer in item.opinions|map(attribute="reviewer") %}
            <span class="hint">You are one of those who differ; a third person decides.</span>
          {% else %}
            <button type="button" class="btn small" data-do="decide" data-takes="decide settle"
              data-session="{{ dispute.session_id }}"
              {% for name, value in [("branch", item.target.branch_id), ("first", item.target.first_step),
                  ("last", item.target.last_step)] if value is not none %} data-{{ name }}="{{ value }}"
              {%- endfor %} data-name="{{ place }}"
              aria-label="Decide on {{ place }} of {{ dispute.session }}">Decide</button>
          {% endif %}</td></tr>{% endfor %}</tbody></table></div>
        {% endif %}""",
        found=found,
        reviewer=reviewer,
        link=link,
        place_name=place_name,
        short=_short,
    )
