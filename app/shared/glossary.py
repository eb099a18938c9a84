"""The words of the program's pages, explained once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Term:
    """A word and what it means."""

    name: str
    says: str
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """What a label of the word names it by."""
        return self.name.lower().replace(" ", "-").replace("'", "")

    @property
    def names(self) -> tuple[str, ...]:
        """All its forms in small letters."""
        return tuple(name.lower() for name in (self.name, *self.also))


GLOSSARY = (
    Term(
        "Accuracy",
        "The share of right answers among all that were scored.",
    ),
    Term(
        "Alpha",
        "The risk that is taken: the share of true next words that may fall below the threshold. At 0.1, nine in ten "
        "are to pass.",
        ("Risk of one step, α",),
    ),
    Term(
        "Betting test",
        "After each pair of paths a bet is placed that the worlds differ. Capital that grows far beyond what chance "
        "allows decides the question, and one may look at any time.",
        ("Decided",),
    ),
    Term(
        "Borrowed threshold",
        "The threshold of the nearest steps that have one, applied where calibration saw too few texts. It is shown, "
        "but no guarantee comes with it.",
        ("borrowed", "inherited"),
    ),
    Term(
        "Calibration",
        "Texts whose true next words are known are read with the same settings; how likely those words were under both "
        "readings sets the threshold for later audits.",
        ("Calibrations",),
    ),
    Term(
        "Certified",
        "The token's lower probability, masked or fused, reaches the threshold. A weak threshold makes this say "
        "little, and a drawn token is in its set by construction: look at the set's size. It does not mean fair.",
        ("certified as typed", "certified now", "certified then", "threshold held"),
    ),
    Term(
        "Certified mass",
        "How much of the fused probability lies on certified tokens. Near 1, the threshold hardly restricts the model.",
    ),
    Term(
        "Certified set",
        "All tokens that are certified at a step. Its size says how much choice was left: 1 leaves one word, thousands "
        "mean that the threshold decides nothing.",
        ("Set size",),
    ),
    Term(
        "Cohen's kappa",
        "How far two reviewers agree beyond chance: 1 is full agreement, 0 is what guessing at the same rates gives.",
        ("κ", "kappa"),
    ),
    Term(
        "Contexts",
        "The independent examples of a calibration, which decide how exact a threshold is. Tokens of one continuation "
        "depend on each other; rows with the same entry in the column “context” count as one.",
        ("Context",),
    ),
    Term(
        "Coverage",
        "The share of true next words that passed the threshold on texts which were kept apart. It should come near "
        "one minus alpha.",
    ),
    Term(
        "Drift",
        "Whether the tokens of recent audits are as well supported as those that the policy wrote at calibration. "
        "Where they are not, its thresholds may not hold.",
    ),
    Term(
        "Estimator",
        "How the tokens of one context are weighed for a threshold: hierarchical gives each context one weight, which "
        "its tokens share; one per context draws one token; pooled counts all as if they were independent.",
    ),
    Term(
        "F1 of words",
        "How well the words of an answer match those of the right one: high only where little is left out and little "
        "is added. 1 is a full match, 0 none.",
        ("F1",),
    ),
    Term("Factual", "The reading of the prompt as it was typed, with the sensitive words.", ("As typed",)),
    Term(
        "Fallback",
        "At this step no token reached the threshold in both readings, so the likeliest fused one was written, and "
        "nothing is certified.",
        ("Fallbacks", "Fallbacks in a text"),
    ),
    Term(
        "Family",
        "A protected attribute to which a word belongs, such as gender, age or religion.",
        ("Families that are masked", "Family masked"),
    ),
    Term(
        "Fingerprint",
        "Everything that decides a result (model, masks, method, sampling) as one number. A calibration fits an audit "
        "when their fingerprints agree.",
    ),
    Term(
        "Forced",
        "A token that a reviewer chose instead of the policy. What follows is a branch of its own.",
        ("forced by you", "Force"),
    ),
    Term(
        "Fused",
        "The factual and the masked reading blended. The next token is drawn from it, among those that are certified.",
    ),
    Term(
        "Impact ratio",
        "A group's selection rate divided by the highest group's. Below 0.8, the four-fifths rule of thumb asks for a "
        "closer look.",
    ),
    Term(
        "In place of a word",
        "What the masked reading sees where a sensitive word stood: one sign that stands for nothing, or a neutral "
        "hint such as “a person”.",
    ),
    Term(
        "Interval",
        "The range that holds the true value in 95 of 100 such studies. The fewer the data, the wider it is.",
        ("95 % interval",),
    ),
    Term(
        "Krippendorff's alpha",
        "How far any number of reviewers agree beyond chance, not all of whom judged everything: 1 is full agreement, "
        "0 is chance. It has nothing to do with the risk alpha.",
    ),
    Term(
        "Lambda",
        "How far the blend leans towards the masked reading: 0 counts only the text as typed, 1 only the masked one.",
    ),
    Term("Log ratio", "Sensitivity on the scale on which it adds up: 0.7 is twice as likely, 1.6 five times."),
    Term(
        "Lower",
        "The smaller of a token's masked and fused probability. It is what the threshold is held against.",
        ("Its lower probability", "Lower probability of true words"),
    ),
    Term(
        "Mask",
        "Which words are hidden at once: all of them in one masked reading, or those of each family in a reading of "
        "its own.",
        ("Masked views",),
    ),
    Term("Masked", "The reading of the prompt with every sensitive word hidden, and all else the same."),
    Term(
        "Overruled",
        "The threshold refused the likeliest token of a step, while another one passed.",
        ("Overruled steps in a text",),
    ),
    Term(
        "Policy",
        "The method that turns the model's readings into the next token: COFT, the model alone, or another method from "
        "the literature.",
        ("Method",),
    ),
    Term(
        "Scoring rate",
        "The share of a group whose score lies above the median of all, for tools that score people instead of "
        "selecting them.",
    ),
    Term(
        "Seed",
        "The number from which all draws follow. The same seed and settings write the same text.",
    ),
    Term(
        "Selection rate",
        "The share of a group's texts in which the answer that counts as selected was given.",
        ("Selection rate, 95 % interval",),
    ),
    Term(
        "Sensitivity",
        "How much likelier a token is with the sensitive words shown than with them masked: the logarithm of its "
        "factual over its masked probability. 0: no difference; +1.6: five times likelier; −1.6: five times less.",
        ("Strongest sensitivity", "Mean sensitivity"),
    ),
    Term(
        "Sentinel",
        "The sign that the masked reading sees in place of each hidden token; the same number of them, so that nothing "
        "else moves.",
    ),
    Term(
        "Steps that share a threshold",
        "Neighbouring steps are calibrated together where one of them has too few contexts of its own. The guarantee "
        "holds on average over such a group.",
        ("Bin",),
    ),
    Term(
        "Temperature",
        "How evenly tokens are drawn: below 1 likely ones gain, above 1 unlikely ones do.",
    ),
    Term(
        "Threshold",
        "What a token's lower probability must reach to be certified, written τ. It comes from a calibration.",
        ("τ", "Thresholds", "Needed"),
    ),
    Term(
        "Too weak",
        "The threshold is so low that nearly every token passes, or rests on too few contexts. It says nothing, and is "
        "shown in amber.",
        ("too weak to say anything", "No threshold"),
    ),
    Term("Top-k", "Only so many of the likeliest tokens may be drawn.", ("Top-k (0 is off)",)),
    Term(
        "Top-p",
        "Only the likeliest tokens that together have this probability may be drawn.",
        ("Top-p (1 is off)",),
    ),
    Term(
        "Total variation",
        "How far two distributions lie apart: the most that the probability of any event differs between them. 0 is "
        "equal, 1 has nothing in common.",
        (
            "How much masking shifts the choice", "Shift of the choice", "Largest distance", "Mean of all pairs",
            "Total variation behind it",
        ),
    ),
    Term(
        "Weakest token",
        "The token of a text that came closest to missing. The text as a whole passes when this one does.",
    ),
)  # fmt: skip

_BY_NAME = {name: term for term in GLOSSARY for name in term.names}
_OF_SEVERAL_PARTS = re.compile(
    r"\b(?:" + "|".join(re.escape(entry.name) for entry in GLOSSARY if " " in entry.name) + r")\b", re.IGNORECASE
)


def term(text: str) -> Markup:
    """A label that opens its explanation where the glossary has one, and the label alone where it has none."""
    found = _BY_NAME.get(text.strip().lower())
    if found is None:
        return Markup(text) if isinstance(text, Markup) else Markup(escape(text))
    return _opener(found, text)


def explained_titles(titles: Iterable[str]) -> Markup:
    """A line under a table whose titles sort its rows: those that the glossary has open their explanations there."""
    words = {title: found for title in titles if (found := _BY_NAME.get(title.strip().lower()))}
    if not words:
        return Markup()
    # Its title is a button by the same name, which sorts.
    openers = [_opener(found, title, f"{title}, what it means") for title, found in words.items()]
    return Markup('<p class="hint explained">Explained: {}.</p>').format(Markup(", ").join(openers))


def explained(text: str) -> Markup:
    """A sentence in which the first mention of each word of several parts, such as impact ratio, opens it."""
    seen: set[str] = set()

    def opened(mention: re.Match[str]) -> str:
        found = _BY_NAME[mention[0].lower()]
        if found.key in seen:
            return str(escape(mention[0]))
        seen.add(found.key)
        return str(_opener(found, mention[0]))

    parts = _OF_SEVERAL_PARTS.split(text)
    mentions = [*_OF_SEVERAL_PARTS.finditer(text)]
    rest = [str(escape(part)) for part in parts]
    between = [*(opened(mention) for mention in mentions), ""]
    return Markup("".join(part + opener for part, opener in zip(rest, between, strict=True)))


def _opener(found: Term, text: str, spoken: str = "") -> Markup:
    name = Markup(' aria-label="{}"').format(spoken) if spoken else ""
    return Markup('<button type="button" class="term" data-explains="{}"{}>{}</button>').format(found.key, name, text)
