"""The distributed folder: pieces of several ranks, and a .metadata that is never executed."""

import io
import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from checkpoint_samples import lingua_tensors, tiny_config, write_distributed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mta_viz.checkpoint.lingua import read_metadata
from mta_viz.checkpoint.params import params_from_config
from mta_viz.checkpoint.reading import read_checkpoint, read_summary
from mta_viz.errors import CheckpointError


def write(folder: Path, ranks: int = 2, columns: int = 1) -> tuple[Path, dict[str, torch.Tensor]]:
    config = tiny_config()
    tensors = {f"model.{key}": value for key, value in lingua_tensors(config).items()}
    optim = {"optim.state.norm.weight.exp_avg": torch.full((8,), float("nan"))}
    params = params_from_config(config, "char", None)
    return write_distributed(folder, params, {**optim, **tensors}, ranks, columns), tensors


def problems_of(folder: Path) -> tuple[str, ...]:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(folder)
    return caught.value.problems


@pytest.mark.parametrize(("ranks", "columns"), [(1, 1), (2, 1), (3, 1), (5, 1), (1, 3), (2, 2)])
def test_pieces_of_all_ranks_are_put_together(tmp_path: Path, ranks: int, columns: int) -> None:
    # Five ranks share 8 rows as 2, 2, 2, 2, 0 and a gate bias of one row as 1, 0, 0, 0, 0.
    folder, tensors = write(tmp_path, ranks, columns)
    state = read_checkpoint(folder).state_dict
    assert torch.equal(state["embed.weight"], tensors["model.tok_embeddings.weight"])
    assert torch.equal(state["blocks.1.mlp.w2.weight"], tensors["model.layers.1.feed_forward.w2.weight"])
    assert torch.equal(state["blocks.0.attn.gate.bias"], tensors["model.layers.0.attention.gate.bias"])
    kernel = tensors["model.layers.1.attention.mta_kernel"]
    assert torch.equal(state["blocks.1.attn.kernel_pre"], kernel[:, 0])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_hand_made_folder_is_one_that_torch_reads(tmp_path: Path) -> None:
    folder, tensors = write(tmp_path, 5, 2)
    theirs = {key: torch.zeros_like(value) for key, value in tensors.items()}
    torch_dcp.load(theirs, checkpoint_id=str(folder), no_dist=True)
    assert all(torch.equal(theirs[key], tensors[key]) for key in tensors)


@pytest.mark.golden
def test_a_reference_folder_equals_its_consolidated_twin(golden: Path) -> None:
    before = sorted(file.name for file in (golden / "mta_dcp").iterdir())
    ours, twin = read_checkpoint(golden / "mta_dcp"), read_checkpoint(golden / "mta_full")
    assert ours.config == twin.config
    assert ours.state_dict.keys() == twin.state_dict.keys()
    assert all(torch.equal(ours.state_dict[key], value) for key, value in twin.state_dict.items())
    assert (ours.source.format, ours.source.step) == ("dcp", 10)
    assert sorted(file.name for file in (golden / "mta_dcp").iterdir()) == before


@pytest.mark.golden
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_reference_folder_equals_torchs_own_loader(golden: Path) -> None:
    twin = torch.load(golden / "mta_full" / "consolidated.pth", weights_only=True)["model"]
    theirs = {f"model.{key}": torch.zeros_like(value) for key, value in twin.items()}
    torch_dcp.load(theirs, checkpoint_id=str(golden / "mta_dcp"), no_dist=True)
    state = read_checkpoint(golden / "mta_dcp").state_dict
    kernel = theirs["model.layers.3.attention.head_kernel"]
    assert torch.equal(state["blocks.3.attn.head_post"], kernel.transpose(1, 2))


class Hostile:
    """Pickles as a call of `function` with one argument."""

    def __init__(self, function: object, argument: str) -> None:
        self.function, self.argument = function, argument

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return self.function, (self.argument,)


@pytest.mark.parametrize(
    ("function", "name"),
    [(os.mkdir, "mkdir"), (eval, "builtins.eval"), (torch.load, "torch.serialization.load"), (open, "open")],
)
def test_a_hostile_metadata_is_refused_by_name_and_not_run(
    tmp_path: Path, function: object, name: str
) -> None:
    folder, _ = write(tmp_path / "c")
    made = tmp_path / "made"
    argument = f"__import__('os').mkdir({str(made)!r})" if function is eval else str(made)
    (folder / ".metadata").write_bytes(pickle.dumps({"a": Hostile(function, argument)}))
    (problem,) = problems_of(folder)
    assert name in problem
    assert "nothing of it was run" in problem
    assert not made.exists()


def test_a_dotted_name_does_not_reach_through_an_allowed_one() -> None:
    hostile = b"\x80\x04\x8c\x05torch\x8c\x0aSize.count\x93."
    with pytest.raises(CheckpointError, match=r"torch\.Size\.count"):
        read_metadata(hostile)


def test_a_hostile_piece_is_not_run(tmp_path: Path) -> None:
    folder, _ = write(tmp_path / "c", 1)
    made = tmp_path / "made"
    content, file = io.BytesIO(), folder / "__0_0.distcp"
    torch.save(Hostile(os.mkdir, str(made)), content)
    place = file.stat().st_size
    with file.open("ab") as opened:
        opened.write(content.getvalue())

    def point_there(metadata: object) -> None:
        for index, info in metadata.storage_data.items():  # type: ignore[attr-defined]
            if index.fqn == "model.norm.weight":
                info.offset, info.length = place, len(content.getvalue())

    rewritten(folder, point_there)
    assert "norm.weight: its piece in __0_0.distcp is damaged; copy it again" in problems_of(folder)
    assert not made.exists()


def test_missing_and_short_files_are_named(tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    (folder / "__1_0.distcp").unlink()
    first = folder / "__0_0.distcp"
    first.write_bytes(first.read_bytes()[:1000])
    short, missing = problems_of(folder)
    assert "__0_0.distcp has 1,000 bytes; expected at least" in short
    assert "__1_0.distcp is missing" in missing


def test_without_metadata_the_hidden_file_is_asked_for(tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    (folder / ".metadata").unlink()
    assert problems_of(folder)[0].startswith(".metadata is missing; without it the .distcp files")


def test_damaged_pieces_are_all_named(tmp_path: Path) -> None:
    folder, _ = write(tmp_path)
    for file in folder.glob("*.distcp"):
        file.write_bytes(b"\0" * file.stat().st_size)
    assert len(problems_of(folder)) == len(read_checkpoint(write(tmp_path / "whole")[0]).state_dict)


def rewritten(folder: Path, change: object) -> Path:
    """The folder with `change(metadata)` applied to its .metadata."""
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)  # type: ignore[operator]
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


def test_pieces_outside_the_folder_are_refused(tmp_path: Path) -> None:
    def escape(metadata: object) -> None:
        for info in metadata.storage_data.values():  # type: ignore[attr-defined]
            object.__setattr__(info, "relative_path", "../" + info.relative_path)

    assert "outside the folder; refused" in problems_of(rewritten(write(tmp_path)[0], escape))[0]


def test_empty_pieces_need_not_be_stored(tmp_path: Path) -> None:
    def forget_empty(metadata: object) -> None:
        entries = metadata.state_dict_metadata  # type: ignore[attr-defined]
        for index in list(metadata.storage_data):  # type: ignore[attr-defined]
            if 0 in entries[index.fqn].chunks[index.index].sizes:
                del metadata.storage_data[index]  # type: ignore[attr-defined]

    folder, tensors = write(tmp_path, 5)
    state = read_checkpoint(rewritten(folder, forget_empty)).state_dict
    assert torch.equal(state["ln_final.weight"], tensors["model.norm.weight"])


def test_rows_left_out_and_other_cuts_are_faults(tmp_path: Path) -> None:
    def lose_rows(metadata: object) -> None:
        metadata.state_dict_metadata["model.norm.weight"].chunks.pop()  # type: ignore[attr-defined]

    def repeat_rows(metadata: object) -> None:
        first, second = metadata.state_dict_metadata["model.norm.weight"].chunks  # type: ignore[attr-defined]
        second.offsets = first.offsets

    def cut_columns(metadata: object) -> None:
        entry = metadata.state_dict_metadata["model.tok_embeddings.weight"]  # type: ignore[attr-defined]
        for chunk in entry.chunks:
            chunk.sizes = torch.Size([16, 4])

    def lose_corner(metadata: object) -> None:
        metadata.state_dict_metadata["model.tok_embeddings.weight"].chunks.pop()  # type: ignore[attr-defined]

    (problem,) = problems_of(rewritten(write(tmp_path / "a")[0], lose_rows))
    fault = "model.norm.weight: a .distcp file is missing, or pieces repeat: see 0 of 8 along axis 0"
    assert fault in problem
    (problem,) = problems_of(rewritten(write(tmp_path / "c")[0], repeat_rows))
    assert fault in problem
    (problem,) = problems_of(rewritten(write(tmp_path / "b")[0], cut_columns))
    assert "see 0 of 8 along axis 1" in problem
    (problem,) = problems_of(rewritten(write(tmp_path / "d", columns=2)[0], lose_corner))
    assert ": 3 are there, expected a grid of 4" in problem


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3), st.booleans())
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_to_metadata_gives_another_error(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: bool
) -> None:
    content = bytearray(sample_metadata(tmp_path_factory))
    for place, byte in changes:
        content[place % len(content)] = byte
    if cut:
        content = content[: changes[0][0] % len(content)]
    try:
        read_metadata(bytes(content))
    except CheckpointError as error:
        assert error.problems


_SAMPLE: list[bytes] = []


def sample_metadata(factory: pytest.TempPathFactory) -> bytes:
    if not _SAMPLE:
        _SAMPLE.append((write(factory.mktemp("dcp"))[0] / ".metadata").read_bytes())
    return _SAMPLE[0]


def test_a_run_offers_its_steps(tmp_path: Path) -> None:
    for step in (10_000, 20_000):
        write(tmp_path / "checkpoints" / f"{step:010}")
    unfinished, _ = write(tmp_path / "checkpoints" / "0000030000")
    (unfinished / ".metadata").unlink()
    (tmp_path / "checkpoints" / "notes").mkdir()
    for path in (tmp_path, tmp_path / "checkpoints"):
        summary = read_summary(path)
        assert (summary.steps, summary.step) == ((10_000, 20_000), 20_000)
        assert read_checkpoint(path, step=10_000).source.step == 10_000
    assert read_checkpoint(tmp_path / "checkpoints" / "0000010000").source.step == 10_000
    with pytest.raises(CheckpointError, match="no step 5; its steps are 10000, 20000"):
        read_checkpoint(tmp_path, step=5)
    with pytest.raises(CheckpointError, match="not a run with a step 5"):
        read_checkpoint(tmp_path / "checkpoints" / "0000010000", step=5)


def test_a_folder_consolidated_by_lingua_is_still_read(tmp_path: Path) -> None:
    from checkpoint_samples import write_consolidated

    config = tiny_config()
    params = params_from_config(config, "char", None)
    write_consolidated(tmp_path / "consolidated", params, lingua_tensors(config))
    assert read_checkpoint(tmp_path).source.format == "lingua"


# As a pickle: lists 100,000 deep, and a list of two equal lists of two equal lists, 34 deep.
DEEP = b"]" * 100_000 + b"a" * 99_999
DOUBLED = b"(" * 34 + b"]" + b"2l" * 34


@pytest.mark.parametrize("nested", [DEEP, DOUBLED], ids=["deep", "doubled"])
@pytest.mark.parametrize("field", ["size", "fqn", "relative_path", "offset"])
def test_nested_values_are_refused_at_once(tmp_path: Path, nested: bytes, field: str) -> None:
    folder, _ = write(tmp_path)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    if field == "size":
        metadata.state_dict_metadata["model.norm.weight"].size = "nested"
    else:
        for index, info in metadata.storage_data.items():
            object.__setattr__(index if field == "fqn" else info, field, "nested")
    content = pickle.dumps(metadata, protocol=2)
    word = b"X\x06\0\0\0nested"
    assert word in content
    (folder / ".metadata").write_bytes(content.replace(word, nested, 1))
    assert all(len(problem) < 300 for problem in problems_of(folder))
