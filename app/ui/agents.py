"""The endpoints as tools of agents: a server of the Model Context Protocol (MCP) beside the pages."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import gradio as gr

from app.services.errors import ServiceError

PACKAGE = "mcp"


def require_agents_package() -> None:
    """Refuse before anything is opened.

    Raises:
        ServiceError: The package that speaks the protocol is not installed.
    """
    if importlib.util.find_spec(PACKAGE) is None:
        raise ServiceError(
            f"The MCP server needs the package {PACKAGE!r}, which is not installed; install it with "
            f"'pip install \"{PACKAGE}>=1.21,<2\"', or start without --mcp and COFT_MCP."
        )


def finish_agents(app: gr.Blocks) -> None:
    """After the launch: make the tools answer in JSON, like the endpoints; Gradio would print Python's values.

    Args:
        app: The launched application.

    Raises:
        ServiceError: Gradio could not start the server, which it says nowhere by itself.
    """
    server = app.mcp_server_obj
    if server is None:
        raise ServiceError(f"The MCP server could not be started ({app.mcp_error}); start without --mcp and COFT_MCP.")
    in_python = server.postprocess_output_data

    def in_json(data: Any, root_url: str) -> Any:
        return in_python([item if _is_file(item) else json.dumps(item) for item in data], root_url)

    server.postprocess_output_data = in_json  # type: ignore[method-assign]


def _is_file(item: Any) -> bool:
    """Gradio gives these an address of their own."""
    return isinstance(item, dict) and (item.get("meta") or {}).get("_type") == "gradio.FileData"
