"""Finding and opening tokenizer files, and what is said when that fails."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mta_viz.checkpoint.layout import file_entries
from mta_viz.checkpoint.reading import read_checkpoint
from mta_viz.config import ModelConfig
from mta_viz.errors import TokenizerError
from mta_viz.tokenizers.loading import load_tokenizer, remember_given

AUTHORS = "/home/author/llama/"
FILES = [("tiktoken", "ranks.tiktoken"), ("sp", "tokenizer.model"), ("tokenizers", "tokenizer.json")]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_relative_path_an_absolute_one_and_the_base_name_all_work(
    tokenizer_folder: Path, tmp_path: Path, name: str, file: str
) -> None:
    for path in (file, str(tokenizer_folder / file), AUTHORS + file, "D:\\runs\\x\\" + file):
        assert load_tokenizer(name, path, folder=tokenizer_folder).kind == name
    for path in (str(tokenizer_folder / file), f"../{tokenizer_folder.name}/{file}"):
        with pytest.raises(TokenizerError, match=r"lies outside .*copy it there\. Choose the file"):
            load_tokenizer(name, path, folder=tmp_path)


@pytest.mark.parametrize(("name", "file"), FILES)
def test_the_users_own_file_comes_first(tokenizer_folder: Path, tmp_path: Path, name: str, file: str) -> None:
    chosen = shutil.copy(tokenizer_folder / file, tmp_path / "chosen")
    (tmp_path / file).write_text("junk")
    assert load_tokenizer(name, file, folder=tmp_path, override=Path(chosen)).kind == name
    with pytest.raises(TokenizerError, match="nowhere_else"):
        load_tokenizer(name, file, folder=tokenizer_folder, override=tmp_path / "nowhere_else")


@pytest.mark.parametrize(("name", "file"), FILES)
def test_a_missing_file_says_what_where_and_what_to_do(tmp_path: Path, name: str, file: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(name, AUTHORS + file, folder=tmp_path)
    message = str(caught.value)
    wanted = {"tiktoken": "tiktoken rank file", "sp": "SentencePiece model", "tokenizers": "tokenizer.json"}
    for part in (wanted[name], AUTHORS + file, str(tmp_path / file), "--tokenizer FILE", "paste token ids"):
        assert part in message


@pytest.mark.parametrize("given", [True, False], ids=["by the user", "by params.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, given: bool) -> None:
    pipe = tmp_path / "tokenizer.model"
    os.mkfifo(pipe)
    with pytest.raises(TokenizerError, match=r"tokenizer\.model is no regular file but a pipe"):
        load_tokenizer("tiktoken", pipe.name, folder=tmp_path, override=pipe if given else None)


def test_a_missing_path_says_that_none_is_given(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"params\.json gives no path.*--tokenizer FILE"):
        load_tokenizer("tiktoken", None, folder=tmp_path)


@pytest.mark.parametrize("name", ["tiktoken", "sp", "tokenizers"])
@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"junk",
        b"{}",
        b"null",
        b"[1]",
        b'{"model": {}}',
        b"\x00" * 64,
        bytes(range(256)) * 9,
        b"AA== 0\n",
    ],
)
def test_a_wrong_file_says_so(tmp_path: Path, name: str, junk: bytes) -> None:
    (tmp_path / "file").write_bytes(junk)
    with pytest.raises(TokenizerError, match=r"file cannot be used as .*--tokenizer FILE"):
        load_tokenizer(name, "file", folder=tmp_path)


def test_one_kinds_file_is_refused_by_the_others(tokenizer_folder: Path) -> None:
    for name, _ in FILES:
        for other, file in FILES:
            if other != name:
                with pytest.raises(TokenizerError, match="cannot be used as"):
                    load_tokenizer(name, file, folder=tokenizer_folder)


@pytest.mark.parametrize(
    ("name", "file", "words"),
    [
        ("sp", "ranks.tiktoken", 'it is a tiktoken rank file .*: write "tiktoken" in data.tokenizer.name'),
        ("tiktoken", "tokenizer.model", 'it is a SentencePiece model .*: write "sp"'),
        ("sp", "tokenizer.json", 'it is a tokenizer.json .*: write "huggingface"'),
        ("tiktoken", "tekken.json", "it is a tekken file"),
        ("sp", "notes.txt", "the SentencePiece library cannot read it"),
    ],
)
def test_what_the_file_is_instead_is_said(
    tokenizer_folder, tmp_path, name: str, file: str, words: str
) -> None:
    (tmp_path / "tekken.json").write_text('{"config": {"version": "v3"}, "vocab": []}')
    (tmp_path / "notes.txt").write_text("notes")
    folder = tokenizer_folder if (tokenizer_folder / file).exists() else tmp_path
    with pytest.raises(TokenizerError, match=words):
        load_tokenizer(name, file, folder=folder)


def test_a_mark_before_the_text_is_passed_over(tokenizer_folder: Path, tmp_path: Path) -> None:
    for file in ("tokenizer.json", "ranks.tiktoken"):
        (tmp_path / file).write_bytes(b"\xef\xbb\xbf" + (tokenizer_folder / file).read_bytes())
    for name, file in (("tokenizers", "tokenizer.json"), ("tiktoken", "ranks.tiktoken")):
        marked, plain = (load_tokenizer(name, file, folder=place) for place in (tmp_path, tokenizer_folder))
        assert marked.encode("the north").ids == plain.encode("the north").ids


def test_mistrals_file_alone_is_named(tmp_path: Path) -> None:
    (llamas_own(tmp_path / "model") / "tekken.json").write_text('{"config": {"version": "v3"}, "vocab": []}')
    assert "a tekken file of Mistral's" in str(read_checkpoint(tmp_path / "model").tokenizer_problem)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda lines: [*lines[:-1], b"YWI= 999"], "do not count from 0"),
        (lambda lines: [*lines[:-1], b"YWI= x"], 'line 264 is not "base64 rank"'),
        (lambda lines: [*lines[:-1], b"?? 263"], "line 264"),
        (
            lambda lines: [b"YWI= 0", *lines[1:]],
            "1 of the 256 single bytes have no rank .such as 0x00",
        ),
    ],
)
def test_a_damaged_rank_file_names_the_fault(tokenizer_folder: Path, tmp_path: Path, edit, reason) -> None:
    lines = (tokenizer_folder / "ranks.tiktoken").read_bytes().splitlines()
    (tmp_path / "file").write_bytes(b"\n".join(edit(lines)))
    with pytest.raises(TokenizerError, match=reason):
        load_tokenizer("tiktoken", "file", folder=tmp_path)


def test_an_unknown_kind_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="char, bytes, tiktoken, sp, sp-plain, tokenizers, huggingface"):
        load_tokenizer("gpt", None, folder=tmp_path)


def test_a_file_for_a_kind_without_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="needs no file"):
        load_tokenizer("bytes", None, folder=tmp_path, override=tmp_path / "x.json")


def test_a_weights_file_chosen_by_mistake_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(TokenizerError, match=r"has 1\.1 GB, more than 67\.1 MB"):
        load_tokenizer("sp", "model.safetensors", folder=tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")

    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TokenizerError, match=r"file cannot be read: Permission denied"):
        load_tokenizer("sp", "file", folder=tmp_path)


def test_importing_and_opening_bytes_loads_no_library() -> None:
    code = (
        "import sys; from pathlib import Path; from mta_viz.tokenizers.loading import load_tokenizer;"
        "import mta_viz.tokenizers.base; load_tokenizer('bytes', None, folder=Path('.')).encode('a');"
        "sys.exit(bool({'tiktoken', 'sentencepiece', 'tokenizers', 'torch', 'numpy'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


LLAMA = ModelConfig(
    d_model=8, n_layers=1, n_heads=2, n_kv_heads=2, d_head=4, d_mlp=24, vocab_size=1000, n_ctx=1024
)


def llamas_own(folder: Path) -> Path:
    """Settings as Llama's own files have them, which name no tokenizer, beside weights."""
    folder.mkdir()
    fields = {"dim": 8, "n_layers": 1, "n_heads": 2, "vocab_size": 1000, "multiple_of": 8}
    (folder / "params.json").write_text(json.dumps(fields))
    tensors = {entry.key: torch.zeros(entry.shape) for entry in file_entries(LLAMA).values()}
    torch.save(tensors, folder / "consolidated.00.pth")
    return folder


@pytest.mark.parametrize("file", ["ranks.tiktoken", "tokenizer.model", "tokenizer.json"])
@pytest.mark.parametrize("given", [True, False])
def test_settings_that_name_no_tokenizer_take_the_file_beside_them_or_the_one_given(
    tmp_path: Path, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, given: bool
) -> None:
    monkeypatch.setenv("MTA_VIZ_TOKENIZERS", str(tmp_path / "given"))
    folder, name = llamas_own(tmp_path / "model"), "tokenizer.json" if ".json" in file else "tokenizer.model"
    place = (tmp_path if given else folder) / name
    shutil.copy(tokenizer_folder / file, place)
    checkpoint = read_checkpoint(folder, tokenizer=place if given else None)
    kinds = {"ranks.tiktoken": "tiktoken", "tokenizer.model": "sp", "tokenizer.json": "huggingface"}
    assert (checkpoint.tokenizer_name, checkpoint.tokenizer_problem) == (kinds[file], None)
    if given:
        remember_given(checkpoint.source.path, place)
        again = read_checkpoint(folder)
        assert again.tokenizer.encode("the").ids == checkpoint.tokenizer.encode("the").ids
        assert again.notes == (f"the tokenizer is {place}, which was given for this model before",)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"config": {"version": "v3"}, "vocab": []}, "a tekken file of Mistral's, which is not read"),
        ({"the": 1, "a": 0}, "a vocabulary without the rest (vocab.json)"),
    ],
)
def test_json_of_another_kind_is_named(tmp_path: Path, settings: object, words: str) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    with pytest.raises(TokenizerError, match=re.escape(words)):
        load_tokenizer("huggingface", "tokenizer.json", folder=tmp_path)
