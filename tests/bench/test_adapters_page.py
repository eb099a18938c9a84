"""The adapters' page: every block that it shows is one that ``bench.adapters`` runs."""

from bench.adapters import PAGE, SECTIONS, adapted, blocks, commands


def test_every_block_of_the_adapters_page_is_run_by_the_script_and_every_section_has_one():
    found = list(blocks(PAGE.read_text("utf-8")))
    assert {block.heading for block in found} == SECTIONS.keys()
    lines = [line for block in found if not block.language for line in commands(block)]
    assert [line for line in lines if "Qwen" in adapted(line) or "/srv" in adapted(line)] == []
    assert {line.split()[0] for line in lines} == {"pip", "python", "COFT_MODEL=Qwen/Qwen3-0.6B", "lm-eval", "inspect"}
