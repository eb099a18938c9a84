"""Settings from the environment; every variable begins with ``COFT_``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from annotated_types import Ge, Le
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict
from typer.exceptions import TyperException

from coft_core.model.served import ServedModel
from coft_core.types import FAMILIES

SHOWN = 80
"""Characters of a wrong value that are shown."""
DEVICE = r"^((auto|cpu)|(cuda|mps|xpu)(:\d+)?)$"
FLOATING = r"^(auto|half|float|double|b?float\d\w*)$"
OBJECT = r"\s*\{.*\}\s*"
SERVED_VALUES = {
    "name": "up to 64 letters, digits, dots, dashes and underscores",
    "url": "an address such as http://gpu1:8000, without user, key or query",
    "kind": "vllm or llama-server",
    "key_env": "the name of an environment variable",
    "context_length": "a whole number of at least 32",
    "most_likely": "a whole number of at least 1",
    "concurrency": "a whole number of at least 1",
    "timeout": "a number of seconds above 0",
}
"""What an entry of ``COFT_SERVED`` may say."""
FAMILY_NAMES = ("all", "protected", "none", *FAMILIES)


class WrongSettingsError(TyperException):
    """Settings that cannot be used; its text has one sentence a line for each of them."""


class Settings(BaseSettings):
    """What a deployment can set.

    Attributes:
        database_url: ``COFT_DATABASE_URL``: SQLite or PostgreSQL URL; empty is the per-user data folder.
        host: ``COFT_HOST``: address that the web server listens on.
        port: ``COFT_PORT``: its port.
        hosts: ``COFT_HOSTS``: names by which others reach it beside loopback and ``host``, separated by commas.
        origins: ``COFT_ORIGINS``: websites that may ask it beside its own pages, separated by commas.
        project: ``COFT_PROJECT``: project that commands, and a server without accounts, work in; empty is the first
            one for commands, and all of them for such a server.
        accounts: ``COFT_ACCOUNTS``: ``on`` asks everybody to sign in; ``off`` serves this computer only; ``elsewhere``
            serves any address because something in front of the server asks who people are.
        sign_in_hours: ``COFT_SIGN_IN_HOURS``: how long a browser stays signed in.
        idle_minutes: ``COFT_IDLE_MINUTES``: how long a browser stays signed in that asks for nothing; 0 sets no limit.
        oidc_issuer: ``COFT_OIDC_ISSUER``: address of the OpenID provider that signs accounts in too; empty for none.
        oidc_client_id: ``COFT_OIDC_CLIENT_ID``: what the provider calls this server.
        oidc_client_secret: ``COFT_OIDC_CLIENT_SECRET``: its secret; empty where the provider knows it without one.
        oidc_label: ``COFT_OIDC_LABEL``: what the provider is called on the page to sign in on.
        oidc_role_claim: ``COFT_OIDC_ROLE_CLAIM``: claim of the provider's token that roles follow from.
        oidc_roles: ``COFT_OIDC_ROLES``: what the claim says, and the role, such as ``audit-leads=lead,*=viewer``; ``*``
            is anybody whom the provider signs in.
        oidc_project: ``COFT_OIDC_PROJECT``: project that whoever the provider signs in for the first time becomes a
            member of; empty for none.
        model: ``COFT_MODEL``: model that new audits begin with.
        device: ``COFT_DEVICE``: ``auto``, ``cpu`` or ``cuda``.
        dtype: ``COFT_DTYPE``: ``auto`` or a floating type.
        device_map: ``COFT_DEVICE_MAP``: how models are spread over several devices: ``auto``, ``balanced``,
            ``balanced_low_0``, ``sequential``, or a JSON object from parts of the model to devices; empty spreads
            nothing.
        max_memory: ``COFT_MAX_MEMORY``: memory of each device that the device map may fill, as a JSON object.
        offload_folder: ``COFT_OFFLOAD_FOLDER``: where a device map puts weights on the disk.
        quantization: ``COFT_QUANTIZATION``: ``none``, ``8bit`` or ``4bit``.
        prefill_tokens: ``COFT_PREFILL_TOKENS``: tokens, over all branches, that one forward reads at most.
        packed_weights_mb: ``COFT_PACKED_WEIGHTS_MB``: megabytes of weights up to which a model on a CPU holds them a
            second time, arranged for products with few rows; 0 never does.
        snapshots_mb: ``COFT_SNAPSHOTS_MB``: megabytes of copies of states that a live branch holds at most, of models
            whose layers keep states.
        trust_remote_code: ``COFT_TRUST_REMOTE_CODE``: names of models that may run code of their own, separated by
            commas; empty trusts none.
        pipeline: ``COFT_PIPELINE``: ``auto``, ``embedded``, ``none``, or a spaCy pipeline's name or folder.
        mask_families: ``COFT_MASK_FAMILIES``: attribute families that are masked unless an audit or a calibration
            says otherwise, separated by commas; ``protected`` (all but proxies, the default) and ``all`` are allowed.
        max_upload_mb: ``COFT_MAX_UPLOAD_MB``: largest prompt set or word list in megabytes.
        models: ``COFT_MODELS``: models that are loaded: names, folders with all below them, organisations of a hub as
            ``name/``, separated by commas; empty loads any.
        served: ``COFT_SERVED``: models that servers compute, as a list in YAML or JSON, or a file with one; see
            :class:`coft_core.ServedModel` for what each says. Reviewers choose them as ``served:<name>``.
        jobs_per_visitor: ``COFT_JOBS_PER_VISITOR``: jobs of one visitor that are at work or wait; 0 sets no limit.
        uploads_mb_per_hour: ``COFT_UPLOADS_MB_PER_HOUR``: megabytes that one visitor may upload within an hour; 0 sets
            no limit.
        disk_mb: ``COFT_DISK_MB``: megabytes of the store from which on nothing new is uploaded, audited or run; 0 sets
            no limit.
        disk_mb_per_account: ``COFT_DISK_MB_PER_ACCOUNT``: megabytes of the store that what one account made may take
            before it uploads, audits and runs nothing new; 0 sets no limit, and without accounts there is none.
        log: ``COFT_LOG``: how the server's log is written: ``text`` for people, or ``json``, one object a line.
        live_rollouts: ``COFT_LIVE_ROLLOUTS``: branches whose key-value memory is kept between requests.
        kv_memory_mb: ``COFT_KV_MEMORY_MB``: megabytes of key-value memory of all live branches together.
        full_logits_kb: ``COFT_FULL_LOGITS_KB``: kilobytes up to which a step's logits are kept, so that it can be
            read at another lambda or alpha without the model.
        faster_steps: ``COFT_FASTER_STEPS``: whether loading a model ends with capturing or tracing its steps, which
            takes a second or several: ``on`` or ``off``.
        data: ``COFT_DATA``: folder with the files of the suites that are evaluated on; empty names none.
        signing_key: ``COFT_SIGNING_KEY``: file of the key that signs bundles; empty is a file beside the store.
        mcp: ``COFT_MCP``: offer the endpoints to agents as an MCP server too.
        completions: ``COFT_COMPLETIONS``: a policy with its options, such as ``coft,lam=0.6``, by which completions are
            served in the shape of OpenAI's interface; empty serves none.
        ray_address: ``COFT_RAY_ADDRESS``: the Ray cluster that long jobs share their rows out on: ``ray://host:10001``,
            ``host:6379``, ``auto``, or ``local`` for processes of this computer; empty runs them in this process.
        ray_workers: ``COFT_RAY_WORKERS``: workers of one job.
        ray_threads: ``COFT_RAY_THREADS``: threads with which each computes, which are processors that it takes.
        ray_gpus: ``COFT_RAY_GPUS``: GPUs that each takes; a part of one is allowed.
        neutral_words: ``COFT_NEUTRAL_WORDS``: CSV file with the neutral words that marked words are compared with;
            empty takes those that come with the program.
        thinking_marks: ``COFT_THINKING_MARKS``: what models write before and behind their thinking, such as
            ``<think> </think>``, several separated by commas; looked for before those of published models.
    """

    model_config = SettingsConfigDict(env_prefix="COFT_", frozen=True, protected_namespaces=())

    database_url: str = ""
    host: str = "127.0.0.1"
    port: int = Field(default=7860, ge=1, le=65535)
    hosts: str = ""
    origins: str = ""
    project: str = ""
    accounts: Literal["off", "on", "elsewhere"] = "off"
    sign_in_hours: int = Field(default=12, ge=1, le=24 * 30)
    idle_minutes: int = Field(default=60, ge=0, le=60 * 24 * 30)
    oidc_issuer: str = ""
    oidc_client_id: str = ""
    oidc_client_secret: str = ""
    oidc_label: str = "your organisation"
    oidc_role_claim: str = "groups"
    oidc_roles: str = ""
    oidc_project: str = "Default"
    model: str = "demo"
    device: str = Field(default="auto", pattern=DEVICE, description="auto, cpu, cuda or one device such as cuda:0")
    dtype: str = Field(default="auto", pattern=FLOATING, description="auto, float32, bfloat16 or float16")
    device_map: str = Field(
        default="",
        pattern=rf"(?s)^(|auto|balanced|balanced_low_0|sequential|{OBJECT})$",
        description="auto, balanced, balanced_low_0, sequential or a JSON object",
    )
    max_memory: str = Field(default="", pattern=rf"(?s)^({OBJECT})?$", description="a JSON object")
    offload_folder: str = ""
    quantization: Literal["none", "8bit", "4bit"] = "none"
    prefill_tokens: int = Field(default=16384, ge=1)
    packed_weights_mb: int = Field(default=1024, ge=0)
    snapshots_mb: int = Field(default=256, ge=0)
    trust_remote_code: str = ""
    pipeline: str = "auto"
    mask_families: str = Field(
        default="protected",
        pattern=rf"(?i)^[\s,]*(({'|'.join(FAMILY_NAMES)})([\s,]+|$))*$",
        description=f"some of {', '.join(FAMILY_NAMES)}, with commas between them",
    )
    max_upload_mb: int = Field(default=20, ge=1)
    models: str = ""
    served: str = ""
    jobs_per_visitor: int = Field(default=16, ge=0)
    uploads_mb_per_hour: int = Field(default=1000, ge=0)
    disk_mb: int = Field(default=0, ge=0)
    disk_mb_per_account: int = Field(default=0, ge=0)
    log: Literal["text", "json"] = "text"
    live_rollouts: int = Field(default=16, ge=1)
    kv_memory_mb: int = Field(default=2048, ge=1)
    full_logits_kb: int = Field(default=320, ge=0)
    faster_steps: Literal["on", "off"] = "on"
    data: str = ""
    signing_key: str = ""
    mcp: bool = False
    completions: str = ""
    neutral_words: str = ""
    thinking_marks: str = ""
    ray_address: str = ""
    ray_workers: int = Field(default=2, ge=1)
    ray_threads: int = Field(default=1, ge=1)
    ray_gpus: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)

    def __init__(self, **given: Any) -> None:
        """Read the environment; what is given wins over it."""
        try:
            super().__init__(**given)
        except ValidationError as error:
            lines = (_sentence(str(wrong["loc"][0]), wrong["input"], given) for wrong in error.errors())
            raise WrongSettingsError("\n".join(lines)) from None
        if self.served:
            _ = self.served_models

    @cached_property
    def served_models(self) -> dict[str, ServedModel]:
        """Models that servers compute, by the name by which they are chosen."""
        listed = _listed(self.served) if self.served else []
        found: dict[str, ServedModel] = {}
        for place, each in enumerate(listed, 1):
            try:
                model = ServedModel(**each)
            except ValidationError as error:
                raise WrongSettingsError("\n".join(_of_served(place, wrong) for wrong in error.errors())) from None
            if model.title in found:
                raise WrongSettingsError(f"COFT_SERVED lists {model.name!r} twice; give every model a name of its own.")
            found[model.title] = model
        return found

    @property
    def model_names(self) -> tuple[str, ...]:
        """The usual model, those listed by name, without folders and organisations of a hub, and served ones."""
        listed = (part.strip() for part in self.models.split(","))
        named = (part for part in listed if part and not part.endswith("/") and not Path(part).is_absolute())
        return tuple(dict.fromkeys((self.model, *named, *self.served_models)))

    @property
    def largest_body(self) -> int:
        """Bytes of a request's body: the largest upload, and what goes around it."""
        return (self.max_upload_mb + 1) * 1_000_000

    @property
    def placement(self) -> dict[str, object]:
        """What ``load_model`` is told besides device and type."""
        return {
            "device_map": self.device_map or None,
            "max_memory": self.max_memory or None,
            "offload_folder": self.offload_folder or None,
            "quantization": self.quantization,
            "prefill_tokens": self.prefill_tokens,
            "packed_bytes": self.packed_weights_mb << 20,
            "snapshot_bytes": self.snapshots_mb << 20,
            "trusted": tuple(name.strip() for name in self.trust_remote_code.split(",") if name.strip()),
        }


def _sentence(name: str, value: object, given: Mapping[str, object]) -> str:
    """What is wrong with a setting: its name, its value and the values that are allowed."""
    said = f"--{name.replace('_', '-')}" if name in given else f"COFT_{name.upper()}"
    return f"{said} is {str(value)[:SHOWN]!r}; it must be {_allowed(Settings.model_fields[name])}."


def _listed(text: str) -> list[dict[str, Any]]:
    """The entries of a list in YAML or JSON, or of a file with one."""
    try:
        listed = yaml.safe_load(text if text.lstrip()[:1] in "[-{" else Path(text).expanduser().read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise WrongSettingsError(f"COFT_SERVED names a file that cannot be read ({text[:SHOWN]!r}: {error}).") from None
    except yaml.YAMLError as error:
        raise WrongSettingsError(f"COFT_SERVED is neither YAML nor JSON: {' '.join(str(error).split())}.") from None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise WrongSettingsError("COFT_SERVED must be a list of models, each with name, url, kind and tokenizer.")
    return [{str(name): value for name, value in each.items()} for each in listed]


def _of_served(place: int, wrong: Any) -> str:
    """What is wrong with an entry of ``COFT_SERVED``."""
    where = f"Model {place} of COFT_SERVED"
    name = str(wrong["loc"][0])
    if wrong["type"] == "missing":
        return f"{where} has no {name}; give it one."
    if wrong["type"] == "extra_forbidden":
        return f"{where} has {name!r}, which is not a setting; it may have {', '.join(ServedModel.model_fields)}."
    # The value is not repeated: a key may have been put in the wrong place.
    return f"The {name} of model {place} of COFT_SERVED is wrong; it must be {SERVED_VALUES.get(name, 'a text')}."


def _allowed(field: FieldInfo) -> str:
    """The values of a setting, in words."""
    if field.description:
        return field.description
    if field.annotation is bool:
        return "true or false"
    if names := get_args(field.annotation):
        return f"{', '.join(names[:-1])} or {names[-1]}"
    kind = "a whole number" if field.annotation is int else "a number"
    least = next(mark.ge for mark in field.metadata if isinstance(mark, Ge))
    most = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    return f"{kind} of at least {least}" if most is None else f"{kind} from {least} to {most}"
