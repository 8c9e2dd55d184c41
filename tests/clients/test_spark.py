from __future__ import annotations
import json, uuid, sys
import pytest
from tests.clients.spark import session, Catalog
from tests.clients.spark_story import Story

pytestmark=pytest.mark.spark

def test_x(rest, tmp_path):
    cats=[Catalog(f"{b}_v{v}", rest.address, v, f"{b}_v{v}", tmp_path/f"w{v}") for v in (1,2) for b in ("main","dev")]
    out={}
    with session(cats, tmp_path) as spark:
        for v in (1,2):
            s=Story(spark, rest, f"main_v{v}", f"dev_v{v}")
            s.tell()
            out[v]=[s.said, s.held()]
    json.dump(out, open("/tmp/story.json","w"), indent=1)
