"""The settings of decoding, each declared once: its name, its default, its control and its option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import typer

Fold = Literal["", "strength", "sampling", "masking", "prompt", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is said of a setting beside its name, its type and its default."""

    label: str = ""
    # What its option says; one without is no option, or one that each command words itself.
    help: str = ""
    # The option, where it is called otherwise or takes a text, and what it takes.
    option: Any = None
    typed: Any = None
    # The part of the rail that holds it, and the component of Gradio there; empty where the rail places one of its own.
    fold: Fold = ""
    control: str = ""
    how: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""
    # Whether blanks around a text are part of it, every policy takes it, and a calibration depends on it.
    blanks: bool = False
    policy: bool = False
    calibrated: bool = True


def setting(default: Any, label: str = "", **said: Any) -> Any:
    """A field with what is said of it."""
    return field(default=default, metadata={"setting": Setting(label=label, **said)})


def slider(low: float, high: float, step: float, **how: Any) -> dict[str, Any]:
    """A setting between two numbers."""
    return {"control": "Slider", "how": {"minimum": low, "maximum": high, "step": step, "buttons": [], **how}}


def text(placeholder: str, most: int = 1) -> dict[str, Any]:
    """A setting that is typed, in so many lines at most."""
    return {"control": "Textbox", "how": {"placeholder": placeholder, "lines": 1, "max_lines": most}}


def menu(**choices: str) -> dict[str, Any]:
    """A setting with a few values, each with its name."""
    named = [(label, value) for value, label in choices.items()]
    return {"control": "Dropdown", "how": {"choices": named}, "typed": Literal[tuple(choices)]}  # pyrefly: ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingSettings:
    """How a prompt is decoded, as audits and calibrations share it; defaults are those of the embedded calibration."""

    model: str = setting("demo", "Model", help="'demo', a hub id, or a folder")
    lam: float = setting(
        0.6, "Lambda", help="fusion weight, 0 to 1", fold="strength", **slider(0, 1, 0.01, elem_classes=["ruled"]),
        hint="How much the masked view counts: 0 reads only your text, 1 only the masked one.",
    )  # fmt: skip
    alpha: float = setting(
        0.1, "Alpha", help="risk level", fold="strength", **slider(0.001, 0.3, 0.001),
        hint="How often the true next token may be missed: 0.10 keeps it 9 times in 10, averaged over the steps of a "
        "bin.",
    )  # fmt: skip
    temperature: float = setting(
        1.0, "Temperature", help="sampling temperature", fold="sampling", policy=True, **slider(0.1, 2, 0.05)
    )
    top_p: float = setting(
        0.9, "Top-p (1 is off)", help="nucleus mass; 1 is off", fold="sampling", policy=True, **slider(0.05, 1, 0.01)
    )
    top_k: int = setting(0, "Top-k (0 is off)", help="0 is off", fold="sampling", policy=True, **slider(0, 200, 1))
    max_new_tokens: int = setting(64, "Steps at most", fold="length", calibrated=False, **slider(1, 1024, 1))
    seed: int = setting(
        0, "Seed", help="seed of the draws", fold="length", calibrated=False, control="Number", how={"precision": 0},
        hint="The same seed draws the same tokens.",
    )  # fmt: skip
    user_list_id: int | None = setting(
        None, "Word list", help="word list whose terms win over what is detected", typed=str | None,
        option=typer.Option("--list", metavar="NAME"), fold="masking", control="Dropdown",
        hint='Your own terms win over what is detected. <a href="./lists">Manage word lists</a>',
    )  # fmt: skip
    masked_families: tuple[str, ...] | None = setting(
        None, "Families that are masked", typed=str | None, option=typer.Option("--mask-families", metavar="NAMES"),
        help="attribute families whose spans are masked, others being suggested: names separated by commas, "
        "'protected' (all but proxies, whose spans are masked only in texts that say no attribute outright) or 'all' "
        "(default: COFT_MASK_FAMILIES or 'protected')",
        fold="masking", control="CheckboxGroup", how={"elem_classes": ["families-masked"]},
        hint="Words of the others are suggested: shown, and not masked until you accept them. With the protected "
        "families only, what hints at an attribute is masked where the prompt says none outright.",
    )  # fmt: skip
    whitelist: tuple[str, ...] = setting(
        (), "Never masked", help="a term that is never masked; may be given several times", typed=list[str],
        option=typer.Option("--whitelist", metavar="TERM"), fold="masking", policy=True,
        **text("terms, separated by commas", 4),
    )  # fmt: skip
    mask_layout: str = setting(
        "joint", help="'joint' (one masked branch), 'factorized' (one for each attribute family), or one family that "
        "alone is masked", option=typer.Option("--mask", metavar="LAYOUT"),
    )  # fmt: skip
    mask_mode: str = setting(
        "hard", "In place of a word", help="sentinels, or a neutral hint", fold="masking", policy=True,
        **menu(hard="Hard: the sentinel", soft="Soft: a neutral hint"),
    )  # fmt: skip
    mask_hint: str | None = setting(
        None, "Hint", help="hint of the soft mask (default: 'a person')", policy=True, fold="masking",
        option=typer.Option("--mask-hint", metavar="TEXT"), **text("a person"),
    )  # fmt: skip
    sentinel: str | None = setting(
        None, "Sentinel", help="one token that stands for masked ones, by text or name; default: chosen and told",
        fold="masking", policy=True, **text("the model's own"),
        hint="One token that stands for every masked one, by its text or name; a hint is filled up with it.",
    )  # fmt: skip
    prompt_format: str = setting(
        "auto", "Prompt format", help="'chat' puts prompts into the model's chat template, 'plain' gives only the "
        "text, 'auto' takes the template where the model has one", fold="prompt",
        **menu(auto="As the model has it", chat="Chat template", plain="Plain text"),
    )  # fmt: skip
    chat_date: str | None = setting(
        None, "Day that the template prints", option=typer.Option("--chat-date", metavar="DAY"), fold="prompt",
        help="day as of which a chat template that prints the date is rendered, such as 2026-11-21 (default: today)",
        **text("today"),
        hint="A chat template may print the date; a calibration then holds for prompts of its own day, such as "
        "2026-11-21.",
    )  # fmt: skip
    system_prompt: str | None = setting(
        None, "System prompt", help="system prompt that is put before every prompt without one of its own",
        option=typer.Option("--system", metavar="TEXT"), fold="prompt", **text("none", 6),
        hint="Comes before every prompt that has none of its own; its sensitive words are found and masked like "
        "others.",
    )  # fmt: skip
    thinking: Literal["auto", "on", "off"] = setting(
        "auto", "Thinking", help="whether the model is asked to think before it answers: 'auto' as its chat template "
        "has it, 'on', 'off'", fold="prompt", **menu(auto="As the chat template has it", on="On", off="Off"),
        hint="Whether the model is asked to think before it answers, where its chat template asks for it.",
    )  # fmt: skip
    prefill: str | None = setting(
        None, "The answer begins with", help="what the answer begins with", blanks=True, fold="prompt",
        option=typer.Option("--prefill", metavar="TEXT"), **text("nothing", 4),
        hint="The model goes on behind these words, which are part of the prompt.",
    )  # fmt: skip


def settings_of(record: Any) -> dict[str, Setting]:
    """What is said of the settings of a record, by name and in their order."""
    return {item.name: item.metadata["setting"] for item in fields(record) if "setting" in item.metadata}


DECODING = settings_of(DecodingSettings)
FRAMED = tuple(name for name, said in DECODING.items() if said.fold == "prompt")
"""How prompts are put before the model."""
SAMPLED = tuple(name for name, said in DECODING.items() if said.fold == "sampling")
OF_POLICIES = tuple(name for name, said in DECODING.items() if said.policy)
