"""Small files that would take all memory, or for ever, are refused by a process that measures itself."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from checkpoint_samples import lingua_tensors, tiny_config, write_consolidated, write_distributed

from mta_viz.checkpoint.params import params_from_config

ROOT = Path(__file__).parents[2]
MIB = 2**20
CONFIG = tiny_config(tied=False)
PARAMS = params_from_config(CONFIG, "char", None)
HUGE = torch.zeros(1).expand(400_000, 1024)


def settings(folder: Path, params: object = PARAMS) -> Path:
    folder.mkdir(parents=True)
    (folder / "params.json").write_text(json.dumps(params))
    return folder


def zipped(folder: Path, pickled: bytes, compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(settings(folder) / "consolidated.pth", "w", compression) as archive:
        archive.writestr("archive/data.pkl", pickled)


def inflated(folder: Path) -> None:
    with (
        zipfile.ZipFile(
            settings(folder) / "consolidated.pth", "w", zipfile.ZIP_DEFLATED, compresslevel=1
        ) as archive,
        archive.open("archive/data.pkl", "w") as record,
    ):
        for _ in range(64):
            record.write(bytes(MIB))


def expanded(folder: Path) -> None:
    write_consolidated(folder, PARAMS, lingua_tensors(CONFIG) | {"norm.weight": HUGE})


def expanded_pieces(folder: Path) -> None:
    tensors = {f"model.{key}": value for key, value in lingua_tensors(CONFIG).items()}
    write_distributed(folder, PARAMS, tensors, 1)
    file, content = folder / "__0_0.distcp", io.BytesIO()
    torch.save(HUGE, content)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    metadata.state_dict_metadata["model.norm.weight"].size = HUGE.shape
    metadata.state_dict_metadata["model.norm.weight"].chunks[0].sizes = HUGE.shape
    metadata.state_dict_metadata["model.norm.weight"].chunks[0].offsets = torch.Size([0, 0])
    for index in list(metadata.storage_data):
        if index.fqn == "model.norm.weight":
            info = metadata.storage_data.pop(index)
            info.offset, info.length = file.stat().st_size, len(content.getvalue())
            metadata.storage_data[type(index)("model.norm.weight", torch.Size([0, 0]), 0)] = info
    file.write_bytes(file.read_bytes() + content.getvalue())
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def shared(folder: Path) -> None:
    """A hundred layers of one and the same: 18 GiB in 19 MiB."""
    sizes = {"n_layers": 1, "d_mlp": 200_000, "tied": False}
    names = lingua_tensors(tiny_config(**sizes))
    model = {
        key.replace("layers.0", f"layers.{i}"): value for key, value in names.items() for i in range(1000)
    }
    write_consolidated(
        folder, params_from_config(tiny_config(**sizes | {"n_layers": 100}), "char", None), model
    )


def metadata(content: bytes) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (settings(folder) / ".metadata").write_bytes(content)
        (folder / "__0_0.distcp").write_bytes(b"")

    return make


def long_number(field: bytes) -> Callable[[Path], None]:
    """`field` of .metadata, as a number of 6,000 digits."""

    def make(folder: Path) -> None:
        tensors = {f"model.{key}": value for key, value in lingua_tensors(CONFIG).items()}
        write_distributed(folder, PARAMS, tensors, 1)
        loaded = pickle.loads((folder / ".metadata").read_bytes())
        for table in (loaded.state_dict_metadata["model.norm.weight"].chunks, loaded.storage_data.values()):
            for record in table:
                if field.decode() in vars(record):
                    object.__setattr__(record, field.decode(), 77_777)
        content = pickle.dumps(loaded, protocol=2)
        digits = (10**6000).to_bytes(2500, "little")
        number = b"\x8b" + struct.pack("<i", len(digits)) + digits  # LONG4
        marked = b"J" + struct.pack("<i", 77_777)
        assert marked in content
        (folder / ".metadata").write_bytes(content.replace(marked, number))

    return make


def many_tensors(folder: Path) -> None:
    header = (
        b"{"
        + b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(200_000))
        + b"}"
    )
    (settings(folder) / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def many_records(folder: Path) -> None:
    """A ZIP that lists a million records, all the same."""
    record = (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    )
    table = record * 1_000_000
    wide = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 10**6, 10**6, len(table), 4)
    end = struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(table), 1)
    end += struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (settings(folder) / "consolidated.pth").write_bytes(b"PK\x03\x04" + table + wide + end)


def many_objects(name: str, size: int) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (settings(folder) / name).write_text("[" + "{}," * (size // 3) + "{}]")

    return make


LIST = b"]q\x01(" + b"K\1" * 9000 + b"e"


def called(module: bytes, name: bytes, argument: bytes, times: int = 1) -> Callable[[Path], None]:
    """A pickle of the values that `name` gives, called so often with one argument."""
    call = b"c" + module + b"\n" + name + b"\n%b\x85R0"
    content = argument + b"q\x010" + (call % b"h\x01") * times
    return lambda folder: zipped(folder, b"\x80\x02" + content + b"N.")


COSTLY: dict[str, tuple[Callable[[Path], None], str]] = {
    "a pickle that inflates": (inflated, "it is compressed, which torch never does"),
    "an expanded tensor": (
        expanded,
        "norm.weight in consolidated.pth claims 1.6 GB, of which the file holds 0.0 kB",
    ),
    "an expanded piece": (expanded_pieces, "model.norm.weight claims 1.6 GB in a piece of"),
    "shared values": (shared, "its tensors claim 19.2 GB, its files have"),
    "a memo index": (
        metadata(b"\x80\x02Nr" + struct.pack("<L", 2**28) + b"."),
        "numbers its values far beyond",
    ),
    "many empty lists": (
        lambda folder: zipped(folder, b"\x80\x02" + b"]" * 15 * MIB),
        "more than 1,000,000 values",
    ),
    "a number of bytes": (
        called(b"builtins", b"bytearray", b"\x8a\x05" + (6 * 10**9).to_bytes(5, "little")),
        "bytearray",
    ),
    "a list copied often": (called(b"builtins", b"set", LIST, times=500), "its calls copy too many values"),
    "a list as tensors": (
        called(b"torch", b"FloatTensor", LIST, times=500),
        "it calls torch.FloatTensor, which may",
    ),
    "a text copied": (
        called(b"_codecs", b"encode", b"X\0\0\x10\0" + b"a" * MIB),
        "a key made of too many values",
    ),
    "many tensors": (many_tensors, "lists its tensors in "),
    "many records": (many_records, "its table of records takes more than"),
    "a large params.json": (
        many_objects("params.json", 60 * MIB),
        "params.json has 62.9 MB, more than 1.0 MB",
    ),
    "a long size": (long_number(b"sizes"), ".metadata has int where a shape was expected"),
    "a long shape": (long_number(b"offsets"), ".metadata has int where a shape was expected"),
    "a long offset": (long_number(b"offset"), "has a piece at offset int of length "),
    "a long length": (long_number(b"length"), "of length int"),
}
READ = """
import json, resource, sys
from pathlib import Path
from mta_viz.checkpoint.reading import find_checkpoints, read_checkpoint

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

good, *others = map(Path, sys.argv[1:])
read_checkpoint(good)
before, problems = peak(), []
for folder in others:
    (found,) = find_checkpoints([folder]).found
    problems.append(found.problem)
print(json.dumps([peak() - before, problems]))
"""


def test_costly_files_are_refused_without_the_cost(tmp_path: Path) -> None:
    write_consolidated(tmp_path / "good", PARAMS, lingua_tensors(CONFIG))
    folders = [tmp_path / "good"]
    for number, (make, _) in enumerate(COSTLY.values()):
        make(tmp_path / str(number))
        folders.append(tmp_path / str(number))
    answer = subprocess.run([sys.executable, "-c", READ, *folders], check=True, cwd=ROOT, capture_output=True)
    growth, problems = json.loads(answer.stdout)
    for problem, (_, words) in zip(problems, COSTLY.values(), strict=True):
        assert words in problem and len(problem) < 3000
    assert growth < 512 * MIB
