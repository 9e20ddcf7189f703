"""Chat templates: the ids that `transformers` gives, and a template that wants too much is stopped."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_huggingface_tokenizers import byte_level, configure, write
from tokenizers import processors
from transformers import AutoTokenizer

from mta_viz.checkpoint.huggingface import tokenizer_of
from mta_viz.errors import PromptError
from mta_viz.tokenizers.base import Tokens
from mta_viz.tokenizers.builtin import CharTokenizer
from mta_viz.tokenizers.chat import chat_prompt, render
from mta_viz.tokenizers.loading import load_tokenizer

CHATML = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe short.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_BOS = (
    "{{- bos_token }}\n{%- if tools is not none %}{{ tools | tojson }}{%- endif %}\n"
    "{%- for message in messages %}\n  {{- '<|im_start|>' + message['role'] + '\\n\\n' }}"
    "{{- message['content'] | trim + eos_token }}\n{%- endfor %}"
)


def plain(folder: Path, **settings: Any) -> Path:
    """A tokenizer without BOS."""
    return write(folder, byte_level(), tokenizer_class="PreTrainedTokenizerFast", **settings)


def beginning(folder: Path, **settings: Any) -> Path:
    """One that begins every text with BOS."""
    library, name = byte_level(), "<|begin_of_text|>"
    bos = [(name, library.token_to_id(name))]
    library.post_processor = processors.TemplateProcessing(single=f"{name} $A", special_tokens=bos)
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    end = {"__type": "AddedToken", "content": "<|im_end|>", **flags}
    tokens = {"bos_token": name, "eos_token": end}
    return write(folder, library, tokenizer_class="PreTrainedTokenizerFast", **tokens, **settings)


def chat(folder: Path, prompt: str) -> Tokens:
    name, path = tokenizer_of(folder, None)
    return chat_prompt(load_tokenizer(name, path, folder=folder), folder, prompt)


def assert_same(folder: Path, prompt: str = "  Hello wörld <|im_end|> ") -> Tokens:
    library = AutoTokenizer.from_pretrained(folder)
    want = library.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
    tokens = chat(folder, prompt)
    assert list(tokens.ids) == list(want["input_ids"])
    return tokens


def test_a_template_without_bos(tmp_path: Path) -> None:
    tokens = assert_same(plain(tmp_path, chat_template=CHATML), "Hello world")
    assert tokens.text == (
        "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nHello world<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}\n  {%- generation %}{% set n = m.content %}{{ n }}\n"
        "{% endgeneration %}{{ n }}{% endfor %}",
        "{{ messages | tojson(ensure_ascii=true, separators=(',', ':')) }}",
    ],
)
def test_what_transformers_adds_to_jinja(tmp_path: Path, template: str) -> None:
    assert_same(plain(tmp_path, chat_template=template))


def test_a_template_that_writes_bos_itself_has_it_once(tmp_path: Path) -> None:
    tokens = assert_same(beginning(tmp_path, chat_template=WITH_BOS))
    assert tokens.ids.count(tokens.ids[0]) == 1
    assert tokens.pieces[0] == "<|begin_of_text|>"
    assert tokens.text is not None and tokens.text.startswith("<|im_start|>user")  # BOS is the tokenizer's


def test_a_template_without_the_bos_its_tokenizer_adds(tmp_path: Path) -> None:
    assert assert_same(beginning(tmp_path, chat_template=CHATML)).text is None


def test_a_template_may_be_a_file_or_one_of_several(tmp_path: Path) -> None:
    plain(
        tmp_path, chat_template=[{"name": "tool", "template": "no"}, {"name": "default", "template": CHATML}]
    )
    assert_same(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert chat(tmp_path, "Hello").text == "Hello"


def test_without_a_template_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="the model has no chat template"):
        chat(plain(tmp_path), "Hello")
    with pytest.raises(PromptError, match=r"needs the tokenizer\.json of a Hugging Face folder"):
        chat_prompt(CharTokenizer(), tmp_path, "Hello")


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError|no loader"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "processor time|10 s",
        ),
        ("{{ 'a' * 4000000000 }}", "more than 1 GiB of memory"),
        ("{{ 'a' * 2000000 }}", "it makes 2,000,000 characters; at most 1,000,000"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "TemplateSyntaxError"),
    ],
)
def test_a_template_that_wants_too_much_is_stopped(template: str, words: str) -> None:
    with pytest.raises(PromptError, match=f"the model's chat template cannot be used: .*({words})"):
        render(template, {"messages": [{"role": "user", "content": "Hello"}]})


def test_generation_ends_where_the_settings_say(tmp_path: Path) -> None:
    folder = plain(tmp_path)
    end = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["<|im_end|>"]
    assert load_tokenizer("huggingface", "tokenizer.json", folder=folder).eos_id != end
    configure(folder, eos_token="<|im_end|>")
    assert load_tokenizer("huggingface", "tokenizer.json", folder=folder).eos_id == end
