"""A small checkpoint on disk, and a way to run commands in this process."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cli_support import CONFIG, Answer

from mta_viz.checkpoint.native import write_native
from mta_viz.cli import main
from mta_viz.model.transformer import HookedMTA


@pytest.fixture(scope="session")
def model() -> HookedMTA:
    """Random weights, kernels included, so that no stage equals another."""
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the model's own weights must not hang on which tests ran before
        model = HookedMTA(CONFIG).requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.3)
    return model


@pytest.fixture(scope="session")
def folder(model: HookedMTA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as a checkpoint with the character tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    write_native(folder, CONFIG, model.state_dict(), tokenizer_name="char", tokenizer_path=None, dtype=None)
    return folder


@pytest.fixture
def small(folder: Path, tmp_path: Path) -> Path:
    """A copy of the small checkpoint, with a card that says its sequences have 3 blocks."""
    copy = Path(shutil.copytree(folder, tmp_path / "small"))
    (copy / "card.json").write_text(json.dumps({"config": {"n_blocks": 3, "block_mixture": [3]}}))
    return copy


@pytest.fixture
def run(capsys: pytest.CaptureFixture) -> Callable[..., Answer]:
    """`run("info", path)`: a command in this process."""

    def run(*words: object) -> Answer:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as leaving:
            status = leaving.code
        streams = capsys.readouterr()
        return Answer(status, streams.out, streams.err)

    return run
