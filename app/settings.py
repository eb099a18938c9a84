"""Settings from the environment; every variable begins with ``COFT_``."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What a deployment can set.

    Attributes:
        database_url: ``COFT_DATABASE_URL``: SQLite or PostgreSQL URL; empty is the per-user data folder.
        host: ``COFT_HOST``: address that the web server listens on.
        port: ``COFT_PORT``: its port.
        model: ``COFT_MODEL``: model that new audits begin with.
        device: ``COFT_DEVICE``: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``COFT_DTYPE``: ``auto`` or a floating type.
        pipeline: ``COFT_PIPELINE``: ``auto``, ``embedded``, ``none``, or a spaCy pipeline's name or folder.
        mask_families: ``COFT_MASK_FAMILIES``: attribute families that are masked unless an audit or a calibration
            says otherwise, separated by commas; ``protected`` (all but proxies, the default) and ``all`` are allowed.
        max_upload_mb: ``COFT_MAX_UPLOAD_MB``: largest prompt set or word list in megabytes.
        live_rollouts: ``COFT_LIVE_ROLLOUTS``: branches whose key-value memory is kept between requests.
        full_logits_kb: ``COFT_FULL_LOGITS_KB``: kilobytes up to which a step's logits are kept whole; of larger ones
            the heads are kept, and with 0 nothing.
        mcp: ``COFT_MCP``: offer the endpoints to agents as an MCP server too.
    """

    model_config = SettingsConfigDict(env_prefix="COFT_", frozen=True, protected_namespaces=())

    database_url: str = ""
    host: str = "127.0.0.1"
    port: int = Field(default=7860, ge=1, le=65535)
    model: str = "demo"
    device: str = "auto"
    dtype: str = "auto"
    pipeline: str = "auto"
    mask_families: str = "protected"
    max_upload_mb: int = Field(default=20, ge=1)
    live_rollouts: int = Field(default=16, ge=1)
    full_logits_kb: int = Field(default=320, ge=0)
    mcp: bool = False
