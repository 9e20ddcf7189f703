"""Devices: a model that does not fit the memory is refused before it is built, with a way out."""

from pathlib import Path

import pytest
import torch

from mta_viz import load
from mta_viz.errors import MtaVizError
from mta_viz.run import devices

CPU = torch.device("cpu")


def memory(tmp_path, kilobytes: int):
    file = tmp_path / "meminfo"
    file.write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {kilobytes} kB\n")
    return file


def test_free_memory_is_what_the_system_says(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "MEMORY", memory(tmp_path, 3))
    assert devices.free_bytes(CPU) == 3 * 1024
    monkeypatch.setattr(devices, "MEMORY", tmp_path / "none")
    assert devices.free_bytes(CPU) is None
    monkeypatch.setattr(devices.door, "memory_left", lambda: 512)
    assert devices.free_bytes(CPU) == 512
    monkeypatch.setattr(devices, "MEMORY", memory(tmp_path, 3))
    assert devices.free_bytes(CPU) == 512


def test_the_dtype_to_compute_in_is_counted(tmp_path, monkeypatch):
    folder, n = Path(__file__).parents[2] / "assets" / "blocks-n5-mta", 3_418_512
    monkeypatch.setattr(devices, "MEMORY", memory(tmp_path, n * 3 // 1024))
    with pytest.raises(MtaVizError, match=r"in float32 the weights take 1[34].* compute in bfloat16"):
        load(folder)
    assert load(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    assert load(folder, dtype=None).dtype == torch.float16  # as they are: nothing is made
    monkeypatch.setattr(devices, "MEMORY", memory(tmp_path, n * 5 // 1024))
    assert load(folder).dtype == torch.float32


def test_a_model_too_large_is_refused_before_a_value_is_read(tmp_path, monkeypatch):
    folder, shares = Path(__file__).parents[2] / "assets" / "blocks-n5-mta", []
    monkeypatch.setattr(devices, "MEMORY", memory(tmp_path, 1))
    with pytest.raises(MtaVizError, match="in float32 the weights take"):
        load(folder, progress=shares.append)
    assert shares == []
