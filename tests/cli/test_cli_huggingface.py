"""Commands on a Hugging Face folder: all that work on a plain model work on it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Answer

import mta_viz
from mta_viz import open_trace
from mta_viz.run.tracing import chat
from tests.checkpoint.huggingface_samples import saved

Run = Callable[..., Answer]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder = saved(tmp_path_factory.mktemp("models") / "qwen", "Qwen2", vocab_size=300)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    library = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(alphabet)}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("[{{ messages[0].content }}]")
    return folder


PROMPT = ("--prompt", "The harbour of Riga")


@pytest.mark.parametrize(
    "command",
    [
        ("info",),
        ("kernels",),
        ("heads", *PROMPT),
        ("lens", *PROMPT),
        ("generate", *PROMPT, "--max-new-tokens", "3"),
        ("cells", *PROMPT, "--layer", "1", "--head", "2", "--stage", "final"),
        ("decompose", *PROMPT, "--layer", "1", "--head", "2", "--stage", "raw", "--query", "5", "--key", "3"),
        ("direct-effect", *PROMPT),
        ("ablate", *PROMPT),
        ("perplexity", *PROMPT),
    ],
    ids=lambda command: command[0],
)
def test_a_command_answers(folder: Path, run: Run, command: tuple[str, ...]) -> None:
    answer = run(command[0], folder, *command[1:])
    assert (answer.status, answer.json != {}) == (0, True)


def test_an_adapter_has_the_chat_template_of_its_base(folder: Path, run: Run, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter.safetensors"
    assert run("insert", folder, "--layers", "1", "--out", adapter).status == 0
    for path in (folder, adapter):
        answer = run("lens", path, "--prompt", "Riga", "--chat", "--base", folder)
        assert answer.status == 0 and "the model sees [Riga]" in answer.err
    model = mta_viz.load(adapter, base=folder)
    assert chat(model, "Riga").text == "[Riga]"


def test_a_run_is_saved_with_the_stages_there_are(folder: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "run.safetensors"
    answer = run("trace", folder, *PROMPT, "--format", "run", "--out", file)
    assert answer.status == 0
    assert len(answer.json["maps"]) == 2 * 3  # raw scores, softmax and pattern
    assert answer.json["checkpoint"] == "qwen"
    assert len(open_trace(file).tokens) == 19


def test_commands_that_need_kernels_say_that_there_are_none(folder: Path, run: Run) -> None:
    answer = run("operator", folder, *PROMPT, "--kernel", "L0 H0 pre")
    assert answer.status == 2 and not answer.out
    note, error = answer.err.splitlines()
    assert note.startswith("note: the vocabulary has 300 places, the tokenizer 256 tokens")
    assert error.startswith("error: this checkpoint has no kernels at all")


def test_a_prompt_is_put_into_the_chat_template_when_asked(folder: Path, run: Run) -> None:
    template = folder / "chat_template.jinja"
    template.write_text("[user] {{ messages[0].content }} [answer]")
    answer = run("lens", folder, "--prompt", "Riga", "--chat")
    template.unlink()
    assert "note: the model sees [user]␣Riga␣[answer]" in answer.err
    whole = run("lens", folder, "--prompt", "[user] Riga [answer]")
    assert answer.json == whole.json
    assert run("lens", folder, "--prompt", "Riga", "--chat").status == 2


def test_token_ids_are_put_into_no_template(folder: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "ids.json").write_text("[1, 2]")
    answer = run("lens", folder, "--tokens", tmp_path / "ids.json", "--chat")
    assert answer.status == 2 and "--chat needs --prompt TEXT" in answer.err
