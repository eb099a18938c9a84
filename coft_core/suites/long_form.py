"""Long texts: summaries of news and of reports, and answers to open questions."""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from coft_core.suites.base import Card, Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.files import DataError, DataFolder, HubSplit, Line, hub_lines
from coft_core.suites.statistics import mean_figure
from coft_core.suites.written import cut_off

TOXICITY = "toxicity"
TOXIC_FROM = 0.5
"""Probability from which on a text counts as toxic, as in BOLD (Dhamala et al. 2021)."""

CRITICISM = (
    "Overlap of words with one human text says little about whether a text is true or good: other words with the same "
    "meaning count nothing (Fabbri et al. 2021, SummEval)."
)
TOXICITY_NOTE = (
    "With a toxicity judge, the share of texts that it finds toxic is counted too; such judges often take the mention "
    "of a group for an insult (Dixon et al. 2018)."
)


class LongForm(Suite):
    """A suite of texts that are compared with human ones by their words; a text that is not written scores 0."""

    kind = "long form"
    judges = (TOXICITY,)

    hub: ClassVar[HubSplit]
    most_tokens: ClassVar[int]
    stops: ClassVar[tuple[str, ...]] = ()
    counted: ClassVar[str]

    def items(self, data: DataFolder) -> list[Item]:
        """Records of ``test.jsonl``, with the fields that the data set has on hubs."""
        return [self._item(line) for line in data.json_lines(self.key, "test.jsonl")]

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        return [self._item(line) for line in hub_lines(self.hub)]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> list[Figure]:
        """ROUGE-L, F1 of words, toxicity where it was judged, length, and what was cut off or shortened."""

        def mean(key: str, title: str, value: Callable[[Outcome], float | None], better: Any, scale: float) -> Figure:
            return self._mean(outcomes, key, title, value, better, scale)

        figures = [self._overlap(outcomes, key) for key in _OVERLAPS]
        if any(TOXICITY in outcome.marks for outcome in outcomes):
            figures.append(mean("toxicity_rate", "Toxic texts", _is_toxic, "lower", 100.0))
        figures.append(mean("tokens", "Tokens written", lambda outcome: float(outcome.written().tokens), "none", 1.0))
        figures.append(cut_off(outcomes, self.counted))
        if any(outcome.facts["left_out"] for outcome in outcomes):
            figures.append(mean("shortened", "Prompts shortened", _is_shortened, "none", 100.0))
        return figures

    def main_figure(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Figure:
        """ROUGE-L or F1 of words, whichever is the main one."""
        return self._overlap(outcomes, self.main)

    def _overlap(self, outcomes: Sequence[Outcome], key: str) -> Figure:
        title, value = _OVERLAPS[key]
        return self._mean(outcomes, key, title, value, "higher", 100.0)

    def _mean(
        self,
        outcomes: Sequence[Outcome],
        key: str,
        title: str,
        value: Callable[[Outcome], float | None],
        better: Any,
        scale: float,
    ) -> Figure:
        units, values = [outcome.unit for outcome in outcomes], [value(outcome) for outcome in outcomes]
        return mean_figure(key, title, units, values, scale=scale, what=self.counted, better=better)

    def reference(self, item: Item) -> str | None:
        """The first human text."""
        return f" {item.facts['references'][0]}"

    @abstractmethod
    def _item(self, line: Line) -> Item:
        """The item of a record."""

    def _of(self, identity: str, prompt: str, references: Sequence[str], left_out: int = 0) -> Item:
        ask = Writing(prompt, self.most_tokens, self.stops)
        return Item(identity, identity, (ask,), {"references": list(references), "left_out": left_out})


class CnnDailyMail(LongForm):
    """News with the highlights that their editors wrote; asked as in lm-evaluation-harness."""

    key = "cnn_dailymail"
    title = "CNN/DailyMail"
    citation = "Nallapati et al. 2016, Abstractive text summarization; Hermann et al. 2015, Teaching machines to read"
    licence = "Apache-2.0"
    main = "rouge_l"
    hub = HubSplit("abisee/cnn_dailymail", "3.0.0", "test")
    most_tokens = 128
    stops = ("\n\n",)
    counted = "summaries"
    most_words: ClassVar[int] = 1500
    """Words of an article that are shown; nearly all have fewer."""

    card = Card(
        "News articles, which the model summarises in up to 128 tokens; the summary is compared with the highlights "
        f"that editors wrote. Of an article the first 1,500 words are shown. {TOXICITY_NOTE}",
        "Whether a summary is true.",
        f"{CRITICISM} Highlights often take up the first sentences, so that copying these scores well.",
        "An interval of 2 points in all needs about 500 summaries where ROUGE-L varies by 11 points between them; "
        "the test set has 11,490.",
    )

    def _item(self, line: Line) -> Item:
        shown, left_out = first_words(line.text("article"), self.most_words)
        prompt = f"Summarize the following article:\n\n{shown}\n\nSummary:"
        return self._of(_identity(line, "id"), prompt, [line.text("highlights")], left_out)


class GovReport(LongForm):
    """Reports of the US government with their summaries; asked as in LongBench, which lm-evaluation-harness takes."""

    key = "govreport"
    title = "GovReport"
    citation = "Huang et al. 2021, Efficient attentions for long document summarization"
    licence = "reports of the US government, public domain"
    main = "rouge_l"
    hub = HubSplit("ccdv/govreport-summarization", None, "test")
    most_tokens = 512
    counted = "summaries"
    most_words: ClassVar[int] = 2000
    """Words of a report that are shown: with a summary they fit into 4,096 tokens."""

    card = Card(
        "Reports of the US government, which the model summarises in up to 512 tokens; the summary is compared with "
        f"the published one. Of a report, about 9,000 words on average, the first 2,000 are shown. {TOXICITY_NOTE}",
        "Whether a summary is true, and what is said after the first 2,000 words.",
        CRITICISM,
        "An interval of 2 points in all needs about 200 summaries where ROUGE-L varies by 7 points between them; "
        "the test set has 973.",
    )

    def _item(self, line: Line) -> Item:
        shown, left_out = first_words(line.text("report"), self.most_words)
        prompt = (
            "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
            f"Report:\n{shown}\n\nNow, write a one-page summary of the report.\n\nSummary:"
        )
        return self._of(_identity(line, "id"), prompt, [line.text("summary")], left_out)


class Eli5(LongForm):
    """Open questions of a forum with the answers that people gave; each figure takes the nearest of them."""

    key = "eli5"
    title = "ELI5"
    citation = "Fan et al. 2019, ELI5: Long form question answering"
    licence = "posts of Reddit, for research"
    main = "token_f1"
    hub = HubSplit("Pavithree/eli5", None, "test")
    most_tokens = 1024
    """The longest length of the paper."""

    stops = ("Question:",)
    counted = "answers"
    forum: ClassVar[str] = "explainlikeimfive"
    card = Card(
        "Open questions of a web forum, such as why the sky is blue, which the model answers in up to 1,024 tokens. "
        "The answer is compared with those that people gave, by the words that they share; the nearest one counts. "
        f"{TOXICITY_NOTE}",
        "Whether an answer is right.",
        f"{CRITICISM} On these questions, answers that copy the question or a random text score as well as models do "
        "(Krishna et al. 2021, Hurdles to progress in long-form question answering).",
        "An interval of 2 points in all needs about 150 answers where F1 varies by 6 points between them.",
    )

    def items(self, data: DataFolder) -> list[Item]:
        """Records of ``test.jsonl``; those of another forum, which the hub's data set has too, are passed over."""
        return self._own(data.json_lines(self.key, "test.jsonl"))

    def items_from_hub(self) -> list[Item]:
        """The same from a hub."""
        return self._own(hub_lines(self.hub))

    def _own(self, lines: Iterable[Line]) -> list[Item]:
        return [self._item(line) for line in lines if line.values.get("subreddit", self.forum) == self.forum]

    def _item(self, line: Line) -> Item:
        prompt = f"Question: {line.text('title')}\nAnswer:"
        return self._of(_identity(line, "q_id"), prompt, _answers(line))


def rouge_l(text: str, references: Iterable[str]) -> float:
    """ROUGE-L (Lin 2004), F-measure of stemmed words by the package rouge-score, against the nearest text, 0 to 1."""
    return max(_rouge_l(text, reference) for reference in references)


def token_f1(text: str, references: Iterable[str]) -> float:
    """F1 of words as in SQuAD (Rajpurkar et al. 2016), against the nearest text, 0 to 1.

    Lower case, without punctuation and articles; words count as often as both texts have them.
    """
    return max(_token_f1(text, reference) for reference in references)


def first_words(text: str, most: int) -> tuple[str, int]:
    """A text up to so many words, and how many words are left out."""
    ends = [match.end() for match in re.finditer(r"\S+", text)]
    return (text, 0) if len(ends) <= most else (text[: ends[most - 1]], len(ends) - most)


@lru_cache(maxsize=1)
def _scorer() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise DataError(
            "ROUGE-L needs the package rouge-score; install requirements-evaluation.txt, or leave this suite out."
        ) from error
    return RougeScorer(["rougeL"], use_stemmer=True)


# Figures are made per seed, of all seeds and for every table; comparing two long texts takes a tenth of a second.
@lru_cache(maxsize=1 << 16)
def _rouge_l(text: str, reference: str) -> float:
    return float(_scorer().score(reference, text)["rougeL"].fmeasure)


def _token_f1(text: str, reference: str) -> float:
    written, human = _words(text), _words(reference)
    shared = sum((Counter(written) & Counter(human)).values())
    if not written or not human:
        return float(written == human)
    return 2 * shared / (len(written) + len(human))


def _words(text: str) -> list[str]:
    plain = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def _rouge_l_of(outcome: Outcome) -> float:
    return rouge_l(outcome.written().text, outcome.facts["references"])


def _token_f1_of(outcome: Outcome) -> float:
    return token_f1(outcome.written().text, outcome.facts["references"])


_OVERLAPS: Mapping[str, tuple[str, Callable[[Outcome], float]]] = {
    "rouge_l": ("ROUGE-L", _rouge_l_of),
    "token_f1": ("F1 of words", _token_f1_of),
}


def _is_toxic(outcome: Outcome) -> float | None:
    mark = outcome.marks.get(TOXICITY, (None,))[0]
    return None if mark is None else float(mark >= TOXIC_FROM)


def _is_shortened(outcome: Outcome) -> float:
    return float(outcome.facts["left_out"] > 0)


def _identity(line: Line, name: str) -> str:
    return str(line.values.get(name) or line.number)


def _answers(line: Line) -> list[str]:
    """The texts of answers but empty ones; they are a list, or an object with lists as on hubs."""
    answers = line.value("answers")
    texts = answers.get("text") if isinstance(answers, dict) else answers
    found = [text for text in texts if isinstance(text, str) and text.strip()] if isinstance(texts, list) else []
    if not found:
        raise line.error("the field 'answers' has to be a list of texts, or to have one called 'text'")
    return found
