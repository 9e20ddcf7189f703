"""A prompt in a model's chat template, when asked: what stands beside its tokenizer, rendered within limits.

Owns where templates are found and what the model then sees; the rendering is a program of its own.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mta_viz.checkpoint import door
from mta_viz.errors import FileError, PromptError
from mta_viz.printed import printable
from mta_viz.tokenizers.base import Tokenizer, Tokens, check_characters, tokens_from_ids
from mta_viz.tokenizers.loading import settings_beside, token_text

KIND = "huggingface"  # of the tokenizers that read a template's special tokens
TEMPLATE = "chat_template.jinja"
_PROGRAM = Path(__file__).with_name("chat_rendering.py")
_SECONDS = 10.0  # on the clock, beside the program's own limit of processor time
_AS_IT_IS = "give the prompt as it is"
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def chat_prompt(tokenizer: Tokenizer, folder: Path, prompt: str) -> Tokens:
    """The prompt as a user's message in the template of the model in `folder`, up to where it answers.

    The ids are those that `transformers` gives; their text is what the model sees, but for a BOS that the
    tokenizer adds itself, and None where the template leaves that BOS out. Raises as `chat_text`.
    """
    text, ids = chat_text(tokenizer, folder, prompt)
    shown = tokenizer.encode(text)
    if shown.ids == ids:
        return shown
    return tokens_from_ids(ids, vocab_size=tokenizer.vocab_size, tokenizer=tokenizer)


def chat_text(tokenizer: Tokenizer, folder: Path, prompt: str) -> tuple[str, tuple[int, ...]]:
    """The same as a text to be typed, without a BOS that the tokenizer adds itself, and the ids it is for.

    Raises PromptError for a model without template, or one that cannot be rendered, TooLongError.
    """
    if tokenizer.kind != KIND:
        raise PromptError(
            "a chat template needs the tokenizer.json of a Hugging Face folder, or such a vocabulary in a "
            f"GGUF file; {_AS_IT_IS}"
        )
    check_characters(prompt)
    settings = settings_beside(folder)
    template = chat_template(folder, settings)
    if template is None:
        raise PromptError(
            f"the model has no chat template: neither {TEMPLATE} nor one in tokenizer_config.json or "
            f"in its GGUF file; {_AS_IT_IS}"
        )
    named = {name: token_text(settings.get(name)) for name in _TOKENS}
    message = {"role": "user", "content": prompt}
    variables = {"messages": [message], "add_generation_prompt": True, "tools": None, "documents": None}
    text = render(template, variables | {k: v for k, v in named.items() if v is not None})
    begins = tokenizer.bos_id is not None
    ids = tokenizer.encode(text).ids[int(begins) :]
    return text.removeprefix(named["bos_token"] or "") if begins else text, ids


def render(template: str, variables: Mapping[str, Any]) -> str:
    """The template's text. Raises PromptError where it fails, does what it may not, or takes too much."""
    asked = json.dumps({"template": template, "variables": dict(variables)}).encode()
    command = [sys.executable, "-I", str(_PROGRAM)]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise _refused(f"it takes more than {_SECONDS:.0f} s") from None
    if done.returncode < 0:  # stopped by a limit
        raise _refused("it takes more processor time or memory than a template may")
    if done.returncode:
        raise _refused(printable(done.stderr.decode(errors="replace").strip().rpartition("\n")[2]))
    return done.stdout.decode()


def _refused(reason: str) -> PromptError:
    return PromptError(f"the model's chat template cannot be used: {reason[:300]}; {_AS_IT_IS}")


def chat_template(folder: Path, settings: Mapping[str, Any] | None = None) -> str | None:
    """chat_template.jinja, or the one (or the default of several) in tokenizer_config.json; None for none.

    `folder` may be a GGUF file; `settings`: what `settings_beside` says of it, where that was read already.
    """
    try:
        return door.read_text(folder / TEMPLATE, door.MIB)
    except FileError as error:
        if not error.missing:
            raise
    template = (settings_beside(folder) if settings is None else settings).get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
