"""What the API's page asks by curl is answered as it stands there, from top to bottom."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_runs import Plant
from api_runs import drive

from trimtab.api.client import Client

PAGE = Path(__file__).resolve().parents[3] / "docs/api.md"


def curls() -> Iterator[list[str]]:
    """The words of each request on the page; the one that never ends has a test of its own."""
    for block in PAGE.read_text().split("```sh\n")[1:]:
        for line in block.partition("```")[0].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["curl"] and "-N" not in words:
                yield words


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_every_request_of_the_page_is_answered(client: Client, url: str) -> None:
    client.register("my-run", mode="approve")
    drive(client, Plant(seed=0, noisy_from=0, job="my-run"), 12)
    asked = 0
    for words in curls():
        words = [word.replace("http://127.0.0.1:8787", url) for word in words]
        done = subprocess.run(
            [*words, "--silent", "--show-error", "--fail-with-body"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, shlex.join(words) + done.stdout
        asked += 1
    assert asked > 20
