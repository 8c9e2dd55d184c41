"""`python -m morag` is the command `morag`."""

from __future__ import annotations

import sys

from morag.cli.main import main

if __name__ == "__main__":  # False when a worker process imports this module.
    sys.exit(main())
