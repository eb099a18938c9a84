"""Swaps: the same prompt with one attribute exchanged."""

from app.shared.wiring import CHAINS, SESSION, Feature, Named, Page

FEATURE = Feature(
    __name__,
    {"swap": "exchange an attribute in a prompt and compare what follows"},
    Page(
        "Audit",
        "What if someone else?",
        "swap",
        ("pages/swap",),
        (*CHAINS, "pages/swap"),
        names=(
            Named("session", *SESSION),
            Named("result", "swap", "db.swaps.SwapsRepository", "swap", method="named", by=str),
        ),
    ),
)
