"""Whether a text is in a language that the span detector does not read.

Lexicons and pipelines are English. A text in another script is told by its letters, one in another language of the
Latin script by the small words that every sentence needs. Words that English has too are left out of the other
languages' lists, one small word is never enough, and quotations are left out, so that short English prompts are not
told of. Languages that are not listed here, in Latin letters, pass for English.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ENGLISH = _words(
    """a about after all an and are as at be because been before but by can could did do does for from had has
    have he her here him his how i if in into is it its me more most my no not now of on one or our she
    should so some than that the their them then there these they this those to up us was we were what when
    where which who why will with would you your"""
)

OTHERS: dict[str, frozenset[str]] = {
    "Spanish": _words(
        """el los las una unos unas del y que por para con como pero más muy está están es son fue era porque
        cuando donde qué quién su sus esta este estos ella ellos también ya sin sobre según hay tiene ser lo
        le se nos desde hasta otro sí mi"""
    ),
    "French": _words(
        """le les un une du et est sont dans pour par sur avec qui que ne pas ce cette ces il elle ils elles
        nous vous je mais où été être avoir très aux à au se sa ses leur leurs plus comme était ont fait
        c'est qu'il qu'elle quand aussi"""
    ),
    "German": _words(
        """der das und ist nicht ein eine einen einem einer eines zu den dem des mit auf für von im sich auch
        es sie er wir ihr ich wie aber oder wenn sind wird wurde nach bei aus sein seine ihre hat haben kann
        mehr noch nur über durch zum zur dass weil vor keine"""
    ),
    "Italian": _words(
        """il gli lo uno una del della delle dei degli che e è sono non per con come più anche ma era questo
        questa quando dove perché suo sua suoi nel nella alla dal dalla al ha hanno di le si ci molto stata
        essere"""
    ),
    "Portuguese": _words(
        """o os uma um umas uns do da dos das e é são não que para com como mais mas foi era ao aos à na nos
        nas em por ela ele eles elas seu sua seus este esta isso quando onde porque também já muito está ser
        tem"""
    ),
    "Dutch": _words(
        """het een en van de niet dat te zijn ik je hij zij wij ze op met voor er aan ook als maar om naar bij
        uit door wat werd wordt heeft hebben dit deze wie waar omdat geen nog mijn haar hun kan"""
    ),
    "Swedish": _words(
        """och att det som en ett är inte på av för till med jag han hon vi ni de hade har var om så när där
        här från eller men också vid bara kan ska skulle sin sitt detta denna efter"""
    ),
    "Danish or Norwegian": _words(
        """og det som en et er ikke på af av til med jeg han hun vi de havde hadde har var om så når der her
        fra eller men også ved kun bare kan skal skulle sin sitt dette denne efter etter hvem hvad hva blev
        ble"""
    ),
    "Polish": _words(
        """i w na z że się nie do jest to jak ale o po co za od przez przy był była być są dla czy który która
        jego jej ich tak już tylko może bardzo oraz"""
    ),
    "Czech or Slovak": _words(
        """a v na se že je není nie to jak ale o po co za od pro pri při byl byla být sú jsou který která jeho
        její ich tak už len jen může velmi nebo alebo jsem som si"""
    ),
    "Turkish": _words(
        """ve bir bu için ile da de çok daha gibi ama olarak olan var yok ne o ben sen biz onlar ki mi mı her
        kadar sonra değil oldu ise en"""
    ),
    "Romanian": _words(
        """și este nu un o în la cu pe de din care că mai sunt pentru a fost au ca sau dar lui ei este se prin
        această acest foarte când unde"""
    ),
    "Hungarian": _words(
        """a az és egy hogy nem is van volt meg de ez azt ezt mint csak már még ha vagy nagyon aki ami lesz ki
        mert után"""
    ),
    "Finnish": _words(
        """ja on ei se että hän oli ovat joka mutta kun niin myös tai minä sinä me he tämä sen kuin jos vain
        hänen olla ole nyt sitä"""
    ),
    "Indonesian or Malay": _words(
        """yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena adalah mereka dia
        kami ada oleh sudah bisa lebih kita anda orang atau"""
    ),
    "Vietnamese": _words(
        """là và của có không được cho một những người trong với này đã khi các đó để ở tôi cũng như"""
    ),
    "Croatian, Serbian or Bosnian": _words(
        """i je da se nije na su za što koji koja od ali kao sam bio bila biti samo ako njegov njen ili već kad
        gdje vrlo može jer sve ona oni"""
    ),
    "Catalan": _words(
        """els les un una del dels i que és són no per amb com més però molt aquest aquesta quan on perquè seu
        seva també ja ser té ella ells està als"""
    ),
    "Lithuanian": _words(
        """ir yra kad ne į su iš tai bet kaip jis ji buvo jo jos apie arba kai labai tik dėl nuo per savo už
        nėra gali"""
    ),
    "Filipino": _words(
        """ang ng sa mga na ay hindi siya niya ako ito para kung at may nang ni kay pero wala po ka isang"""
    ),
    "Swahili": _words(
        """na ya wa kwa ni la za katika cha yake kuwa hii hiyo kama lakini si watu huyo alikuwa yeye sana"""
    ),
}

_SHARED = _words(
    """a i o me he we on at an in is as do to so no of or if be by my am us her his man den die was war hat
    will not art also bad gift handy rock rot see du de la en e da di si se den dem can men fan son sin are
    has her mi el no se un per con pour plus sur par est sont were ha go us ten to is far let some all over
    ever under bin von van der lo le san los las del ne ki var pan na za ya ni wa et al ma non vi ex via pro
    age on po co jo mai"""
)
"""Words that English texts have as well, as words, in names of people and places, or in phrases."""

LEAST_HITS = 2
SCRIPT_SHARE = 0.3
"""Share of letters of another script above which a text counts as written in it."""
LEAST_LETTERS = 4

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_QUOTED = re.compile(r"“[^”]*”|«[^»]*»|„[^“”]*[“”]|\"[^\"]*\"")
_ADDRESS = re.compile(r"\S*(?:://|www\.|@)\S*")
_MARKERS = {
    name: frozenset(word for word in words - ENGLISH - _SHARED if len(word) > 1) for name, words in OTHERS.items()
}


def language_note(text: str) -> str:
    """One sentence if a text is in a language that the detector does not read; empty if it seems to be English."""
    found = other_language(text)
    if not found:
        return ""
    return f"This text seems to be {found}; sensitive words are found in English alone, so mark them yourself."


def other_language(text: str) -> str:
    """The language or script of a text, such as ``"in Spanish"``; empty for English and where there is too little."""
    script = _script(text)
    if script:
        return f"in {script} script"
    plain = _ADDRESS.sub(" ", unicodedata.normalize("NFC", text))
    # What is quoted may be in any language; a text that is all quotation is judged as it is.
    unquoted = _QUOTED.sub(" ", plain)
    kept = unquoted if _WORD.search(unquoted) else plain
    words = [word.lower().replace("’", "'") for word in _WORD.findall(kept)]
    hits = {name: [word for word in words if word in markers] for name, markers in _MARKERS.items()}
    best = max(hits, key=lambda name: len(hits[name]))
    if len(set(hits[best])) >= LEAST_HITS and len(hits[best]) > _only_english(words, best):
        return f"in {best}"
    return ""


def _only_english(words: list[str], name: str) -> int:
    """English small words of a text that the other language does not have."""
    return sum(word.split("'")[0] in ENGLISH - OTHERS[name] for word in words)


def _script(text: str) -> str:
    """The script of a text of which other letters than Latin ones make up a good part; empty otherwise."""
    scripts = Counter(_script_of(letter) for letter in text if letter.isalpha())
    others = {name: count for name, count in scripts.items() if name != "LATIN"}
    if sum(others.values()) < max(LEAST_LETTERS, SCRIPT_SHARE * scripts.total()):
        return ""
    name = max(others, key=lambda own: others[own])
    return {"CJK": "Chinese or Japanese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}.get(
        name, name.capitalize()
    )


def _script_of(letter: str) -> str:
    """The script of a letter by its name; symbols for mathematics and full width are Latin letters in another dress."""
    name = unicodedata.name(letter, "LATIN")
    plain = unicodedata.normalize("NFKD", letter)[:1]
    return "LATIN" if plain.isascii() or name in ("LATIN", "MICRO SIGN") else name.split()[0].partition("-")[0]
