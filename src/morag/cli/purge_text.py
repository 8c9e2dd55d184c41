"""The report of a purge, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.versions.maintenance.purge_report import REASONS

if TYPE_CHECKING:
    from morag.versions.maintenance.purge_report import PurgeReport


def report_text(report: PurgeReport) -> str:
    lines = ["would be removed:" if report.dry_run else "removed:"]
    lines += [f"  {each.kind:16}{_size(each.rows, each.size_bytes)}" for each in report.removed]
    lines.append(f"  {'in all':16}{_size(report.removed_rows, report.removed_bytes)}")
    lines.append("stays:" if report.stays else "nothing stays")
    for reason, meaning in REASONS.items():
        stays = [stay for stay in report.stays if stay.reason == reason]
        if stays:
            rows, size_bytes = sum(s.rows for s in stays), sum(s.size_bytes for s in stays)
            kinds = ", ".join(f"{stay.kind} {stay.rows:,}" for stay in stays)
            lines.append(f"  {reason:16}{_size(rows, size_bytes)}  {meaning}")
            lines.append(f"  {'':16}{kinds}")
    if report.put_back:
        lines.append(f"put back, because it became reachable: {report.put_back:,} objects")
    if report.dry_run and report.removed_rows:
        lines.append("dry run: nothing was removed; add --no-dry-run to remove it")
    return "\n".join(lines) + "\n"


def _size(rows: int, size_bytes: int) -> str:
    return f"{rows:>12,} objects {size_bytes:>16,} bytes"
