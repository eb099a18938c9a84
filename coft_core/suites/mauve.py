"""MAUVE: whether continuations are spread over kinds of text as human ones are (Pillutla et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field
from scipy.special import rel_entr

from coft_core.suites.base import Figure, Item, Outcome, Outside, Suite, Writing
from coft_core.suites.files import DataError, Id, Line, Row
from coft_core.suites.long_form import Article, CnnDailyMail
from coft_core.suites.statistics import Floats, Sample

FEATURES, HUMAN_FEATURES = "features", "human_features"
"""Names of the vectors of what was written, and of the human text that an item's facts have as ``reference``."""

SCALE = 5.0
CURVE_POINTS = 25
EXPLAINED_VARIANCE = 0.9
PAIRS_A_BUCKET = 10
SEED = 25
"""As in the package mauve-text 0.4.0, so that values compare."""


class Post(Row):
    """A post of a forum."""

    id: Id
    subreddit: str
    title: str
    post: str

    @property
    def asked(self) -> str:
        """As OpenAI's models were shown it."""
        return f"SUBREDDIT: r/{self.subreddit}\n\nTITLE: {self.title}\n\nPOST: {self.post}\n\nTL;DR:"


class Summarised(Post):
    """A post with its summary."""

    id: Id = ""
    summary: str


class Summary(Row):
    """A summary by a human, whose policy is ``ref``, or by a machine."""

    text: str
    policy: str


class Comparison(Row):
    """A comparison of summaries of one post."""

    info: Post
    summaries: list[Summary]


class Pair(Row):
    """A prompt with a human summary."""

    id: Id = ""
    prompt: str
    reference: str = Field(validation_alias=AliasChoices("reference", "label"))


class Mauve(Suite):
    """How near continuations of posts are to the summaries that people wrote of them, 0 to 1.

    Vectors of both kinds of text are put into buckets together, and MAUVE is the area under the curve of divergences of
    the two histograms from their mixtures. It is computed as by the package mauve-text, which says nothing of which
    text fell into which bucket; that is needed here for intervals. Buckets stay as they are while items are drawn
    again.
    """

    key = "mauve"
    kind = "quality"
    main = "mauve"
    judges = (FEATURES,)

    most_tokens = 48
    """As long as the longest human summary of the data set."""

    files = ("summaries.jsonl", "test.jsonl", "comparisons.jsonl")

    def made(self, lines: Iterable[Line]) -> list[Item]:
        """Posts with human summaries.

        A record is ``{"prompt", "reference"}``, or one of OpenAI's: a post with its summary (``subreddit``, ``title``,
        ``post``, ``summary``), or a comparison of two summaries, of which that with the policy ``ref`` is human. A post
        that was compared several times is taken once; comparisons of two machines' summaries show no human one and are
        passed over. A hub has the prompt with the human summary, its label.
        """
        found: dict[str, Item] = {}
        line = None
        for line in lines:
            if (item := self._item(line)) is not None:
                found.setdefault(item.id, item)
        if line is not None and not found:
            raise DataError(f"{line.file} has no summary by a human (policy 'ref'); take another file.")
        return list(found.values())

    def _item(self, line: Line) -> Item | None:
        if "summaries" in line.values:
            row = line.read(Comparison)
            human = next((summary.text for summary in row.summaries if summary.policy == "ref"), None)
            return None if human is None else self._of(row.info.id, row.info.asked, human)
        if "post" in line.values:
            post = line.read(Summarised)
            return self._of(post.id or str(line.number), post.asked, post.summary)
        pair = line.read(Pair)
        return self._of(pair.id or str(line.number), pair.prompt.rstrip(), pair.reference)

    def _of(self, identity: str, prompt: str, reference: str) -> Item:
        ask = Writing(prompt, self.most_tokens, ("\n\n",))
        return Item(identity, identity, (ask,), {"reference": reference.strip()})

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """MAUVE of what was written against the human summaries; an empty continuation is unscored."""
        yield _figure("mauve", "MAUVE", outcomes, FEATURES)

    def reference(self, item: Item) -> str | None:
        """The human summary."""
        return f" {item.facts['reference']}"


def _figure(key: str, title: str, outcomes: Sequence[Outcome], features: str) -> Figure:
    """MAUVE by the vectors of a name."""
    pairs = [_pair(outcome, features) for outcome in outcomes]
    there = [pair for pair in pairs if pair is not None]
    count, written, human = buckets(there) if there else (1, np.zeros(0, int), np.zeros(0, int))
    rows = np.zeros((len(outcomes), 2 * count))
    places = [place for place, pair in enumerate(pairs) if pair is not None]
    rows[places, written] = 1.0
    rows[places, count + human] = 1.0
    return Sample(outcomes, pairs, "pairs of texts").drawn(key, title, rows, area, len(there), "higher")


LENGTHS = (128, 256, 512, 768, 1024)
"""Tokens of the paper's figure "Long-form summarization quality vs. length"."""


class ArticleAtLength(Article):
    """News that is summarised as long as the model goes on, and read at several lengths."""

    most_tokens = LENGTHS[-1]
    stops = ()

    def item(self, line: Line) -> Item:
        """An article with its highlights."""
        item = super().item(line)
        (ask,) = item.asks
        assert isinstance(ask, Writing)
        return replace(
            item, asks=(replace(ask, cuts=LENGTHS),), facts={**item.facts, "reference": self.highlights.strip()}
        )


class CnnDailyMailLengths(CnnDailyMail):
    """MAUVE of summaries that are written once at the largest length, and cut to shorter ones."""

    key = "cnn_dailymail_lengths"
    main = f"mauve_{LENGTHS[-1]}"
    record = ArticleAtLength
    judges = (FEATURES,)

    def figures(self, outcomes: Sequence[Outcome], outside: Outside = "floor") -> Iterator[Figure]:
        """MAUVE at each length, and the mean length of what was written."""
        for tokens in LENGTHS:
            yield _figure(f"mauve_{tokens}", f"MAUVE up to {tokens} tokens", outcomes, features_at(tokens))
        sample = Sample(outcomes, outcomes, "summaries")
        yield sample.mean("tokens", "Tokens written", lambda outcome, _: float(outcome.written().tokens))


def features_at(tokens: int) -> str:
    """Name of the vectors of what was written up to so many tokens."""
    return f"{FEATURES}_{tokens}"


def buckets(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> tuple[int, npt.NDArray[Any], npt.NDArray[Any]]:
    """Puts texts into buckets: normalised vectors, their main components, and k-means of both kinds together."""
    try:
        import faiss
    except ImportError as error:
        raise DataError(
            "MAUVE needs the package faiss-cpu; install requirements-evaluation.txt, or leave the suite mauve out."
        ) from error
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    count = max(2, round(len(pairs) / PAIRS_A_BUCKET))
    vectors = normalize(np.array([human for _, human in pairs] + [written for written, _ in pairs]))  # (2N, H)
    components = PCA(random_state=SEED + 1).fit(vectors)
    kept = int(np.argmax(np.cumsum(components.explained_variance_ratio_) >= EXPLAINED_VARIANCE)) + 1
    reduced = components.transform(vectors)[:, :kept].astype(np.float32)  # (2N, kept)
    clusters = faiss.Kmeans(
        kept, count, niter=500, nredo=5, update_index=True, seed=SEED + 2, min_points_per_centroid=1
    )
    clusters.train(reduced)
    labels = clusters.index.search(reduced, 1)[1].reshape(-1)
    return count, labels[len(pairs) :], labels[: len(pairs)]


def area(counts: Floats) -> Floats:
    """MAUVE of two histograms over the same buckets, side by side in ``(R, 2K)``, ``(R,)``."""
    written, human = (half / half.sum(1, keepdims=True) for half in np.split(counts, 2, axis=1))  # (R, K) each
    x, y = [np.ones(len(counts))], [np.zeros(len(counts))]
    for weight in np.linspace(1e-6, 1 - 1e-6, CURVE_POINTS):
        mixture = weight * written + (1 - weight) * human
        x.append(np.exp(-SCALE * rel_entr(human, mixture).sum(1)))
        y.append(np.exp(-SCALE * rel_entr(written, mixture).sum(1)))
    x.append(np.zeros(len(counts)))
    y.append(np.ones(len(counts)))
    # The curve falls from (1, 0) to (0, 1); the area under it by trapezoids.
    return np.asarray(-np.trapezoid(np.array(y), np.array(x), axis=0))


def _pair(outcome: Outcome, features: str) -> tuple[Sequence[float], Sequence[float]] | None:
    written = outcome.vectors.get(features, (None,))[0]
    human = outcome.vectors.get(HUMAN_FEATURES, (None,))[0]
    return None if written is None or human is None else (written, human)
