"""Repositories: what each format holds, which version serves, and what is said of those that cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dl4all as dl
from dl4all.errors import ConfigError
from dl4all.serving.model_config import read_model_config
from dl4all.serving.repository import Repository
from dl4all.serving.request_error import RequestError
from tests.serving.servers import VERSIONED, ask, infer, numbers, urls_of, write_model

pytestmark = pytest.mark.usefixtures("deadline")
CONFIG = """
[[inputs]]
name = "x"
datatype = "FP32"
shape = [-1, 4]
[[outputs]]
name = "y"
datatype = "FP32"
shape = [-1, 3]
"""


def serving_folder(folder: Path, **options: object) -> dl.serving.Server:
    return dl.serving.Server(folder, http_port=0, grpc_port=0, devices=["cpu"], **options)  # type: ignore[arg-type]


def states(server: dl.serving.Server) -> dict[str, tuple[str, str, str]]:
    entries = ask(server.http_url, "POST", "/v2/repository/index").json
    return {entry["name"]: (entry["version"], entry["state"], entry["reason"]) for entry in entries}


@pytest.mark.parametrize("settings", ["", "compile = true\nmax_batch_size = 3\n"])
def test_every_format_serves_the_same_network(tmp_path: Path, settings: str) -> None:
    dl.manual_seed(5)
    network = dl.models.MLP(4, [8], 3).eval().to("cpu")
    x = numbers(5, 4)
    for name in ("code", "table", "file", "bare"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.toml").write_text(settings + ("" if name == "bare" else CONFIG))
    dl.io.save_weights(tmp_path / "table" / "1" / "model.safetensors", network.state_dict())
    (tmp_path / "table" / "1" / "model.toml").write_text('epochs = 9\n[model]\nname = "mlp"\nhidden = [8]\n')
    (tmp_path / "code" / "1" / "model.py").write_text(
        "import pathlib\nimport dl4all as dl\ndef load():\n    net = dl.models.MLP(4, [8], 3)\n"
        "    weights = pathlib.Path(__file__).parents[2] / 'table' / '1' / 'model.safetensors'\n"
        "    net.load_state_dict(dl.io.load_weights(weights))\n    return net\n"
    )
    for name in ("file", "bare"):
        dl.onnx.export(
            network,
            (dl.ones(2, 4, device="cpu"),),
            tmp_path / name / "1" / "model.onnx",
            input_names=["x"],
            output_names=["y"],
            dynamic={"x": {0: "rows"}},
        )
    expected = network(dl.from_numpy(x)).detach().numpy()
    with serving_folder(tmp_path) as server:
        assert {entry[1] for entry in states(server).values()} == {"READY"}
        for name in ("code", "table", "file", "bare"):
            for protocol, url in urls_of(server).items():
                for _ in range(2):
                    found = infer(url, name, protocol, {"x": x}).as_numpy("y")
                    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_highest_version_serves_and_the_broken_ones_say_why(tmp_path: Path) -> None:
    for version in (2, 9, 10):
        write_model(tmp_path, "good", version, VERSIONED.format(version=version))
    (tmp_path / "good" / "latest").mkdir()
    broken = {
        "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
        "exits": ("import sys\nsys.exit('over')", "SystemExit: over"),
        "syntax": ("def load(:", "SyntaxError"),
        "nothing": ("x = 1", "expected a function load"),
        "another": ("def load():\n    return 3", "load() returned int"),
        "forward": (
            VERSIONED.format(version=1).replace("return x * 0", "return x @ x"),
            "inner sizes differ",
        ),
        "dtype": (VERSIONED.format(version=1).replace("x * 0", "x.double()"), "is float64 of shape [1, 3]"),
        "shape": (VERSIONED.format(version=1).replace("x * 0", "x[:, :2]"), "say FP32 of shape [-1, 3]"),
        "rows": (VERSIONED.format(version=1).replace("x * 0", "x[:1] * 0"), "whose first axis is the batch"),
        "count": (VERSIONED.format(version=1).replace("return x * 0 +", "return {} #"), "of 1, got dict"),
    }  # fmt: skip
    for name, (code, _) in broken.items():
        write_model(tmp_path, name, 1, code)
    write_model(tmp_path, "settings", 1, VERSIONED.format(version=1), settings="max_batch = 3")
    write_model(tmp_path, "gone", 1, VERSIONED.format(version=1), settings='devices = ["vulkan:77"]')
    (tmp_path / "empty" / "1").mkdir(parents=True)
    (tmp_path / "empty" / "config.toml").write_text(CONFIG)
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "config.toml").write_text(CONFIG)
    (tmp_path / "notes").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "config.toml").write_text(CONFIG)
    expected = {
        **{name: reason for name, (_, reason) in broken.items()},
        "settings": "unknown key 'max_batch' in the file (did you mean 'max_batch_size'?)",
        "gone": "vulkan:77",
        "empty": "expected one of model.py, model.toml, model.onnx",
        "versions": "there is no version",
    }
    with serving_folder(tmp_path) as server:
        found = states(server)
        assert found.pop("good") == ("10", "READY", "")
        assert found.keys() == expected.keys()
        for name, reason in expected.items():
            assert found[name][1] == "UNAVAILABLE"
            assert reason in found[name][2]
            refused = ask(server.http_url, "POST", f"/v2/models/{name}/infer", b"{}")
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert ask(server.http_url, "GET", f"/v2/models/{name}/ready").status == 503
        answer = infer(server.grpc_url, "good", "grpc", {"x": numbers(2, 3)})
        assert (answer.as_numpy("y") == 10.0).all()
        assert answer.get_response().model_version == "10"
        assert ask(server.http_url, "GET", "/v2/models/good/versions/9").status == 404
        assert ask(server.http_url, "GET", "/v2/health/ready").status == 200
    with pytest.raises(ConfigError, match="is no folder"):
        serving_folder(tmp_path / "missing")


@pytest.mark.parametrize("name", ["", ".", "..", "../good", "good/1", ".hidden", "a" * 300, "good\0", "GOOD"])
def test_names_are_no_paths(tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "models", "good", 1, VERSIONED.format(version=1))
    write_model(tmp_path, "outside", 1, VERSIONED.format(version=1))
    repository = Repository(tmp_path / "models")
    assert repository.names() == ["good"]
    with pytest.raises(RequestError, match="has no model"):
        repository.newest(name)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[inputs]]", "max_batch_size = 0\n[[inputs]]", "max_batch_size must be at least 1, got 0"),
        ("[[inputs]]", "max_queue_size = -3\n[[inputs]]", "max_queue_size must be at least 1"),
        ("[[inputs]]", "timeout_seconds = 0\n[[inputs]]", "timeout_seconds must be"),
        ("[[inputs]]", "timeout_seconds = nan\n[[inputs]]", "timeout_seconds must be"),
        ("[[inputs]]", "max_queue_delay_microseconds = -1\n[[inputs]]", "must be at least 0"),
        ("[[inputs]]", "devices = 'cpu'\n[[inputs]]", "devices in the file must be a list, each text"),
        ("[[inputs]]", "[inputs]", r"expected tables \[\[inputs\]\]"),
        ('datatype = "FP32"', 'datatype = "FP31"', r"no datatype 'FP31' \(did you mean 'FP32'\?\)"),
        ('datatype = "FP32"', 'datatype = "BYTES"', "no datatype 'BYTES'"),
        ('datatype = "FP32"', "datatype = 32", "datatype in .* must be text"),
        ('name = "x"', 'name = ""', "a name has 1 to 200 characters"),
        ('name = "x"', 'nam = "x"', r"unknown key 'nam' .*did you mean 'name'"),
        ("shape = [-1, 4]", "shape = [4]", "the first of them -1"),
        ("shape = [-1, 4]", "shape = []", "a shape has 1 to 8 sizes"),
        ("shape = [-1, 4]", "shape = [-1, 0]", "a size is -1 or at least 1"),
        ("shape = [-1, 4]", "shape = [-1, 2.5]", "each an integer"),
        ("shape = [-1, 4]", "", "must say shape"),
        ("[[outputs]]", f"{CONFIG[:CONFIG.index('[[out')]}[[outputs]]", "a name twice: x"),
        ("[[outputs]]", "[[outputs", "is no TOML"),
    ],
)  # fmt: skip
def test_unusable_settings(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        read_model_config(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_model_config(tmp_path / "none.toml")
