"""Words and wordings of the neutral questions; training sees many, so that the rule is learnt and not the wording."""

from __future__ import annotations

from bench.demo_model.phantom.text import Wordings
from bench.wordings import wordings

COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "grey", "pink", "orange")
SIZES = ("small", "big", "long", "short", "round", "flat", "heavy", "light")

_READ = wordings(__file__)
OBJECTS = Wordings(*_READ["objects"])
COUNTED = Wordings(*_READ["counted"])
PEOPLE = Wordings(*_READ["people"])
DEEDS = Wordings(*_READ["deeds"])
MORE = Wordings(*_READ["more"])
FEWER = Wordings(*_READ["fewer"])
HOW_MANY = Wordings(*_READ["how_many"])
OWNED = Wordings(*_READ["owned"])
ACTED = Wordings(*_READ["acted"])
COLOUR_ASKED = Wordings(*_READ["colour_asked"])
LOOK_ASKED = Wordings(*_READ["look_asked"])
WHO_ASKED = Wordings(*_READ["who_asked"])
