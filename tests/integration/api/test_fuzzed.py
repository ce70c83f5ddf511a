"""Whatever is asked, the service answers as it says that it does.

Some hundred requests by default. `TRIMTAB_API_EXAMPLES=150 pytest tests/integration/api/test_fuzzed.py` makes so many
of each operation, and beside them every combination that schemathesis knows: more than ten thousand.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from populated import JOBS, populate

from trimtab.api.access.doorman import AccessSettings
from trimtab.api.access.limits import Limits, Rate
from trimtab.api.client import Client
from trimtab.api.routes.tokens import Issued
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.api.settings import Settings

EXAMPLES = int(os.environ.get("TRIMTAB_API_EXAMPLES", "0"))
SUPPORT = Path(__file__).resolve().parents[2] / "support"
CONFIG = """
# What is wrong with one summary of a batch is told in the answer's place for it.
[[operations]]
include-path = "/v1/summaries/batch"
checks.negative_data_rejection.enabled = false

# All of a query is text, and a name that is none of the parameters' is passed over.
[[operations]]
include-method = "GET"
checks.negative_data_rejection.enabled = false
"""
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"
UNLIMITED = Rate(per_second=1e6, burst=1e6)
ARGUMENTS = (
    *("--exclude-path", "/v1/stream"),  # never ends; see test_stream.py
    *("--exclude-path-regex", "/replay$"),  # a process for each; see test_replay.py
    # Settings and controls have bounds that depend on each other, which no schema can say.
    *("--exclude-checks", "positive_data_acceptance"),
    "--continue-on-failure",
    "--no-color",
)


def test_no_request_makes_the_service_fail_or_break_its_word(tmp_path: Path) -> None:
    service = Service.open(tmp_path / "agent.db")
    access = AccessSettings(limits=Limits(ingest=UNLIMITED, control=UNLIMITED, failures=UNLIMITED))
    with running(service, settings=Settings(access=access)) as url, Client(url) as client:
        populate(client)
        issued = client.create_token("fuzz", ["admin"])
        done = fuzzed(url, issued, tmp_path)
        assert done.returncode == 0, done.stdout[-20000:] + done.stderr
        cases = re.search(r"(\d+) generated", done.stdout)
        assert cases is not None
        assert int(cases[1]) >= (10_000 if EXAMPLES >= 150 else 200)
        with Client(url, issued.token) as admin:  # it goes on, and whoever asked was let in to the end
            assert {job.name for job in (*admin.jobs(), *admin.jobs(archived=True))} >= set(JOBS)
    service.close()


def fuzzed(url: str, issued: Issued, folder: Path) -> subprocess.CompletedProcess[str]:
    """What schemathesis finds."""
    phases = "examples,coverage,fuzzing" if EXAMPLES else "examples,fuzzing"
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-c", PROGRAM, "--config-file", str(config), "run", f"{url}/openapi.json"]
    command += ["--phases", phases, "-n", str(EXAMPLES or 5), "-H", f"Authorization: Bearer {issued.token}", *ARGUMENTS]
    environment = {
        **os.environ,
        "SCHEMATHESIS_HOOKS": "fuzz_hooks",
        "PYTHONPATH": str(SUPPORT),
        "TRIMTAB_FUZZ_TOKEN_ID": issued.about.id,
    }
    environment.pop("TRIMTAB_TOKEN", None)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
