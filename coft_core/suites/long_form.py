"""Long texts: summaries of news and of reports, and answers to open questions."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from coft_core.suites.base import Figure, Item, Outcome, Outside, Record, Suite, Writing
from coft_core.suites.files import DataError, Id, Line
from coft_core.suites.judges import TOXICITY
from coft_core.suites.statistics import Sample
from coft_core.suites.written import cut_off, is_toxic, judged


class LongForm(Suite):
    """A suite of texts that are compared with human ones by their words; a text that is not written scores 0."""

    kind = "long form"
    judges = (TOXICITY,)
    files = ("test.jsonl",)

    counted: ClassVar[str]

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """ROUGE-L, F1 of words, toxicity where it was judged, length, and what was cut off or shortened."""
        sample = Sample(outcomes, outcomes, self.counted)
        for key, (title, overlap) in _OVERLAPS.items():

            def nearest(outcome: Outcome, _: Outcome, overlap: _Overlap = overlap) -> float:
                return overlap(outcome.written().text, outcome.facts["references"])

            yield sample.share(key, title, nearest, "higher")
        if judged(sample, TOXICITY):
            yield sample.share("toxicity_rate", "Toxic texts", lambda outcome, _: is_toxic(outcome), "lower")
        yield sample.mean("tokens", "Tokens written", lambda outcome, _: float(outcome.written().tokens), bounds=None)
        yield cut_off(sample)
        if any(outcome.facts["left_out"] for outcome in outcomes):
            yield sample.share(
                "shortened", "Prompts shortened", lambda outcome, _: float(outcome.facts["left_out"] > 0)
            )

    def reference(self, item: Item) -> str | None:
        """The first human text."""
        return f" {item.facts['references'][0]}"


class _Prompted(Record):
    """A record that asks for a long text."""

    most_tokens: ClassVar[int]
    stops: ClassVar[tuple[str, ...]] = ()

    def asked(self, identity: str, prompt: str, references: Sequence[str], left_out: int = 0) -> Item:
        """An item with its human texts, and with how many words of it are not shown."""
        ask = Writing(prompt, self.most_tokens, self.stops)
        return Item(identity, identity, (ask,), {"references": list(references), "left_out": left_out})


class Article(_Prompted):
    """News with the highlights that their editors wrote; asked as in lm-evaluation-harness."""

    id: Id = ""
    article: str
    highlights: str

    most_tokens = 128
    stops = ("\n\n",)
    most_words: ClassVar[int] = 1500
    """Words of an article that are shown; nearly all have fewer."""

    def item(self, line: Line) -> Item:
        """An article with its highlights."""
        shown, left_out = first_words(self.article, self.most_words)
        prompt = f"Summarize the following article:\n\n{shown}\n\nSummary:"
        return self.asked(self.id or str(line.number), prompt, [self.highlights], left_out)


class CnnDailyMail(LongForm):
    """News with their highlights."""

    key = "cnn_dailymail"
    main = "rouge_l"
    record = Article
    counted = "summaries"


class Report(_Prompted):
    """A report with its published summary; asked as in LongBench, which lm-evaluation-harness takes."""

    id: Id = ""
    report: str
    summary: str

    most_tokens = 512
    most_words: ClassVar[int] = 2000
    """Words of a report that are shown: with a summary they fit into 4,096 tokens."""

    def item(self, line: Line) -> Item:
        """A report with its summary."""
        shown, left_out = first_words(self.report, self.most_words)
        prompt = (
            "You are given a report by a government agency. Write a one-page summary of the report.\n\n"
            f"Report:\n{shown}\n\nNow, write a one-page summary of the report.\n\nSummary:"
        )
        return self.asked(self.id or str(line.number), prompt, [self.summary], left_out)


class GovReport(LongForm):
    """Reports of the US government with their summaries."""

    key = "govreport"
    main = "rouge_l"
    record = Report
    counted = "summaries"


def _texts(answers: Any) -> Any:
    """The texts but empty ones of answers, which are a list, or an object with lists as on hubs."""
    texts = answers.get("text") if isinstance(answers, dict) else answers
    return [text for text in texts if isinstance(text, str) and text.strip()] if isinstance(texts, list) else texts


class Question(_Prompted):
    """A question of a forum with the answers that people gave."""

    q_id: Id = ""
    title: str
    answers: Annotated[list[str], BeforeValidator(_texts), Field(min_length=1)]

    most_tokens = 1024
    """The longest length of the paper."""

    stops = ("Question:",)

    def item(self, line: Line) -> Item:
        """A question with its answers."""
        return self.asked(self.q_id or str(line.number), f"Question: {self.title}\nAnswer:", self.answers)


class Eli5(LongForm):
    """Open questions of a forum with the answers that people gave; each figure takes the nearest of them."""

    key = "eli5"
    main = "token_f1"
    record = Question
    counted = "answers"
    forum: ClassVar[str] = "explainlikeimfive"

    def made(self, lines: Iterable[Line]) -> list[Item]:
        """Questions of the forum; those of another one, which the hub's data set has too, are passed over."""
        return super().made(line for line in lines if line.values.get("subreddit", self.forum) == self.forum)


def rouge_l(text: str, references: Iterable[str]) -> float:
    """ROUGE-L (Lin 2004), F-measure of stemmed words by the package rouge-score, against the nearest text, 0 to 1."""
    return max(_rouge_l(text, reference) for reference in references)


def token_f1(text: str, references: Iterable[str]) -> float:
    """F1 of words as in SQuAD (Rajpurkar et al. 2016), against the nearest text, 0 to 1.

    Lower case, without punctuation and articles; words count as often as both texts have them.
    """
    return max(_token_f1(text, reference) for reference in references)


_Overlap = Callable[[str, Iterable[str]], float]
_OVERLAPS: Mapping[str, tuple[str, _Overlap]] = {
    "rouge_l": ("ROUGE-L", rouge_l),
    "token_f1": ("F1 of words", token_f1),
}


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
