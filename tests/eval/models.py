"""A service that plays the models of suites: it speaks their dialects, says what it is asked to, and keeps what it was sent.

A prompt with `<<text>>` has that text as its answer, else the answer is `echo: ` and the prompt. `<<call NAME ARGUMENTS>>` calls a tool, and a
model that gets what the tool returned says so. `<<items LIST>>` has the items of the list in a reply of `responses`, and `<<body REPLY>>` is the
whole reply, with the status that it has as `status_code`.
"""

import email
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from targets import Socket

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def texts(value):
    """All texts of a request, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


def answer(*parts):
    """The answer to the last message, which any message may order."""
    said = [text for part in parts for text in texts(part)]
    for text in said:
        if found := re.search(r"<<(.*?)>>", text, re.DOTALL):
            return found[1].replace('\\"', '"').replace("\\n", "\n")
    return f"echo: {said[-1]}" if said else "echo"


def vector(text):
    """An embedding: how often letters are in a text, so that like texts are near each other."""
    return [float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"]


def reply(path, asked):
    """The status and the body of the answer to a request."""
    if found := re.match(r"/status/(\d+)", path):
        return int(found[1]), {"error": {"message": f"status {found[1]}"}}
    for text in texts(asked):
        if found := re.search(r"<<body (.*?)>>", text, re.DOTALL):
            sent = json.loads(found[1])
            return sent.pop("status_code", 200), sent
    if path.endswith("/chat/completions") or "/chat/completions?" in path:
        messages = asked.get("messages", [])
        content = answer([message.get("content") for message in messages])
        message = {"role": "assistant", "content": content}
        if content.startswith("call "):
            _, name, arguments = content.split(" ", 2)
            call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        elif content.startswith("refuse "):
            message = {"role": "assistant", "content": None, "refusal": content[7:]}
        reason = "tool_calls" if "tool_calls" in message else "length" if content == "cut" else "stop"
        return 200, {"id": "c1", "object": "chat.completion", "model": asked.get("model"),
                     "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": USAGE}
    if path.endswith("/responses") or "/responses?" in path:
        said = answer(asked.get("input"))
        content = [{"type": "output_text", "text": said}]
        output = [{"type": "message", "role": "assistant", "status": "completed", "content": content}]
        if said.startswith("items "):
            output = json.loads(said[6:])
        elif said.startswith("call "):
            _, name, arguments = said.split(" ", 2)
            output = [{"type": "function_call", "id": "f1", "call_id": "call_1", "name": name, "arguments": arguments, "status": "completed"}]
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return 200, {"id": "r1", "status": "completed", "model": asked.get("model"), "output": output, "usage": usage}
    if path == "/api/embeddings":
        return 200, {"embedding": vector(asked.get("prompt", ""))}
    if path.endswith("/embeddings") or "/embeddings?" in path:
        text = "".join(texts(asked.get("input") or "")[:1])
        return 200, {"data": [{"embedding": vector(text)}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}
    if path.endswith("/moderations"):
        bad = "attack" in json.dumps(asked.get("input"))
        return 200, {"results": [{"flagged": bad, "categories": {"violence": bad, "hate": False},
                                  "category_scores": {"violence": 0.9 if bad else 0.1, "hate": 0.01}}]}
    if path.endswith("/completions"):
        return 200, {"choices": [{"text": answer(asked.get("prompt")), "finish_reason": "stop"}], "usage": USAGE}
    if path.endswith("/messages"):
        parts = [message.get("content") for message in asked.get("messages", [])]
        said, returned = answer(parts), [part for part in parts[-1] if isinstance(part, dict) and part.get("type") == "tool_result"]
        content, reason = [{"type": "text", "text": said}], "end_turn"
        if said.startswith("again ") or (said.startswith("call ") and not returned):
            _, name, arguments = said.split(" ", 2)
            content, reason = [{"type": "tool_use", "id": "t1", "name": name, "input": json.loads(arguments)}], "tool_use"
        elif returned:
            content = [{"type": "text", "text": f"the tool said {part['content']}, error {part.get('is_error', False)}"} for part in returned]
        return 200, {"id": "m1", "type": "message", "model": asked.get("model"), "role": "assistant", "content": content,
                     "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
    if "generateContent" in path:
        said = [content.get("parts") for content in asked.get("contents", [])]
        text = answer(*said)
        parts = [{"text": text}]
        if text.startswith("call "):
            _, name, arguments = text.split(" ", 2)
            parts = [{"functionCall": {"name": name, "args": json.loads(arguments)}}]
        content = {"role": "model", "parts": parts}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        return 200, {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage}
    if "embedContent" in path:
        return 200, {"embedding": {"values": vector("".join(texts(asked.get("content"))))}}
    if path == "/hf/generate":
        return 200, [{"generated_text": answer(asked.get("inputs"))}]
    if path == "/hf/classify":
        return 200, [[{"label": "POSITIVE", "score": 0.9}, {"label": "NEGATIVE", "score": 0.1}]]
    if path == "/hf/tokens":
        return 200, [{"entity_group": "PER", "score": 0.4, "word": "x"}]
    if path == "/pi/score":
        # The question says what the score is, if it names a number.
        question = asked["scoring_spec"][0]["question"]
        found = re.search(r"[\d.]+", question)
        return 200, {"total_score": float(found[0]), "question_scores": {question: float(found[0])}} if found else {"detail": "no"}
    if path == "/hook":
        return 200, {"output": answer(asked.get("prompt"))}
    if path == "/api/chat":
        content = answer([message.get("content") for message in asked.get("messages", [])])
        return 200, {"message": {"role": "assistant", "content": content}, "done": True, "prompt_eval_count": 10, "eval_count": 5}
    if path == "/api/generate":
        return 200, {"response": answer(asked.get("prompt")), "done": True, "prompt_eval_count": 10, "eval_count": 5}
    if path == "/oauth/token":
        return 200, {"access_token": "token-oauth", "expires_in": 3600, "token_type": "Bearer"}
    if path == "/sessions":
        return 200, {"session": {"id": "session-1"}}
    if path == "/text":
        return 200, f"plain {answer(asked)}"
    return 200, {"path": path, "sent": asked, "text": answer(asked) if asked else "nothing", "list": [{"n": 1}, {"n": 2}]}


def form(kind, raw):
    """The parts of a body with files, without the boundary, which is chosen anew each time."""
    message = email.message_from_string(f"Content-Type: {kind}\r\n\r\n{raw}")
    heads = [(part.get_param("name", header="content-disposition"), part.get_filename(), part) for part in message.get_payload()]
    return {"form": [[name, file, part.get_content_type() if file else None, part.get_payload()] for name, file, part in heads]}


def over_a_socket(message):
    """The messages that answer one of a websocket: in pieces if it asks for a stream."""
    try:
        asked = json.loads(message)
    except ValueError:
        return [f"plain {message}"]
    if asked.get("stream"):
        pieces = [{"type": "delta", "text": f"{word} "} for word in answer(asked["text"]).split()]
        return [json.dumps(piece) for piece in [{"type": "start"}, *pieces, {"type": "end"}]]
    if asked.get("fail"):
        return [json.dumps({"error": "the model is away"})]
    return [json.dumps({"output": answer(asked["text"]), "sent": asked})]


class Models(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
        try:
            asked = json.loads(raw)
        except ValueError:
            kind = self.headers.get("Content-Type") or ""
            asked = form(kind, raw) if kind.startswith("multipart/") else raw
        kept = {name.lower(): value for name, value in self.headers.items() if name.lower() in KEPT or name.lower().startswith("x-own")}
        self.server.asked.append({"method": self.command, "path": self.path, "headers": dict(sorted(kept.items())), "body": asked})
        status, body = reply(self.path, asked)
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_DELETE = do_PATCH = do_POST

    def log_message(self, *_):
        pass


# The headers that say what was meant, and not who asked.
KEPT = {"authorization", "x-api-key", "api-key", "anthropic-version", "anthropic-beta", "openai-organization", "x-goog-api-key"}


@contextmanager
def models():
    """The service: `url` is where it listens, `asked` what it was sent."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Models)
    server.daemon_threads = True
    server.asked = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    sockets = Socket(over_a_socket)
    server.sockets = sockets.url
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        sockets.close()
        server.shutdown()
        server.server_close()
        thread.join()


def environment(service):
    """The variables by which both programs find the service instead of the real ones."""
    url = service.url
    return {
        "MODELS_WS": service.sockets,
        "MODELS_URL": url, "MODELS_HOST": url.removeprefix("http://"),
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "key-openai",
        "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "key-anthropic",
        "OLLAMA_BASE_URL": url, "MISTRAL_API_BASE_URL": f"{url}/v1", "MISTRAL_API_KEY": "key-mistral",
        "GOOGLE_API_BASE_URL": url, "GOOGLE_API_KEY": "key-google",
        "WITHPI_API_URL": f"{url}/pi/score", "WITHPI_API_KEY": "key-pi",
        "LOCALAI_BASE_URL": f"{url}/v1", "LITELLM_API_BASE": f"{url}/v1", "LLAMA_BASE_URL": url,
    }
