"""`make bench-spark`: measures Spark jobs, all of them or the parts named as arguments."""

from __future__ import annotations

import sys

from bench.spark import entries, fsck, gc, generator, transfer

PARTS = {
    "entries": entries.main,
    "fsck": fsck.main,
    "gc": gc.main,
    "generator": generator.main,
    "export": transfer.export_main,
    "import": transfer.import_main,
}

if __name__ == "__main__":
    requested = sys.argv[1:] or list(PARTS)
    unknown = set(requested) - PARTS.keys()
    if unknown:
        sys.exit(f"unknown part '{unknown.pop()}'; known: {', '.join(PARTS)}")
    sys.exit(max(PARTS[part]([]) for part in requested))
