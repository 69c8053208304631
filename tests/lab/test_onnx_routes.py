"""Routes of ONNX files between libraries: what is compared, without the libraries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from lab.onnx_routes.__main__ import ROUTES, differences, export_networks, networks, results_of, run_model


def test_scripts_of_routes_are_there_and_each_has_one() -> None:
    scripts = {path.name for path in Path("lab/onnx_routes").glob("*_*.py")} - {"__main__.py"}
    assert {route.script for route in ROUTES.values()} == scripts
    assert all("==" in needed for route in ROUTES.values() for needed in route.requirements)


def test_differences_are_found(tmp_path: Path) -> None:
    export_networks(tmp_path, tuple(name for name in networks() if name != "mlp"))
    assert [path.name for path in tmp_path.glob("*.onnx")] == ["mlp.onnx"]
    assert differences(tmp_path, lambda path: run_model(path, "cpu"))["mlp"] < 1e-6
    with np.load(tmp_path / "mlp.npz") as arrays:
        wanted = arrays["y0"]
    np.savez(tmp_path / "mlp.results.npz", wanted[0] + np.abs(wanted).max() / 4)  # without a batch, as ncnn
    assert differences(tmp_path, results_of)["mlp"] == pytest.approx(0.25, rel=1e-5)
    np.savez(tmp_path / "mlp.results.npz", wanted, wanted)
    with pytest.raises(SystemExit, match="has 2 results, and not 1"):
        differences(tmp_path, results_of)


def test_a_route_without_models_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no model was written"):
        differences(tmp_path, results_of)


def test_results_of_several_outputs(tmp_path: Path) -> None:
    class Two(dl.nn.Module):
        def forward(self, x: dl.Tensor) -> tuple[dl.Tensor, dl.Tensor]:
            return x + 1, x * 2

    x = dl.tensor([[1.0, 2.0]], device="cpu")
    dl.onnx.export(Two().eval(), x, tmp_path / "two.onnx", input_names=["x"])
    np.savez(tmp_path / "two.npz", x=x.numpy(), y0=x.numpy() + 1, y1=x.numpy() * 3)
    assert differences(tmp_path, lambda path: run_model(path, "cpu"))["two"] == pytest.approx(1 / 3)
