"""What the audit page asks of the services for the tree of branches."""

from __future__ import annotations

import gradio as gr

from app.bootstrap import Services
from app.ui.components.branch_tree import branch_link
from app.ui.errors import shown
from app.ui.events import On, reply, wire
from app.ui.pages.audit.common import MULTIPLE
from app.ui.presenters_session import Message, tree_message
from app.ui.presenters_tree import beside_message, prune_message


class BranchHandlers:
    """Every method builds one request and calls one service; the tree is read anew afterwards."""

    def __init__(self, services: Services) -> None:
        """Keep the services."""
        self._audits = services.audits
        self._library = services.library

    @shown
    def tree(self, event: gr.EventData) -> Message:
        """Read the tree again, as seen from the shown branch."""
        return self._tree(event)

    @shown
    def rename(self, event: gr.EventData) -> Message:
        """Give a branch another name."""
        self._library.rename_branch(event.session, event.branch, str(event.name))
        return self._tree(event, said="Renamed.")

    @shown
    def ponder(self, event: gr.EventData) -> Message:
        """Say what pruning a branch would take along, or why it cannot be pruned."""
        return reply(event, prune_message(event.branch, self._library.prune_preview(event.session, event.branch)))

    @shown
    def prune(self, event: gr.EventData) -> Message:
        """Delete a branch and all that depart from it."""
        view = self._library.prune(event.session, event.branch)
        there = any(branch.id == event.shown for branch in view.branches)
        seen = self._audits.view(event.session, event.shown) if there else view
        return reply(event, {**tree_message(seen), "said": "Pruned."})

    @shown
    def beside(self, event: gr.EventData) -> Message:
        """Put two chains of the session beside each other, from where they part."""
        left, right = (self._audits.view(event.session, branch) for branch in event.pair)
        return reply(event, beside_message(left, right))

    def _tree(self, event: gr.EventData, said: str = "") -> Message:
        return reply(event, {**tree_message(self._audits.view(event.session, event.shown)), "said": said})


def branches_of(services: Services) -> None:
    """Place the link between the tree in the transcript and its handlers."""
    handlers = BranchHandlers(services)
    link = branch_link()
    answers = (handlers.tree, handlers.rename, handlers.ponder, handlers.prune, handlers.beside)
    wire(link, {answer.__name__: On(answer, link) for answer in answers}, MULTIPLE)
