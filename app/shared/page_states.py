"""What the server keeps of each page that somebody has opened: little, and of so many pages at most.

Gradio keeps a copy of the configuration of every component of all pages for each of them, from which its deep links
rebuild a page. The program has no such links: its addresses name what is shown. Without the copy an opened page takes a
thirtieth of the memory, and its first event does not wait for a thousand components to be described.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from gradio import Blocks
from gradio.state_holder import SessionState, StateHolder

MOST_PAGES = 500
"""Opened pages whose state is kept; of more, the one unused for longest begins anew when it asks again."""


class PageState(SessionState):
    """What an opened page has changed: values of ``gr.State``, and components that events have given other options."""

    def __init__(self, blocks: Blocks) -> None:
        """Begin with the page as it is built."""
        # The configurations of no component are described.
        super().__init__(cast(Blocks, SimpleNamespace(default_config=blocks.default_config, blocks={})))

    def _update_config(self, key: int) -> None:
        """Keep no description of a component that an event has changed."""

    def _update_value_in_config(self, key: int, value: Any) -> None:
        """Keep no value that an event has shown."""


class PageStates(StateHolder):
    """The states of opened pages, by the number that each of them asks with."""

    def __init__(self, blocks: Blocks, most: int = MOST_PAGES) -> None:
        """Hold the states of an application's pages; it asks them from then on."""
        super().__init__()
        self.set_blocks(blocks)
        self.capacity = most

    def __getitem__(self, session_id: str) -> SessionState:
        """The state of a page, which is made when it first asks."""
        if session_id not in self.session_data:
            self.session_data[session_id] = PageState(self.blocks)
        return super().__getitem__(session_id)
