"""The command line: what each feature offers on a terminal, and the web server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from app.bootstrap import FEATURES, services
from app.shared.wiring import Services

NAME = "coft-audit"
SHOWN = 80
"""Characters of a path that are shown."""

Opened = Callable[..., AbstractContextManager[Services]]


def main(arguments: Sequence[str] | None = None, opened: Opened | None = None) -> int:
    """Run a command; without any, serve."""
    command = program(opened or opened_by_settings)
    words = (sys.argv[1:] if arguments is None else arguments) or ["serve"]
    try:
        asked = command.main(args=words, prog_name="python -m app", standalone_mode=False)
        return _run(asked) if callable(asked) else 0
    except TyperException as error:
        if context := getattr(error, "ctx", None):
            print(context.get_usage(), file=sys.stderr)
        print(f"{NAME}: {error.format_message().replace('Value error, ', '')}", file=sys.stderr)
        # For a pipeline 2 means that a claim is undecided.
        return 3 if words[:1] == ["check"] else 2


def opened_by_settings(workers: str | None = None, project: str | None = None) -> AbstractContextManager[Services]:
    """The services of the environment's settings, for the values of the options ``--workers`` and ``--project``."""
    from app.settings import Settings

    return services(Settings(**_given(ray_address=workers, project=project)))


def _given(**options: Any) -> dict[str, Any]:
    """Settings that options name."""
    return {name: value for name, value in options.items() if value is not None}


def _run(asked: Callable[[], int | None]) -> int:
    """Do what was asked, once its words are read; faults of the input become one sentence."""
    from app.shared.commands import STOPPED, Stopped
    from app.shared.errors import USER_ERRORS

    code: int = getattr(asked, "error_code", 1)
    try:
        return asked() or 0
    except USER_ERRORS as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return code
    except OSError as error:
        # A path that an option names: missing, too long, a folder in place of a file, or a full disk.
        named = "" if error.filename is None else f"{error.filename!s:.{SHOWN}} cannot be used: "
        print(f"{NAME}: {named}{error.strerror or error}; check the path.", file=sys.stderr)
        return code
    except Stopped as stopped:
        print(f"\n{NAME}: {stopped}", file=sys.stderr)
        return stopped.code
    except KeyboardInterrupt:
        print(f"{NAME}: stopped; everything shown so far is stored.", file=sys.stderr)
        return STOPPED


def program(opened: Opened) -> Any:
    """All commands; those of a feature are read when one of them is named."""

    class Program(TyperGroup):
        """The first words of all commands, with what they are for."""

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            """The command that the words name, with its options."""
            from app.shared.commands import commands_of

            name, command, rest = super().resolve_command(ctx, args)
            feature = next((feature for feature in reversed(FEATURES) if name in feature.commands), None)
            if name is not None and feature is not None:
                wanted = _given(workers=ctx.params.get("workers"), project=ctx.params.get("project"))
                command = commands_of(name, feature.operations, partial(opened, **wanted) if wanted else opened)
            return name, command, rest

    app = typer.Typer(cls=Program, help="Audit language models for bias, token by token.")
    app.callback()(_program)
    app.command("serve", help="start the web application")(_serve)
    for word, purpose in {word: purpose for feature in FEATURES for word, purpose in feature.commands.items()}.items():
        app.command(word, help=purpose)(lambda: None)
    return typer.main.get_command(app)


def _program(
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="ADDRESS",
            help="share long work out on a Ray cluster: ray://host:10001, host:6379, auto, or local (default: "
            "COFT_RAY_ADDRESS, or this process)",
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            "--project",
            metavar="NAME",
            help="the project of the store to work in (default: COFT_PROJECT, or the first one)",
        ),
    ] = None,
) -> None:
    """Audit language models for bias, token by token."""


def _serve(
    context: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", help="address to listen on (default: COFT_HOST or 127.0.0.1)")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="port to listen on (default: COFT_PORT or 7860)")] = None,
    mcp: Annotated[
        bool | None, typer.Option("--mcp", help="offer the endpoints to agents too, as an MCP server")
    ] = None,
    completions: Annotated[
        str | None,
        typer.Option("--completions", help="serve completions at /v1 by a policy, such as coft,lam=0.6"),
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="open the page in a browser")] = False,
) -> Callable[[], None]:
    def serving() -> None:
        from app.settings import Settings

        given = context.parent.params if context.parent else {}
        shared = {"ray_address": given.get("workers"), "project": given.get("project")}
        settings = Settings(**_given(host=host, port=port, mcp=mcp, completions=completions, **shared))
        from app.server import end_now, require_accounts_elsewhere, require_agents_package, require_free_port, serve

        if settings.mcp:
            require_agents_package()
        require_accounts_elsewhere(settings)
        require_free_port(settings)
        with services(settings, owns_store=True) as wired:
            if settings.accounts == "on":
                from app.accounts.service import require_accounts
                from db.accounts import AccountsRepository

                require_accounts(settings, wired[AccountsRepository])
            serve(wired, settings, open)
        end_now()

    return serving
