"""What `trimtab serve` writes to its log holds no secrets."""

import sqlite3
import subprocess
from pathlib import Path

import httpx
from api_runs import serving

from trimtab.api.service import Service

SECRET = "S3cret" * 7 + "x"
TOKEN = f"ttb_Ab12Cd34_{SECRET}"
"""A token that somebody has made the name of a job by mistake."""


def test_the_log_of_a_served_agent_holds_no_secrets(db: Path) -> None:
    service = Service.open(db)
    service.register(TOKEN, config=None, mode=None, issuer="test", reason="test")
    service.close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE jobs SET config = 'nonsense'")
    with serving(db, stderr=subprocess.PIPE) as (process, url):
        response = httpx.get(f"{url}/v1/jobs/{TOKEN}/controls", trust_env=False, timeout=30)
        process.terminate()
        _, logged = process.communicate(timeout=60)
    assert response.status_code == 503
    assert SECRET not in response.text
    assert "ttb_Ab12Cd34_***" in logged
    assert SECRET not in logged
