"""A path or a number that cannot be used ends a command in one sentence."""

PATHS = ("folder.csv", f"{'l' * 5000}.csv", "file.csv/inside.csv", "~nobody-of-this-name/x.csv")
ALLOWED = {
    ("evaluations suites --data", "folder.csv"), ("data fetch phantom_gaps --data", "folder.csv"),
    ("data fetch phantom_gaps --data", "~nobody-of-this-name/x.csv"), ("trail export", "~nobody-of-this-name/x.csv"),
}  # fmt: skip
"""A folder is what that command asks for, and a folder may have such a name."""
COMMANDS = (
    "trail export", "lists add", "verify", "import", "batch run --prompts", "calibrate --prompts",
    "tune --policies coft --prompts", "compare-set run --policy coft --prompts", "audit --messages",
    "evaluations suites --data", "data fetch phantom_gaps --data", "evaluate --experiment",
)  # fmt: skip


def test_a_path_that_cannot_be_used_ends_every_command_in_one_sentence(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file.csv").write_text("prompt\nHe said\n")
    for words in COMMANDS:
        for path in PATHS:
            if (words, path) in ALLOWED:
                continue
            code, _, said = command(*words.split(), path)
            assert (code, len(said.splitlines())) == (1, 1), (words, path, said)


def test_a_number_of_rows_below_one_is_a_usage_error(command):
    for words in ("sessions --limit", "trail list --newest"):
        for number in ("-1", "0", "x"):
            assert command(*words.split(), number)[0] == 2, (words, number)
        assert command(*words.split(), "1")[0] == 0, words
