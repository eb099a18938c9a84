"""``python -m app``: the web server and everything that the pages do, from the command line."""

import sys

from app.cli import main

sys.exit(main())
