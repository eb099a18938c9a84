"""The command ``lists``: word lists are added, shown and removed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from app.bootstrap import services
from app.settings import Settings
from app.shared.files import write_text
from app.shared.json import user_list_json, user_list_summary_json
from app.shared.terminal import print_user_list, print_user_lists
from coft_core.types import FAMILIES


def add_lists(commands: Any) -> None:
    """Add the command with its own commands ``add``, ``show`` and ``remove``."""
    parser = commands.add_parser("lists", help="add, show or remove word lists")
    own = parser.add_subparsers(required=True, metavar="ACTION")
    add = own.add_parser("add", help="store a CSV (term, family, action) or TXT (one term a line) as a word list")
    add.add_argument("file", type=Path)
    add.add_argument("--name", help="name of the list (default: the file's)")
    add.add_argument(
        "--action", choices=("mask", "keep"), default="mask", help="for terms that name none (default: mask)"
    )
    add.add_argument(
        "--family", choices=(*FAMILIES, "other"), default="other", help="for terms that name none (default: other)"
    )
    add.add_argument("--replace", action="store_true", help="replace the list of this name")
    add.add_argument("--json", action="store_true", help="print JSON")
    add.set_defaults(run=_add)
    show = own.add_parser("show", help="show a word list, or all of them without their terms")
    show.add_argument("name", nargs="?", help="name of the list")
    show.add_argument("--out", type=Path, help="write the list as CSV to this file")
    show.add_argument("--json", action="store_true", help="print JSON")
    show.set_defaults(run=_show)
    remove = own.add_parser("remove", help="remove a word list that no calibration uses")
    remove.add_argument("name", help="name of the list")
    remove.set_defaults(run=_remove)


def _add(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        parsed = wired.user_lists.parse(options.file, action=options.action, family=options.family)
        for error in parsed.errors:
            print(f"line {error.line}: {error.column} {error.message}", file=sys.stderr)
        view = wired.user_lists.add(options.name or options.file.stem, parsed, options.replace)
        if options.json:
            _json(user_list_json(view))
        else:
            print_user_list(view)


def _show(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        if options.name is None:
            found = wired.user_lists.list()
            if options.json:
                _json([user_list_summary_json(item) for item in found])
            else:
                print_user_lists(found)
            return
        view = wired.user_lists.named(options.name)
        if options.out:
            write_text(options.out, wired.user_lists.csv(view.summary.id))
        if options.json:
            _json(user_list_json(view))
        else:
            print_user_list(view)


def _remove(options: argparse.Namespace) -> None:
    with services(Settings()) as wired:
        view = wired.user_lists.named(options.name)
        wired.user_lists.delete(view.summary.id)
        print(f"Word list “{view.summary.name}” removed.")


def _json(data: Any) -> None:
    print(json.dumps(data, ensure_ascii=False, allow_nan=False))
