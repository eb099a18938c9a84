"""The page of accounts, for admins only: which accounts and projects there are, and the trail of who did what."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from app.accounts.disk import AccountDisk, DiskService, amount, disk_sentence, parts_words
from app.accounts.operations import check_trail, write_trail
from app.accounts.passwords import ONE_TIME, OneTimePassword
from app.accounts.permissions import MAY
from app.accounts.projects import ProjectService, ProjectView, extent_words
from app.accounts.service import AccountService
from app.shared.components import listing, markup
from app.shared.errors import ServiceError
from app.shared.events import EVENT, MULTIPLE, downloaded, shown, shown_to
from app.shared.markup import html, laid_out
from app.shared.needs import ADMIN
from app.shared.web import topbar
from app.shared.wiring import Services
from db.accounts import ROLES, AccountRecord
from db.projects import DEFAULT_NAME
from db.scope import DEFAULT
from db.trail import TrailRepository

NEWEST = 50


class AccountHandlers:
    """What the page asks of the services; most of it answers with the whole page, as it is then."""

    def __init__(self, services: Services) -> None:
        """Keep the services, and a folder for downloads that lives as long as the page."""
        self._accounts, self._projects = services[AccountService], services[ProjectService]
        self._trail, self._disk = services[TrailRepository], services[DiskService]
        self._folder = tempfile.TemporaryDirectory(prefix="coft-trail-")

    @shown
    def opened(self) -> list[Any]:
        """The first account and the first project."""
        return self._view(None, None)

    @shown
    def show(self, event: gr.EventData, project_id: int | None) -> list[Any]:
        """Show another account."""
        return self._view(int(event.id), project_id)

    @shown
    def invite(self, name: str, role: str, project: str, project_id: int | None) -> list[Any]:
        """Add an account, and show its password for one sign-in."""
        made = self._accounts.invite(name, role, project or "")
        return self._view(made.account.id, project_id, _one_time(made))

    @shown
    def change_role(self, role: str, account_id: int | None, project_id: int | None) -> list[Any]:
        """Give the shown account another role."""
        changed = self._accounts.change_role(self._account(account_id).name, role)
        return self._view(changed.id, project_id, _said(f"{changed.name} now has the role {role}."))

    @shown
    def reset(self, event: gr.EventData, project_id: int | None) -> list[Any]:
        """Give an account a password for one sign-in."""
        made = self._accounts.reset_password(self._account(int(event.id)).name)
        return self._view(made.account.id, project_id, _one_time(made))

    @shown
    def disable(self, event: gr.EventData, project_id: int | None) -> list[Any]:
        """Disable an account."""
        account = self._accounts.disable(self._account(int(event.id)).name)
        return self._view(account.id, project_id, _said(f"{account.name} is disabled."))

    @shown
    def enable(self, event: gr.EventData, project_id: int | None) -> list[Any]:
        """Enable an account again."""
        account = self._accounts.disable(self._account(int(event.id)).name, disabled=False)
        return self._view(account.id, project_id, _said(f"{account.name} is enabled again."))

    @shown
    def revoke(self, event: gr.EventData, account_id: int | None, project_id: int | None) -> list[Any]:
        """Revoke one token of the shown account."""
        account = self._account(account_id)
        self._accounts.revoke_token(account.name, int(event.id))
        return self._view(account.id, project_id, _said("The token is revoked."))

    @shown
    def revoke_all(self, event: gr.EventData, project_id: int | None) -> list[Any]:
        """Revoke all tokens of an account."""
        account = self._account(int(event.id))
        self._accounts.revoke_tokens(account.name)
        return self._view(account.id, project_id, _said(f"All tokens of {account.name} are revoked."))

    @shown
    def show_project(self, event: gr.EventData, account_id: int | None) -> list[Any]:
        """Show another project."""
        return self._view(account_id, int(event.id), said=None)

    @shown
    def add_project(self, name: str, account_id: int | None) -> list[Any]:
        """Make a project."""
        made = self._projects.add(name).record
        sentence = f"{made.name} is added; choose it in the menu of your account to see it."
        return self._view(account_id, made.id, said=None, project_said=_said(sentence))

    @shown
    def rename(self, name: str, account_id: int | None, project_id: int | None) -> list[Any]:
        """Give the shown project another name."""
        renamed = self._projects.rename(self._project(project_id), name).record
        return self._view(account_id, renamed.id, said=None, project_said=_said(f"It is now called {renamed.name}."))

    @shown
    def delete_project(self, repeated: str, account_id: int | None, project_id: int | None) -> list[Any]:
        """Delete the shown project, whose name was typed again."""
        sentence = self._projects.delete(self._project(project_id), repeated)
        return self._view(account_id, None, said=None, project_said=_said(sentence))

    @shown
    def join(self, name: str | None, account_id: int | None, project_id: int | None) -> list[Any]:
        """Let an account see the shown project."""
        if not name:
            raise ServiceError("Choose an account first.")
        project = self._projects.add_member(self._project(project_id), name).record
        sentence = f"{name} is now a member of {project.name}."
        return self._view(account_id, project.id, said=None, project_said=_said(sentence))

    @shown
    def leave(self, event: gr.EventData, account_id: int | None, project_id: int | None) -> list[Any]:
        """Remove an account from the shown project."""
        account = self._account(int(event.id))
        project = self._projects.remove_member(self._project(project_id), account.name).record
        sentence = f"{account.name} is no longer a member of {project.name}."
        return self._view(account_id, project.id, said=None, project_said=_said(sentence))

    @shown_to(ADMIN)
    def check(self) -> str:
        """Whether the trail is as it was written."""
        check = check_trail(self._trail.list())
        head = f" Digest of the newest entry: {check.head}" if check.head else ""
        return _said(f"{check.sentence}{head}")

    @shown_to(ADMIN)
    def export_csv(self) -> str:
        """Write the trail for a spreadsheet."""
        return str(write_trail(self._trail.list(), Path(self._folder.name) / "coft-audit-trail.csv"))

    @shown_to(ADMIN)
    def export_json(self) -> str:
        """Write the trail for programs."""
        return str(write_trail(self._trail.list(), Path(self._folder.name) / "coft-audit-trail.json"))

    def _account(self, account_id: int | None) -> AccountRecord:
        return next(account for account in self._accounts.list() if account.id == account_id)

    def _project(self, project_id: int | None) -> str:
        return next(view.record.name for view in self._projects.list() if view.record.id == project_id)

    def _view(
        self, account_id: int | None, project_id: int | None, said: str | None = "", project_said: str | None = ""
    ) -> list[Any]:
        """The whole page; None leaves what is said of accounts, such as a password that is shown once, as it is."""
        use, projects = self._disk.use(), self._projects.list()
        disk = next((one for one in use.accounts if one.account.id == account_id), use.accounts[0])
        project = next((one for one in projects if one.record.id == project_id), projects[0])
        within = {member.id for member in project.members}
        others = [one.account.name for one in use.accounts if one.account.id not in within]
        entries = self._trail.list(newest=NEWEST)
        listed = laid_out(
            "accounts/listed_accounts.html", use=use, shown=disk.account.id, amount=amount, said=disk_sentence(use)
        )
        return [
            disk.account.id,
            project.record.id,
            listed,
            self._shown_account(disk, use.account_limit, projects),
            gr.Dropdown(value=disk.account.role),
            gr.skip() if said is None else said,
            gr.Dropdown(choices=[view.record.name for view in projects]),
            laid_out("accounts/listed_projects.html", projects=projects, shown=project.record.id),
            laid_out("accounts/project.html", project=project, deletion=self._deletion_of(project)),
            gr.Dropdown(choices=others, value=None, interactive=bool(others)),
            gr.Button(interactive=bool(others)),
            gr.update(visible=project.record.id != DEFAULT),
            gr.skip() if project_said is None else project_said,
            laid_out("accounts/trail.html", entries=entries, total=entries[-1].entry if entries else 0),
        ]

    def _shown_account(self, disk: AccountDisk, limit: int, projects: Sequence[ProjectView]) -> Markup:
        """One account: how it signs in, what it sees, its tokens, and what can be done with it."""
        account = disk.account
        allowed = f" of {limit / 1e6:,.0f} MB that it may have" if limit else ""
        is_full = 0 < limit <= disk.total
        full = "; it uploads, audits and runs nothing new until some of it is deleted" if is_full else ""
        return laid_out(
            "accounts/account.html",
            account=account,
            taken=f"{amount(disk.total)}{allowed}{': ' if disk.parts else ''}{parts_words(disk.parts)}{full}",
            tokens=self._accounts.tokens(account.name),
            projects=self._projects.of(account),
            names={view.record.id: view.record.name for view in projects},
            may=MAY[account.role],
        )

    def _deletion_of(self, project: ProjectView) -> str:
        """What goes with a project, before anybody deletes it."""
        if project.record.id == DEFAULT:
            return "It cannot be deleted: what names no project belongs to it."
        extent = self._projects.extent(project.record.name)
        if not extent.rows:
            return "It is empty, and is deleted at once."
        return f"To delete it is to delete {extent_words(extent)}, for good. Type its name below first."


def _one_time(made: OneTimePassword) -> str:
    """A password that is shown this once."""
    return str(laid_out("accounts/one_time.html", name=made.account.name, password=made.password, days=ONE_TIME.days))


def _said(sentence: str) -> str:
    """What was just done."""
    return str(html('<p class="hint" role="status">{{ sentence }}</p>', sentence=sentence))


def build_page(app: gr.Blocks, services: Services) -> None:
    """Build the page."""
    if not any(page.for_admins for page in services.pages):
        return
    handlers = AccountHandlers(services)
    topbar(services, "accounts")
    account_id, project_id = gr.State(None), gr.State(None)
    with gr.Column(elem_classes=["page"], elem_id="main"):
        markup(
            '<div class="pagehead"><h1>Accounts</h1><p class="sub">Who may use this server, what they may do, and '
            "which projects they see. What you do here is recorded in the log below.</p></div>"
        )
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                listed = _group("Accounts", "accounts", "show")
                name, role, project, invite = _new_account()
            with gr.Column(elem_classes=["stack"], min_width=0):
                said = markup("", "account-said")
                with gr.Column(elem_classes=["group"]):
                    detail = listing("account", "reset", "disable", "enable", "revoke", "delete")
                    with gr.Row(elem_classes=["asked"]):
                        own_role = gr.Dropdown([*ROLES], label="Role", min_width=0, elem_id="own-role")
                        change = gr.Button("Change role", elem_id="change-role")
        with gr.Row(elem_classes=["calib"]):
            with gr.Column(elem_classes=["stack"], min_width=0):
                projects = _group("Projects", "projects", "show")
                project_name, add = _new_project()
            with gr.Column(elem_classes=["stack"], min_width=0):
                project_said = markup("", "project-said")
                members, member, join, new_name, rename, deletion, repeated, remove = _shown_project()
        checked, trail, buttons, files = _trail()
    view = [
        account_id, project_id, listed, detail, own_role, said, project, projects, members, member, join, deletion,
        project_said, trail,
    ]  # fmt: skip
    both = [account_id, project_id]
    app.load(handlers.opened, None, view, **EVENT)
    listed.show(handlers.show, project_id, view, **MULTIPLE)
    for event in ("reset", "disable", "enable"):
        getattr(detail, event)(getattr(handlers, event), project_id, view, **MULTIPLE)
    detail.delete(handlers.revoke_all, project_id, view, **MULTIPLE)
    detail.revoke(handlers.revoke, both, view, **MULTIPLE)
    invite.click(handlers.invite, [name, role, project, project_id], view, **EVENT).success(
        lambda: "", None, name, **EVENT
    )
    change.click(handlers.change_role, [own_role, *both], view, **EVENT)
    projects.show(handlers.show_project, account_id, view, **MULTIPLE)
    members.leave(handlers.leave, both, view, **MULTIPLE)
    add.click(handlers.add_project, [project_name, account_id], view, **EVENT).success(
        lambda: "", None, project_name, **EVENT
    )
    join.click(handlers.join, [member, *both], view, **EVENT)
    rename.click(handlers.rename, [new_name, *both], view, **EVENT).success(lambda: "", None, new_name, **EVENT)
    remove.click(handlers.delete_project, [repeated, *both], view, **EVENT).success(lambda: "", None, repeated, **EVENT)
    buttons[0].click(handlers.check, None, checked, **EVENT)
    for button, handler, file in zip(buttons[1:], (handlers.export_csv, handlers.export_json), files, strict=True):
        downloaded(button.click(handler, None, file, **EVENT), str(file.elem_id))


def _group(title: str, name: str, *events: str) -> gr.HTML:
    with gr.Column(elem_classes=["group"]):
        markup(f'<div class="bar"><h2>{title}</h2></div>')
        return listing(name, *events)


def _new_account() -> tuple[gr.Textbox, gr.Dropdown, gr.Dropdown, gr.Button]:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>New account</h2></div>')
        name = gr.Textbox(label="Name", max_lines=1, elem_id="account-new")
        with gr.Row(elem_classes=["twin"]):
            role = gr.Dropdown([*ROLES], value="reviewer", label="Role", min_width=0)
            project = gr.Dropdown([DEFAULT_NAME], value=DEFAULT_NAME, label="Member of", min_width=0)
        markup(
            '<p class="hint">It signs verdicts with its name, which never changes. You get a password for its first '
            "sign-in.</p>"
        )
        with gr.Row(elem_classes=["go"]):
            invite = gr.Button("Add account", variant="primary", elem_id="invite")
    return name, role, project, invite


def _new_project() -> tuple[gr.Textbox, gr.Button]:
    with gr.Column(elem_classes=["group"]):
        markup('<div class="bar"><h2>New project</h2></div>')
        name = gr.Textbox(label="Name", max_lines=1, elem_id="project-new")
        with gr.Row(elem_classes=["go"]):
            add = gr.Button("Add project", variant="primary", elem_id="add-project")
    return name, add


def _shown_project() -> tuple[gr.HTML, gr.Dropdown, gr.Button, gr.Textbox, gr.Button, gr.Row, gr.Textbox, gr.Button]:
    with gr.Column(elem_classes=["group"]):
        members = listing("members", "leave")
        with gr.Row(elem_classes=["asked"]):
            member = gr.Dropdown([], label="Account", min_width=0, elem_id="member")
            join = gr.Button("Add member", elem_id="join")
        with gr.Row(elem_classes=["asked"]):
            name = gr.Textbox(label="Another name", max_lines=1, min_width=0, elem_id="project-name")
            rename = gr.Button("Rename", elem_id="rename-project")
        with gr.Row(elem_classes=["asked"]) as deletion:
            repeated = gr.Textbox(label="Its name, to delete it", max_lines=1, min_width=0, elem_id="project-repeated")
            remove = gr.Button("Delete project", elem_id="delete-project")
    return members, member, join, name, rename, deletion, repeated, remove


def _trail() -> tuple[gr.HTML, gr.HTML, Sequence[gr.Button], Sequence[gr.DownloadButton]]:
    with gr.Column(elem_classes=["group"]):
        markup(
            '<div class="bar"><h2>Audit trail</h2><span class="hint">each entry chained to the one before</span></div>'
        )
        with gr.Row(elem_classes=["go"]):
            buttons = [
                gr.Button(text, size="sm", elem_id=f"trail-{name}")
                for text, name in (("Check it", "check"), ("Download CSV", "csv"), ("Download JSON", "json"))
            ]
        checked = markup("", "trail-checked")
        trail = markup("", "trail")
    files = [
        gr.DownloadButton("Trail", elem_id=f"trail-file-{ending}", elem_classes=["offscreen"])
        for ending in ("csv", "json")
    ]
    return checked, trail, buttons, files
