"""``python -m coft_core.adapters.lm_eval_command``: the command of lm-evaluation-harness with the model ``coft``.

Versions that find models of installed packages by themselves do not need it.
"""

from __future__ import annotations

from lm_eval.__main__ import cli_evaluate

import coft_core.adapters.lm_evaluation_harness  # noqa: F401  (registers the model)

if __name__ == "__main__":
    cli_evaluate()
