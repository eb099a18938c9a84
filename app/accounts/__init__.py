"""Accounts of a server that several people use: signing in, what each role may do, and the trail of who did what."""

from app.shared.wiring import Feature

FEATURE = Feature(
    __name__,
    {
        "accounts": "add, show or change accounts, and the tokens of programs",
        "trail": "show, check or export the trail of who did what",
    },
)
