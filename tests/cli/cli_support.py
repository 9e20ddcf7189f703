"""The small checkpoint that the command tests run on, and what a command answers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mta_viz.config import ModelConfig, MTAOptions

ROOT = Path(__file__).parents[2]

# Layer 0 mixes heads only, layer 1 has everything; the character tokenizer has 32 ids.
CONFIG = ModelConfig(
    d_model=16,
    n_layers=2,
    n_heads=4,
    n_kv_heads=2,
    d_head=4,
    d_mlp=32,
    vocab_size=32,
    n_ctx=16,
    mta=MTAOptions(
        pre_kernel=(2, 3), post_kernel=(3, 5), mta_layers=(1,), head_pre=True, head_post_group=2, gate="1d"
    ),
)


@dataclass(frozen=True)
class Answer:
    """Exit status and both streams of one command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def assert_refused(answer: Answer, *words: str) -> None:
    """Exit status 2, nothing on stdout, and an error on stderr that says `words`."""
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.splitlines()[0].startswith("error: ")
    assert answer.err.count("error: ") == 1 and "Traceback" not in answer.err
    assert [word for word in words if word not in answer.err] == []
