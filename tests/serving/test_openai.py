"""Language models as OpenAI's API has them, asked by OpenAI's own client."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import psutil
import pytest

import dl4all as dl
from dl4all.errors import ConfigError
from dl4all.llm.completion_batcher import CompletionBatcher
from tests.llm.speaker import write_speaker
from tests.serving.servers import Process, ask, wait_until

pytestmark = pytest.mark.usefixtures("deadline")
TALK: list[Any] = [{"role": "user", "content": "hé"}]
FULL = os.environ.get("DL4ALL_TEST_FULL") == "1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speaker(tmp_path_factory.mktemp("speaker"), positions=512)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[dl.serving.Server]:
    model, tokenizer = dl.llm.load(folder, device="cpu")
    made = dl.serving.Server(http_port=0, grpc_port=0, devices=["cpu"])
    made.add_language_model("speaker", model, tokenizer, slots=4)
    with pytest.raises(ConfigError, match="a language model 'speaker' already"):
        made.add_language_model("speaker", model, tokenizer)
    with made:
        with pytest.raises(ConfigError, match="before the server starts"):
            made.add_language_model("singer", model, tokenizer)
        yield made


@pytest.fixture(scope="module")
def client(server: dl.serving.Server) -> Iterator[openai.OpenAI]:
    with client_of(server.http_url) as made:
        yield made


def client_of(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://{url}/v1", api_key="none", max_retries=0, timeout=60)


def batcher_of(server: dl.serving.Server) -> CompletionBatcher:
    return server._language_models.by_name["speaker"].batcher


def chat(client: openai.OpenAI, **settings: Any) -> Any:
    given = {"model": "speaker", "messages": TALK, "max_tokens": 12, "temperature": 0, **settings}
    return client.chat.completions.create(**given)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["speaker"]
    assert client.models.retrieve("speaker").owned_by == "dl4all"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("singer")


def test_whole_answers_are_streamed_ones_and_the_models_own(client: openai.OpenAI, folder: Path) -> None:
    model, tokenizer = dl.llm.load(folder, device="cpu")
    assert tokenizer is not None
    prompt = tokenizer.encode(tokenizer.apply_chat_template(TALK), special=False)
    expected = dl.llm.generate(model, tokenizer, prompt, 12)
    whole = chat(client)
    assert whole.choices[0].message.content == expected
    assert (whole.choices[0].finish_reason, whole.choices[0].message.role) == ("length", "assistant")
    counts = whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens
    assert counts == (len(prompt), 12, len(prompt) + 12)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in told) == expected
    assert [choice.finish_reason for choice in told if choice.finish_reason] == ["length"]
    assert chunks[-1].usage == whole.usage
    assert len({chunk.id for chunk in chunks}) == 1
    text = client.completions.create(model="speaker", prompt=prompt, max_tokens=12, temperature=0)
    assert text.choices[0].text == expected
    pieces = client.completions.create(
        model="speaker", prompt=tokenizer.decode(prompt), max_tokens=5, temperature=0, stream=True
    )
    assert "".join(piece.choices[0].text for piece in pieces)


def test_parts_of_messages_and_other_names_of_numbers(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "é"}]
    messages = [{"role": "user", "content": parts}]
    expected = chat(client).choices[0].message.content
    assert chat(client, messages=messages).choices[0].message.content == expected
    few = chat(client, max_completion_tokens=3, max_tokens=None)
    assert few.usage.completion_tokens == 3
    stop = expected[2]
    stopped = chat(client, stop=[stop, "never"]).choices[0]
    assert (stopped.message.content, stopped.finish_reason) == (expected[: expected.index(stop)], "stop")


def test_draws_by_seed(client: openai.OpenAI) -> None:
    drawn = {seed: [] for seed in (1, 2)}  # type: ignore[var-annotated]
    for _ in range(3):
        for seed, found in drawn.items():
            found.append(chat(client, seed=seed, temperature=1.0).choices[0].message.content)
    assert len(set(drawn[1])) == len(set(drawn[2])) == 1
    assert drawn[1] != drawn[2]
    greedy = chat(client).choices[0].message.content
    for settings in ({"top_p": 1e-6}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 1.0}}):
        assert chat(client, temperature=1.0, **settings).choices[0].message.content == greedy


def test_probabilities(client: openai.OpenAI) -> None:
    told = chat(client, logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert len(told) == 12
    for token in told:
        assert len(token.top_logprobs) == 3
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert token.bytes == list(token.token.encode())
    text = client.completions.create(model="speaker", prompt="ab", max_tokens=4, temperature=0, logprobs=2)
    found = text.choices[0].logprobs
    assert found is not None
    assert found.top_logprobs is not None
    assert [len(found.tokens or []), *map(len, found.top_logprobs)] == [4, 2, 2, 2, 2]


@pytest.mark.parametrize(
    ("changed", "status", "match"),
    [
        ({"model": "singer"}, 404, "there is no model 'singer'"),
        ({"model": 3}, 400, "model must be the name"),
        ({"messages": []}, 400, "messages must be a list"),
        ({"messages": "hello"}, 400, "messages must be a list"),
        ({"messages": [{"content": "x"}]}, 400, r"messages\[0\] must be an object with a role"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, r"messages\[0\].content must be a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            400,
            "parts of the type text",
        ),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, 400, "a prompt of 1 to 512 tokens"),
        ({"max_tokens": "many"}, 400, "max_tokens must be an integer from 1 on, got 'many'"),
        ({"max_tokens": 0}, 400, "max_tokens must be an integer"),
        ({"max_tokens": 2**70}, 400, "max_tokens must be an integer"),
        ({"temperature": 2.5}, 400, "temperature must be a number from 0 to 2"),
        ({"temperature": True}, 400, "temperature must be a number"),
        ({"temperature": float("nan")}, 400, "temperature must be a number"),
        ({"top_p": -1}, 400, "top_p must be a number"),
        ({"seed": "x"}, 400, "seed must be an integer"),
        ({"stop": [1]}, 400, "stop must be a text"),
        ({"stop": ["a"] * 5}, 400, "up to 4"),
        ({"stream": "yes"}, 400, "stream must be true or false"),
        ({"stream_options": 3}, 400, "stream_options must be an object"),
        ({"top_logprobs": 2}, 400, "top_logprobs needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, 400, "at most 20 logprobs"),
        ({"n": 2}, 400, "n is not supported"),
        ({"tools": [{"type": "function"}]}, 400, "tools is not supported"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format is not supported"),
        ({"frequency_penalty": 3}, 400, "frequency_penalty must be a number"),
    ],
)
def test_what_cannot_be_asked(
    server: dl.serving.Server, changed: dict[str, Any], status: int, match: str
) -> None:
    body = {"model": "speaker", "messages": TALK, "max_tokens": 2, **changed}
    answer = ask(server.http_url, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert re.search(match, answer.json["error"]["message"])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"model":' * 5000, b'{"prompt": 1}', b"null"])
def test_bodies_that_are_none(server: dl.serving.Server, body: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = ask(server.http_url, "POST", path, body)
        assert answer.status == 400
        assert answer.json["error"]["type"] == "invalid_request_error"
    assert ask(server.http_url, "GET", "/v1/chat/completions").status == 405


def test_hostile_numbers_are_answered(server: dl.serving.Server) -> None:
    """Whatever a field holds, there is an answer or a reason, and the server goes on."""
    rng = np.random.default_rng(0)
    values = [None, 0, -1, 1e308, 2**64, "x", [], {}, True, [None], {"a": 1}, "\x00", ["\ud800"], 0.5]
    fields = ("messages", "max_tokens", "temperature", "top_p", "seed", "stop", "logprobs", "top_k", "min_p",
              "repetition_penalty", "presence_penalty", "stream_options", "top_logprobs")  # fmt: skip
    for _ in range(300 if FULL else 60):
        body: dict[str, Any] = {"model": "speaker", "messages": TALK, "max_tokens": 2}
        for field in rng.choice(fields, 2):
            body[str(field)] = values[rng.integers(len(values))]
        if not isinstance(body.get("max_tokens"), int):
            body["max_tokens"] = 2
        answer = ask(server.http_url, "POST", "/v1/chat/completions", json.dumps(body).encode())
        assert answer.status in (200, 400), answer.body
    assert ask(server.http_url, "GET", "/v2/health/ready").status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_frees_a_slot(
    server: dl.serving.Server, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = batcher_of(server)
    gone = threading.Event()
    compute = batcher._compute_tokens

    def compute_then(ready: list[int]) -> None:
        gone.wait(60)
        compute(ready)

    monkeypatch.setattr(batcher, "_compute_tokens", compute_then)
    body = {"model": "speaker", "messages": TALK, "max_tokens": 450, "temperature": 0, "stream": stream}
    connection = http.client.HTTPConnection(server.http_url, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    wait_until(lambda: batcher.active == 1)
    (completion,) = (slot.completion for slot in batcher._slots if slot.completion is not None)
    if stream:
        assert connection.getresponse().readline().startswith(b"data: ")
    connection.close()
    wait_until(lambda: completion.cancelled)
    gone.set()
    wait_until(lambda: batcher.active == 0)


def test_many_talks(client: openai.OpenAI, server: dl.serving.Server) -> None:
    """Answers of many at once are those of each; neither slots nor memory are lost."""
    talks = [[{"role": "user", "content": f"number {n % 7}"}] for n in range(1000 if FULL else 60)]
    expected = [chat(client, messages=talk, max_tokens=4).choices[0].message.content for talk in talks[:7]]
    process = psutil.Process()
    begun = process.memory_info().rss
    with ThreadPoolExecutor(12) as pool:
        found = pool.map(lambda talk: chat(client, messages=talk, max_tokens=4), talks)
        told = [answer.choices[0].message.content for answer in found]
    assert told == [expected[n % 7] for n in range(len(talks))]
    assert process.memory_info().rss - begun < 2**28
    batcher = batcher_of(server)
    # The last answer is told before its slot is free.
    wait_until(lambda: (batcher.active, batcher.waiting) == (0, 0))
    counts = ask(server.http_url, "GET", "/metrics").body.decode()
    assert 'dl4all_completion_requests_total{code="200",model="speaker"}' in counts


def test_a_process_answers_what_is_under_way(folder: Path) -> None:
    with Process(folder, "--name=speaker", "--slots=2") as process, client_of(process.urls["http"]) as client:
        chat(client, max_tokens=2)
        begun = threading.Barrier(5)
        told: list[Any] = []

        def talk(stream: bool) -> None:
            begun.wait()
            answer = chat(client, max_tokens=120, stream=stream)
            if not stream:
                told.append(answer.usage.completion_tokens)
                return
            reasons = [chunk.choices[0].finish_reason for chunk in answer]
            told.append(len(reasons) if reasons[-1] == "length" else reasons)

        threads = [threading.Thread(target=talk, args=(number % 2 == 0,)) for number in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        wait_until(lambda: b"dl4all_completion" in ask(process.urls["http"], "GET", "/metrics").body)
        process.popen.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert process.ended() == ""
        assert process.popen.returncode == 0
    assert len(told) == 4
    assert all(isinstance(count, int) for count in told), told
