"""What a rewording depends on besides the prompt: part of the fingerprint of policies that reword."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from coft_core.masking.lexicon import Lexicons
from coft_core.rewording.counterfactuals import AGES
from coft_core.rewording.tables import shipped_tables


@lru_cache(maxsize=1)
def rewording_version() -> str:
    """Digest of the shipped tables and lexicons, 64 hexadecimal digits."""
    content = repr((shipped_tables(), AGES, Lexicons.load().digest))
    return hashlib.sha256(content.encode("utf-8")).hexdigest()
