"""The adapters' page: ``bench.adapters`` runs every block of it, and its lines of pip install what they need."""

import ast
import re
import shlex
import tomllib

from bench.adapters import PAGE, PIP, ROOT, SECTIONS, adapted, blocks, commands, installs

FOUND = list(blocks(PAGE.read_text("utf-8")))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PROGRAMS = {"lm-eval": "lm-eval", "inspect": "inspect-ai", "coft_core.adapters.lm_eval_command": "lm-eval"}
"""Packages that bring a command or need one."""
OWN = {"coft_core", "app"}


def names(requirements):
    return {re.match(r"[A-Za-z0-9_-]+", line)[0].lower().replace("_", "-") for line in requirements}


def packages(words):
    """What a line of pip installs directly: a package, or this program with extras."""
    found = set()
    for word in shlex.split(words):
        if word.startswith("."):
            extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
            assert extras, word
            found |= names(PROJECT["dependencies"])
            for extra in filter(None, (extras[1] or "").split(",")):
                found |= names(PROJECT["optional-dependencies"][extra])
        else:
            found |= names([word])
    return found


def needed(block):
    """Packages that a block names: what its Python imports, or whose command its lines run."""
    if block.language == "python":
        tree = ast.parse(block.text)
        modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return {module.split(".")[0].replace("_", "-") for module in modules} - {name.replace("_", "-") for name in OWN}
    words = {word for line in commands(block) if not line.startswith(PIP) for word in line.split()[:3]}
    return {package for program, package in PROGRAMS.items() if program in words} if not block.language else set()


def test_every_block_of_the_adapters_page_is_run_by_the_script_and_every_section_has_one():
    assert {block.heading for block in FOUND} == SECTIONS.keys()
    lines = [line for block in FOUND if not block.language for line in commands(block)]
    assert [line for line in lines if "Qwen" in adapted(line) or "/srv" in adapted(line)] == []
    assert {line.split()[0] for line in lines} == {"pip", "python", "COFT_MODEL=Qwen/Qwen3-0.6B", "lm-eval", "inspect"}


def test_the_lines_of_pip_of_each_section_install_every_package_that_its_blocks_import_or_run():
    missing = {}
    for heading in SECTIONS:
        section = [block for block in FOUND if block.heading == heading]
        there = names(PROJECT["dependencies"]).union(*map(packages, installs(section)))
        wanted = set().union(*map(needed, section))
        if wanted - there:
            missing[heading] = wanted - there
    assert missing == {}
    assert set().union(*map(needed, FOUND)) >= {"openai", "lm-eval", "inspect-ai", "transformers"}


def test_every_line_of_pip_on_the_page_and_in_the_readme_names_extras_that_there_are():
    text = PAGE.read_text("utf-8") + (ROOT / "README.md").read_text("utf-8")
    named = {extra for part in re.findall(r'pip install "?\.\[([\w,]+)\]', text) for extra in part.split(",")}
    assert {"evaluation", "postgresql"} <= named <= set(PROJECT["optional-dependencies"])
