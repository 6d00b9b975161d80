"""Targets over websockets. Each test is about the real promptfoo too (PROMPTFOO_ENTRYPOINT), where it is not about its mistakes."""

import json
from contextlib import contextmanager

import pytest

from targets import Socket, programs, run
from verdicts import free_port


@contextmanager
def socket(replies):
    service = Socket(replies)
    try:
        yield service
    finally:
        service.close()


def provider(service, **config):
    return {"providers": [{"id": service.url, "config": {"messageTemplate": '{"text": "{{prompt}}"}', **config}}]}


def test_a_message_is_answered(sandcove, tmp_path):
    with socket(lambda message: [json.dumps({"said": json.loads(message)["text"] + "x" * 200})]) as service:
        for program in programs(sandcove):
            _, [row], said = run(program, tmp_path, provider(service, transformResponse="data.said"))
            assert row["response"]["output"] == "Say hi" + "x" * 200, said
            assert row["provider"]["id"] == service.url
            _, [row], _ = run(program, tmp_path, provider(service))
            assert row["response"]["output"] == {"said": "Say hi" + "x" * 200}


def test_what_is_sent_and_to_whom_is_a_template(sandcove, tmp_path):
    with socket(lambda message: [f"plain {message}"]) as service:
        config = {"url": service.url + "/of/{{x}}?a=1", "messageTemplate": "{{x | upper}}: {{prompt}}", "headers": {"X-Own": "yes"}, "protocols": "chat, json"}
        for program in programs(sandcove):
            service.opened.clear()
            _, [row], said = run(program, tmp_path, {"providers": [{"id": "websocket", "config": config}]})
            assert row["response"]["output"] == "plain HI: Say hi", said
            [(path, headers)] = service.opened
            assert (path, headers["x-own"]) == ("/of/hi?a=1", "yes")
            assert headers["sec-websocket-protocol"].replace(" ", "") == "chat,json"


STREAM = """(accumulator, event, context) => {
  const data = JSON.parse(event.data);
  const output = (accumulator.output || '') + (data.delta || '') + (data.done ? context.vars.x : '');
  return [{ output }, data.done === true];
}"""


@pytest.mark.parametrize("code", [STREAM, "file://stream.cjs", "file://stream.cjs:named"])
def test_an_answer_comes_in_pieces(sandcove, tmp_path, code):
    (tmp_path / "stream.cjs").write_text(f"const stream = {STREAM};\nmodule.exports = stream;\nmodule.exports.named = stream;\n")
    pieces = [json.dumps({"delta": piece}) for piece in "abc"] + [json.dumps({"done": True})]
    with socket(lambda _: pieces) as service:
        for program in programs(sandcove):
            _, [row], said = run(program, tmp_path, provider(service, streamResponse=code))
            assert row["response"]["output"] == "abchi", said


def test_an_error_of_the_service_is_one_of_the_row(sandcove, tmp_path):
    with socket(lambda _: ['{"failure": "no such model"}']) as service:
        for program in programs(sandcove):
            _, [row], _ = run(program, tmp_path, provider(service, transformResponse="({ error: data.failure })"))
            assert row["failureReason"] == 2 and "no such model" in row["error"]


def test_a_service_that_does_not_answer_in_time_is_an_error(sandcove, tmp_path):
    with socket(lambda _: []) as service:
        for program in programs(sandcove):
            _, [row], _ = run(program, tmp_path, provider(service, timeoutMs=300))
            assert row["failureReason"] == 2 and "300" in row["error"]


def test_a_service_that_is_not_there_is_an_error(sandcove, tmp_path):
    with socket(lambda _: []) as service:
        for url in (service.url + "/refused", f"ws://127.0.0.1:{free_port()}"):
            for program in programs(sandcove):
                _, [row], _ = run(program, tmp_path, provider(service, url=url))
                assert row["failureReason"] == 2 and "websocket" in row["error"].lower()


def test_a_service_that_goes_is_an_error(sandcove, tmp_path):
    def gone(_):
        raise OSError

    with socket(gone) as service:
        _, [row], _ = run(sandcove, tmp_path, provider(service))
        assert row["failureReason"] == 2 and "websocket" in row["error"]


@pytest.mark.parametrize(
    ("id", "config", "message"),
    [("ws://localhost:1", {}, "`config.messageTemplate`"), ("websocket", {"messageTemplate": "x"}, "`config.url`")],
)
def test_what_is_missing_is_refused_before_any_call(sandcove, tmp_path, id, config, message):
    code, rows, said = run(sandcove, tmp_path, {"providers": [{"id": id, "config": config}]})
    assert (code, rows) == (1, None) and message in said and "promptfooconfig.yaml:1:" in said
