"""The files of ``deploy/``: names and ports are those of the server, and the image answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

import dl4all as dl
from tests.serving.servers import VERSIONED, ask, infer, numbers, serving, urls_of, write_model

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\bdl4all_\w+")
SUFFIXES = ("_bucket", "_sum", "_count", "_total", "_created")


def family(name: str) -> str:
    """The name of a family of metrics, of which a query names a part."""
    return next((name.removesuffix(end) for end in SUFFIXES if name.endswith(end)), name)


@pytest.mark.usefixtures("deadline")
def test_metrics_count_what_was_asked_and_dashboards_name_them() -> None:
    with serving(dl.nn.Identity(), max_batch_size=4) as server:
        for protocol, url in urls_of(server).items():
            for rows in (1, 3, 6):
                infer(url, "m", protocol, {"x": numbers(rows, 3)})
        ask(server.http_url, "POST", "/v2/models/m/infer", b"{")
        ask(server.http_url, "POST", "/v2/models/whatever-a-client-sends/infer", b"{}")
        answer = ask(server.http_url, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {found.name: found for found in text_string_to_metric_families(answer.body.decode())}
    own = {family(name) for name in families if name.startswith("dl4all_")}
    found_samples = [sample for found in families.values() for sample in found.samples]

    def value(name: str, **labels: str) -> float:
        wanted = {"model": "m", "version": "1", **labels}
        (one,) = [s.value for s in found_samples if s.name == f"dl4all_{name}" and s.labels == wanted]
        return float(one)

    assert value("inference_requests_total", code="200", protocol="http") == 3
    assert value("inference_requests_total", code="OK", protocol="grpc") == 3
    assert value("inference_requests_total", code="400", protocol="http") == 1
    assert value("inference_requests_total", code="404", protocol="http", model="", version="") == 1
    assert b"whatever" not in answer.body  # a label for each word of a client would fill the memory
    assert value("inference_rows_total") == 20
    for name in ("request", "queue", "compute"):
        assert value(f"inference_{name}_seconds_count") == (7 if name == "request" else 6)
        assert value(f"inference_{name}_seconds_sum") > 0
    assert value("inference_batch_size_sum") == 20
    assert value("inference_batch_size_count") == 8
    assert value("inference_queue_rows") == 0
    assert value("inference_device_share", device="cpu") == 1

    for path in ("monitoring/grafana.json", "monitoring/alerts.yml"):
        named = {
            family(name) for name in METRIC.findall((DEPLOY / path).read_text()) if name != "dl4all_serve"
        }
        assert named <= own, path
    dashboard = json.loads((DEPLOY / "monitoring" / "grafana.json").read_text())
    shown = {family(name) for name in METRIC.findall(json.dumps(dashboard["panels"]))}
    assert shown == own
    page = (ROOT / "docs" / "serving.md").read_text()
    assert {family(name) for name in METRIC.findall(page)} == own
    labels = {label for sample in found_samples for label in sample.labels}
    used = set(re.findall(r"\b(\w+)=~?\"", (DEPLOY / "monitoring" / "alerts.yml").read_text()))
    assert used <= labels | {"job"}


def documents(path: str) -> list[Any]:
    return [*yaml.safe_load_all((DEPLOY / path).read_text())]


@pytest.mark.usefixtures("deadline")
def test_manifests_name_the_ports_and_paths_of_the_server() -> None:
    deployment, service = documents("kubernetes/deployment.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "http": 8000,
        "grpc": 8001,
    }
    assert {port["name"]: port["targetPort"] for port in service["spec"]["ports"]} == {
        "http": "http",
        "grpc": "grpc",
    }
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    (inference,) = documents("kubernetes/inference-service.yaml")
    (custom,) = inference["spec"]["predictor"]["containers"]
    assert custom["ports"][0]["containerPort"] == 8000
    compose, prometheus = documents("compose.yaml")[0], documents("monitoring/prometheus.yml")[0]
    servers = {name for name in compose["services"] if name.startswith("dl4all")}
    for proxy in ("haproxy.cfg", "nginx.conf"):
        text = (DEPLOY / proxy).read_text()
        assert set(re.findall(r"(dl4all-\d):800[01]", text)) == servers
    (scraped,) = prometheus["scrape_configs"]
    assert {target.split(":")[0] for target in scraped["static_configs"][0]["targets"]} == servers
    for name in ("haproxy", "prometheus"):
        for volume in compose["services"][name]["volumes"]:
            assert (DEPLOY / volume.split(":")[0]).is_file()
    paths = {probe["httpGet"]["path"] for key, probe in container.items() if key.endswith("Probe")}
    paths |= {custom["readinessProbe"]["httpGet"]["path"], scraped["metrics_path"]}
    paths |= set(re.findall(r"8000(/\S+?)'", (DEPLOY / "Dockerfile").read_text()))
    with serving(dl.nn.Identity()) as server:
        for path in paths:
            assert ask(server.http_url, "GET", path).status == 200, path
    assert len(paths) >= 3


def test_the_dockerfile_is_linted() -> None:
    lint = Path(sys.executable).with_name("hadolint")
    subprocess.run([lint, "--failure-threshold", "style", DEPLOY / "Dockerfile"], check=True, timeout=60)


def test_messages_are_generated_from_their_source(tmp_path: Path) -> None:
    source = Path("dl4all/serving/protocol/open_inference.proto")
    options = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", "-I."]
    command = [sys.executable, "-m", "grpc_tools.protoc", *options, str(source)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=60)
    for suffix in ("_pb2.py", "_pb2.pyi"):
        made = source.with_name(source.stem + suffix)
        assert (tmp_path / made).read_text() == (ROOT / made).read_text(), f"generate {made} anew"


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("DL4ALL_TEST_FULL") != "1", reason="takes two minutes: every night")
def test_the_image_answers_as_a_user_without_rights(tmp_path: Path) -> None:
    """Built without a daemon or a registry: a base by debootstrap, all packages from wheels."""
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None or os.geteuid() != 0:
            pytest.skip(f"takes root and {program}")
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
    environment |= {"CONTAINERS_STORAGE_CONF": "/dev/null"}

    def run(*command: str | Path) -> str:
        done = subprocess.run([*command], env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout.strip()

    dist, models, root = (
        tmp_path / "dist",
        tmp_path / "models",
        ["buildah", "--root", str(tmp_path / "store")],
    )
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", dist, ROOT)
    (wheel,) = dist.glob("dl4all-*.whl")
    run(sys.executable, "-m", "pip", "download", "-q", "-d", dist, f"{wheel}[serve,onnx]")
    run("debootstrap", "--variant=minbase", "bookworm", tmp_path / "base")
    base = run(*root, "from", "scratch")
    run(*root, "add", "-q", base, tmp_path / "base", "/")
    run(*root, "commit", "-q", base, "localhost/base:1")
    build = ["--pull-never", "--build-arg", "BASE=localhost/base:1", "--build-arg", "PIP_NO_INDEX=1"]
    run(*root, "bud", *build, "-f", DEPLOY / "Dockerfile", "-t", "localhost/dl4all:1", tmp_path)
    write_model(models, "m", 1, VERSIONED.format(version=1))
    for path in (models, *models.rglob("*"), *tmp_path.parents):
        if path != Path("/"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    made = run(*root, "from", "--pull-never", "localhost/dl4all:1")
    options = ["--http-port=0", "--grpc-port=0", "--host=127.0.0.1"]
    command = [*root, "run", "-v", f"{models}:/models:ro", made, "--", "dl4all", "serve", "/models", *options]
    container = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert container.stdout is not None
    line = container.stdout.readline()
    url = line.split()[1].removeprefix("http://")
    np.testing.assert_array_equal(
        infer(url, "m", "http", {"x": numbers(2, 3)}).as_numpy("y"), np.ones((2, 3))
    )
    owners = run("ps", "-o", "uid=,pid=,args=", "-C", "dl4all").splitlines()
    uid, pid = next(line.split()[:2] for line in owners if str(models) not in line)
    assert uid == "10001"
    os.kill(int(pid), signal.SIGTERM)
    container.communicate(timeout=60)
    assert container.returncode == 0
