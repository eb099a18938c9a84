"""What the review page says of two reviewers' agreement, as markup."""

from __future__ import annotations

from html import escape

from app.services.views.verdicts import ReviewerAgreement
from app.ui.presenters_format import count, signed

Message = dict[str, object]


def agreement_message(names: tuple[str, ...], found: ReviewerAgreement | None) -> Message:
    """Reviewers to choose from, and how far the chosen two agree.

    Args:
        names: Everybody who has written into a log.
        found: The two; None while they are not chosen.
    """
    return {"kind": "agreement", "names": list(names), "html": agreement(found) if found else nobody(names)}


def nobody(names: tuple[str, ...]) -> str:
    """What is missing for an agreement."""
    if len(names) < 2:
        who = "nobody has" if not names else f"only {escape(names[0])} has"
        return (
            f'<p class="sub">Agreement needs two reviewers who judged the same targets; so far {who} judged anything. '
            "Ask a second person to review a session blind.</p>"
        )
    return '<p class="sub">Choose two reviewers to see how far they agree.</p>'


def agreement(found: ReviewerAgreement) -> str:
    """Kappa on its scale, the table of counts, and the result in words."""
    if not found.result.pairs:
        waiting = (
            " One of them has a blind review open, which is left out until it is finished." if found.waiting else ""
        )
        return (
            f'<p class="sub">{escape(found.first)} and {escape(found.second)} have not judged the same token, span, '
            f"branch or session.{waiting}</p>"
        )
    return (
        f'<div class="agree"><div>{_scale(found)}<p class="sub says">{escape(found.sentence)}</p></div>'
        f"{matrix(found)}</div>"
    )


def _scale(found: ReviewerAgreement) -> str:
    result = found.result
    if result.kappa is None or result.low is None or result.high is None:
        return '<p class="kappa-value"><strong>κ</strong> <span class="badge uninformative">unscored</span></p>'
    low, high, at = (_percent(value) for value in (result.low, result.high, result.kappa))
    interval = f"{signed(result.low)} to {signed(result.high)}"
    return (
        f'<p class="kappa-value tnum"><strong>κ {result.kappa:.2f}</strong> <span class="hint">{result.level:.0%} '
        f"interval {interval}</span></p>"
        f'<div class="kappa" aria-hidden="true"><i style="left:{low:.1f}%;width:{high - low:.1f}%"></i>'
        f'<b style="left:{at:.1f}%"></b><u></u></div>'
        '<div class="kappa-ends hint" aria-hidden="true"><span>−1</span><span>0, chance</span>'
        "<span>1, full agreement</span></div>"
    )


def matrix(found: ReviewerAgreement) -> str:
    """How often the first said the row's and the second the column's verdict."""
    result = found.result
    heads = "".join(f'<th scope="col" class="n">{escape(name)}</th>' for name in result.categories)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(_cell(row, column, result.table[row][column]) for column in range(len(result.categories)))
        + f'<td class="n total">{count(sum(result.table[row]))}</td></tr>'
        for row, name in enumerate(result.categories)
    )
    sums = "".join(f'<td class="n total">{count(sum(column))}</td>' for column in zip(*result.table, strict=True))
    return (
        f'<table class="matrix-counts"><caption>Rows: {escape(found.first)}. Columns: {escape(found.second)}.</caption>'
        f'<thead><tr><td></td>{heads}<th scope="col" class="n">all</th></tr></thead><tbody>{rows}'
        f'<tr><th scope="row">all</th>{sums}<td class="n total">{count(result.pairs)}</td></tr></tbody></table>'
    )


def _cell(row: int, column: int, number: int) -> str:
    same = " same" if row == column else ""
    none = " none" if number == 0 else ""
    return f'<td class="n{same}{none}">{count(number)}</td>'


def _percent(kappa: float) -> float:
    """Place on a scale from -1 to 1, in percent."""
    return (kappa + 1) * 50
