"""All suites, in the order of pages and tables: bias, utility, quality, long texts."""

from __future__ import annotations

from coft_core.errors import InvalidInputError
from coft_core.suites.base import Suite
from coft_core.suites.bbq import Bbq, BbqIntersectional
from coft_core.suites.bias_in_bios import BiasInBios
from coft_core.suites.bold import Bold
from coft_core.suites.compas import Compas
from coft_core.suites.coreference import WinoBias, Winogender
from coft_core.suites.crows_pairs import CrowsPairs
from coft_core.suites.discrim_eval import DiscrimEvalExplicit, DiscrimEvalImplicit
from coft_core.suites.gsm8k import Gsm8k, Gsm8kFiveShot
from coft_core.suites.hiring import HiringResume, HiringResumeInformal, Utrecht
from coft_core.suites.long_form import CnnDailyMail, Eli5, GovReport
from coft_core.suites.mauve import CnnDailyMailLengths, Mauve
from coft_core.suites.multiple_choice import ArcEasy, Piqa, StrategyQa, StrategyQaChain
from coft_core.suites.phantom import PhantomGaps, PhantomQuestions
from coft_core.suites.stereoset import StereoSet
from coft_core.suites.wikitext import WikiText, WikiTextLong

SUITES: tuple[Suite, ...] = (
    StereoSet(),
    CrowsPairs(),
    Bbq(),
    BbqIntersectional(),
    Bold(),
    Utrecht(),
    Compas(),
    HiringResume(),
    HiringResumeInformal(),
    BiasInBios(),
    DiscrimEvalExplicit(),
    DiscrimEvalImplicit(),
    WinoBias(),
    Winogender(),
    PhantomGaps(),
    Gsm8k(),
    Gsm8kFiveShot(),
    StrategyQa(),
    StrategyQaChain(),
    ArcEasy(),
    Piqa(),
    PhantomQuestions(),
    WikiText(),
    WikiTextLong(),
    Mauve(),
    CnnDailyMail(),
    CnnDailyMailLengths(),
    GovReport(),
    Eli5(),
)


def suite(key: str) -> Suite:
    """The suite of a key."""
    for known in SUITES:
        if known.key == key:
            return known
    raise InvalidInputError(f"There is no suite {key!r}; choose {', '.join(known.key for known in SUITES)}.")
