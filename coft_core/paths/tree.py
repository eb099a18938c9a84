"""Paths of several worlds merged into one tree: a node is a beginning that at least one path has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TokenPath = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A beginning of paths."""

    parent: int
    depth: int
    token_id: int
    visits: tuple[int, ...]
    ends: tuple[int, ...]
    children: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PathTree:
    """The merged tree; nodes stand in preorder, so that a parent comes before its children and the root is number 0."""

    nodes: tuple[Node, ...]
    worlds: Sequence[Sequence[TokenPath]]

    @property
    def totals(self) -> tuple[int, ...]:
        """Paths of each world."""
        return self.nodes[0].visits

    def share(self, node: int, world: int) -> float:
        """Share of a world's paths that begin so; 0 in a world without paths."""
        return self.nodes[node].visits[world] / self.totals[world] if self.totals[world] else 0.0

    def beginning(self, node: int) -> TokenPath:
        """The tokens from the root to a node."""
        tokens: list[int] = []
        while node > 0:
            tokens.append(self.nodes[node].token_id)
            node = self.nodes[node].parent
        return tuple(reversed(tokens))

    def continuations(self, node: int, world: int) -> tuple[int, ...]:
        """How a world's paths go on behind a node: one count a child, and the paths that end there last."""
        item = self.nodes[node]
        return (*(self.nodes[child].visits[world] for child in item.children), item.ends[world])

    def ways(self, node: int, world: int) -> list[TokenPath | None]:
        """How each path of a world goes on behind a node: with a token or none; None where it does not begin so."""
        start, depth = self.beginning(node), self.nodes[node].depth
        return [path[depth : depth + 1] if path[:depth] == start else None for path in self.worlds[world]]


def merge_paths(worlds: Sequence[Sequence[TokenPath]]) -> PathTree:
    """Merge the paths of several worlds."""
    totals = [max(len(paths), 1) for paths in worlds]
    nodes: list[Node] = []

    def grow(parent: int, beginning: TokenPath, members: Sequence[Sequence[TokenPath]]) -> int:
        depth, number = len(beginning), len(nodes)
        ends = tuple(sum(len(path) == depth for path in paths) for paths in members)
        token = beginning[-1] if beginning else -1
        nodes.append(Node(parent, depth, token, tuple(map(len, members)), ends))
        following: dict[int, list[list[TokenPath]]] = {}
        for world, paths in enumerate(members):
            for path in paths:
                if len(path) > depth:
                    following.setdefault(path[depth], [[] for _ in members])[world].append(path)
        order = sorted(
            following,
            key=lambda token: (-sum(len(p) / t for p, t in zip(following[token], totals, strict=True)), token),
        )
        waiting.extend((number, (*beginning, token), following[token]) for token in reversed(order))
        return number

    # A stack of its own, because paths may be longer than Python lets functions call themselves.
    waiting: list[tuple[int, TokenPath, Sequence[Sequence[TokenPath]]]] = [(-1, (), worlds)]
    children: list[list[int]] = []
    while waiting:
        parent, beginning, members = waiting.pop()
        number = grow(parent, beginning, members)
        children.append([])
        if parent >= 0:
            children[parent].append(number)
    return PathTree(
        tuple(
            Node(node.parent, node.depth, node.token_id, node.visits, node.ends, tuple(below))
            for node, below in zip(nodes, children, strict=True)
        ),
        worlds,
    )
